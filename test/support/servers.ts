import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  type Cluster,
  type ClusterOptions,
  type Nats,
  type NatsOptions,
  ProcessGroup,
  startCluster,
  startNats,
  stopCluster,
} from '#lab'
import { stopWithThisProcess } from '../../packages/lab/reaper.ts'

/**
 * `await using nats = await startTestNats()`: nats-server with JetStream, on ports and in a folder of its own. Gone with
 * its data at the end of the block, and within a second if the test process is killed.
 */
export async function startTestNats(
  options: Pick<NatsOptions, 'replicas' | 'maxBytes' | 'syncInterval' | 'authorization' | 'accounts' | 'tls'> = {},
): Promise<Nats & AsyncDisposable> {
  return disposable(await startNats({ ...options, dir: await shortTempDir(), dieWithParent: true, temporary: true }))
}

/**
 * `await using cluster = await startTestCluster()`: a real API server (3 to 6 s), gone at the end of the block as the
 * servers of startTestNats() are. Without options it only stores objects: no NATS, no controllers, no node.
 */
export async function startTestCluster(
  options: Omit<ClusterOptions, 'dir' | 'dieWithParent' | 'temporary'> = {},
): Promise<Cluster & AsyncDisposable> {
  const own = { dir: await shortTempDir(), dieWithParent: true, temporary: true }
  return disposable(await startCluster({ nats: false, controllers: false, ...options, ...own }))
}

/** Short: unix sockets may lie in it, whose paths have 107 bytes at most. */
export function shortTempDir(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'fl-'))
}

/** How long a server may take to start on a busy machine. One that dies is noticed at once. */
export const STARTS_WITHIN_MS = 120_000

/** Processes in a folder of their own, gone at the end of the block as the servers of startTestNats() are. */
export async function startTestProcesses(): Promise<ProcessGroup & AsyncDisposable> {
  const dir = await shortTempDir()
  const reaper = stopWithThisProcess(dir, { removeDir: true })
  return Object.assign(new ProcessGroup(dir), {
    async [Symbol.asyncDispose]() {
      await stopCluster(dir, { removeDir: true })
      reaper.release()
    },
  })
}

function disposable<T extends { stop(): Promise<void> }>(servers: T): T & AsyncDisposable {
  return Object.assign(servers, { [Symbol.asyncDispose]: () => servers.stop() })
}
