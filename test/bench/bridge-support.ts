import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import type { KubeObject, ResourceRef } from '#contracts'
import { type KubeClient, resourcePath } from '#kube'
import { RECONCILERS } from '#spec'
import { base64, etcdOf } from '../support/cluster-etcd.ts'

export const CONFIG_MAPS = { group: '', version: 'v1', resource: 'configmaps', kind: 'ConfigMap' }

/** Writes ConfigMaps behind the API server's back: that takes a minute for what this does in seconds. */
export interface Etcd {
  put(object: KubeObject): Promise<void>
}

export async function configMapsIn(clusterDir: string): Promise<Etcd> {
  const call = await etcdOf(clusterDir)
  const uids = new Map<string, string>()
  return {
    async put({ metadata, ...rest }) {
      const path = `${metadata.namespace}/${metadata.name}`
      const uid = uids.get(path) ?? randomUUID()
      uids.set(path, uid)
      const object = { ...rest, metadata: { ...metadata, uid, creationTimestamp: '2030-01-01T00:00:00Z' } }
      await call('kv/put', { key: base64(`/registry/configmaps/${path}`), value: base64(JSON.stringify(object)) })
    },
  }
}

export async function fillConfigMaps(etcd: Etcd, count: number, bytes: number): Promise<void> {
  const value = 'x'.repeat(bytes - 400)
  let next = 0
  const put = async () => {
    while (next < count) {
      const metadata = { name: `filler-${next++}`, namespace: 'default' }
      await etcd.put({ apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { value } })
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

/** Creates a Reconciler for every object of a resource. */
export async function reconcile(
  kube: KubeClient,
  name: string,
  primary: ResourceRef & { kind: string },
  more: object = {},
): Promise<void> {
  await kube.create(resourcePath(RECONCILERS), {
    apiVersion: 'fairlead.dev/v1alpha1',
    kind: 'Reconciler',
    metadata: { name },
    spec: { for: { ...primary, ...more }, invoke: { pull: {} } },
  })
}
