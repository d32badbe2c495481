import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

/** Straight into etcd: an API server takes a minute for what this does in seconds. */
export async function fillConfigMaps(clusterDir: string, count: number, bytes: number): Promise<void> {
  const { args } = JSON.parse(await readFile(join(clusterDir, 'pid', 'etcd.json'), 'utf8')) as { args: string[] }
  const url = args.find((arg) => arg.startsWith('--advertise-client-urls='))?.split('=')[1]
  const value = 'x'.repeat(bytes - 400)
  let next = 0
  const put = async () => {
    while (next < count) {
      const name = `filler-${next++}`
      const metadata = { name, namespace: 'default', uid: randomUUID(), creationTimestamp: '2030-01-01T00:00:00Z' }
      const object = { apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { value } }
      const body = {
        key: Buffer.from(`/registry/configmaps/default/${name}`).toString('base64'),
        value: Buffer.from(JSON.stringify(object)).toString('base64'),
      }
      const response = await fetch(`${url}/v3/kv/put`, { method: 'POST', body: JSON.stringify(body) })
      if (!response.ok) throw new Error(`etcd answers ${response.status}: ${await response.text()}`)
      await response.arrayBuffer()
    }
  }
  await Promise.all(Array.from({ length: 32 }, put))
}

/** An informer in a process of its own. */
export class Informer implements AsyncDisposable {
  readonly #child: ChildProcess
  readonly #lines: AsyncIterator<string>

  constructor(command: string, args: string[], kubeconfig: string) {
    const env = { ...process.env, KUBECONFIG: kubeconfig }
    const child = spawn(command, args, { env, stdio: ['pipe', 'pipe', 'inherit'] })
    this.#child = child
    this.#lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  }

  get pid(): number {
    return this.#child.pid ?? 0
  }

  async synced(): Promise<{ syncedMs: number; objects: number }> {
    return JSON.parse((await this.#lines.next()).value as string)
  }

  /** Milliseconds from sending to seeing, of the changes since the last call. */
  async delays(): Promise<number[]> {
    this.#child.stdin?.write('report\n')
    return JSON.parse((await this.#lines.next()).value as string).delays ?? []
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill('SIGKILL')
  }
}

/** MiB: as it is, and at its highest. */
export function memoryOf(pid: number): { now: number; peak: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  const mib = (field: string) => Math.round(Number(new RegExp(`${field}:\\s+(\\d+)`).exec(status)?.[1]) / 1024)
  return { now: mib('VmRSS'), peak: mib('VmHWM') }
}

/** Seconds of processor time so far. */
export function cpuOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? []
  return (Number(fields[11]) + Number(fields[12])) / 100
}

export function percentiles(times: number[]): string {
  const sorted = times.toSorted((a, b) => a - b)
  const at = (share: number) =>
    (sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN).toFixed(1)
  return `${at(0.5)} / ${at(0.99)}`
}
