import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { memcached } from '#functions/memcached'
import { type KubeClient, resourcePath } from '#kube'
import { unlessAborted } from '#primitives'
import { Deployment } from '#sdk'

/** An edit that nothing has followed by then ends the measurement. */
const LONGEST_MS = 15_000
const PAUSE_MS = 50
const SIZES = 5

/** Edits of one Memcached, one after the other. */
export class Edits {
  readonly #kube: KubeClient
  readonly #place: { namespace: string; name: string }
  #size = 1

  constructor(kube: KubeClient, place: { namespace: string; name: string }) {
    this.#kube = kube
    this.#place = place
  }

  /** Milliseconds from the answer to an edit until the Deployment follows it. Rejects when it does not. */
  async times(count: number, longestMs = LONGEST_MS): Promise<number[]> {
    const { namespace, name } = this.#place
    const stop = new AbortController()
    const changes = this.#kube.watch<KubeObject & { spec: { replicas: number } }>(resourcePath(Deployment, namespace), {
      signal: stop.signal,
    })
    const followed = async () => {
      for (;;) {
        const { value } = await changes.next()
        if (value === undefined) throw new Error('the watch ended')
        if (value.type !== 'BOOKMARK' && value.object.spec.replicas === this.#size) return performance.now()
      }
    }
    const times: number[] = []
    try {
      for (let edit = 0; edit < count; edit++) {
        this.#size = (this.#size % SIZES) + 1
        await this.#kube.patch(resourcePath(memcached.for, namespace, name), { spec: { size: this.#size } }, 'merge')
        const acknowledged = performance.now()
        times.push((await unlessAborted(followed(), AbortSignal.timeout(longestMs))) - acknowledged)
        await sleep(PAUSE_MS)
      }
    } finally {
      stop.abort()
    }
    return times
  }
}
