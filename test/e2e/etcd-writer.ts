import { type EtcdTls, openEtcd } from '#functions/etcd/client'
import { until } from './world.ts'

const key = (at: number): Buffer => Buffer.from(`written-${String(at).padStart(6, '0')}`)
const CALL = { timeoutMs: 3000 }

/** Writes values one after the other, at any member that accepts them, and records the acknowledged ones. */
export class EtcdWriter {
  readonly #urls: () => Promise<string[]>
  readonly #tls: () => Promise<EtcdTls> | undefined
  readonly #stop = new AbortController()
  readonly #running: Promise<void>
  acknowledged: number[] = []
  /** The longest time without an acknowledged value, in milliseconds. */
  longestGapMs = 0

  constructor(urls: () => Promise<string[]>, tls: () => Promise<EtcdTls> | undefined = () => undefined) {
    this.#urls = urls
    this.#tls = tls
    this.#running = this.#write()
  }

  async #write(): Promise<void> {
    let last = performance.now()
    for (let at = 0; !this.#stop.signal.aborted; at++) {
      const urls = await this.#urls()
      const isTaken = await this.#put(urls[at % Math.max(urls.length, 1)], at)
      if (!isTaken) {
        await new Promise((resolve) => setTimeout(resolve, 50))
        continue
      }
      this.acknowledged.push(at)
      this.longestGapMs = Math.max(this.longestGapMs, performance.now() - last)
      last = performance.now()
    }
  }

  async #put(url: string | undefined, at: number): Promise<boolean> {
    if (url === undefined) return false
    using etcd = openEtcd({ url, tls: await this.#tls() })
    return await etcd.call('put', { key: key(at), value: key(at) }, CALL).then(
      () => true,
      () => false,
    )
  }

  /** Returns acknowledged values that are missing. Asks each member, after it has caught up. */
  async missing(): Promise<number[]> {
    const missing = new Set<number>()
    for (const url of await this.#urls()) {
      using etcd = openEtcd({ url, tls: await this.#tls() })
      // A member that has just elected a leader may answer that its request has timed out.
      const { kvs } = await until(() =>
        etcd.call('range', { key: key(0), range_end: Buffer.from('writtenz') }, { timeoutMs: 20_000 }),
      )
      const there = new Set(kvs.filter(({ key, value }) => key.equals(value)).map(({ key }) => key.toString()))
      for (const at of this.acknowledged) if (!there.has(key(at).toString())) missing.add(at)
    }
    return [...missing]
  }

  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#running
  }
}
