import {
  asFailingShell,
  asShellExports,
  clusterStatus,
  defaultClusterDir,
  developmentEnvironment,
  ensureDevelopmentCluster,
  progressOn,
  stopCluster,
  type WantedNode,
} from '#lab'
import { table, untilStopped } from '#process/exit'
import type { Print } from '../options.ts'

export interface LocalOptions {
  dir?: string
}
export type LocalUpOptions = LocalOptions & { node: WantedNode }

const dirOf = ({ dir }: LocalOptions): string => dir ?? defaultClusterDir(process.env)

export async function localUp(options: LocalUpOptions): Promise<string> {
  const status = await ensureDevelopmentCluster({
    dir: dirOf(options),
    node: options.node,
    progress: progressOn(process.stderr),
    signal: untilStopped().signal,
  })
  const { apiServer, natsUrl, node } = status.state ?? {}
  const inDir = options.dir === undefined ? '' : ` --dir ${options.dir}`
  return [
    `kube-apiserver ${apiServer}, nats-server ${natsUrl}, node: ${node}; data and logs in ${status.dir}`,
    `Use it:   eval "$(fairlead local env${inDir})"; fairlead up --install -f FILE`,
    `Stop it:  fairlead local down${inDir}`,
  ].join('\n')
}

export async function localDown(options: LocalOptions): Promise<string> {
  const dir = dirOf(options)
  const { processes } = clusterStatus(dir)
  await stopCluster(dir)
  return processes.length === 0 ? `nothing runs in ${dir}` : `stopped ${processes.length} processes of ${dir}`
}

/** Returns the status as text, and whether all servers run. */
export function localStatus(options: LocalOptions & { output: 'table' | 'json' }): { text: string; running: boolean } {
  const status = clusterStatus(dirOf(options))
  if (options.output === 'json') return { text: JSON.stringify(status, null, 2), running: status.running }
  if (status.processes.length === 0)
    return { text: `no local cluster in ${status.dir}: fairlead local up`, running: false }
  const rows = status.processes.map(({ name, pid, alive, log }) => [name, alive ? 'running' : 'dead', String(pid), log])
  return { text: table(['PROCESS', 'STATE', 'PID', 'LOG'], rows), running: status.running }
}

export function localEnv(options: LocalOptions & { output: 'shell' | 'json' }, print: Print): void {
  const status = clusterStatus(dirOf(options))
  try {
    const variables = developmentEnvironment(status, process.env)
    print(options.output === 'json' ? JSON.stringify(variables, null, 2) : asShellExports(variables).trimEnd())
  } catch (error) {
    if (options.output === 'shell') print(asFailingShell(status).trimEnd())
    throw error
  }
}
