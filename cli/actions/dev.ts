import { existsSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { type CommonOptions, readConfig } from '#host/config'
import { UsageError, untilStopped } from '#host/exit'
import { openKube } from '#host/kube'
import {
  defaultClusterDir,
  developmentEnvironment,
  ensureDevelopmentCluster,
  type Progress,
  progressOn,
  startNats,
  type WantedNode,
  withTask,
} from '#local'
import { openConsole } from '../console/open.ts'
import { examplesIn, followExamples } from '../dev/examples.ts'
import { runReloading } from '../dev/reloading.ts'

export interface DevOptions {
  function: string[]
  node: WantedNode
  dir?: string
  apply: string[]
  console: boolean
  open: boolean
}

/** Servers that the command line names instead of the local cluster. */
type Given = Pick<CommonOptions, 'kubeconfig' | 'context' | 'nats'>

/** Runs functions under development on a cluster of this machine, and restarts them at each change of their files. */
export async function dev(options: DevOptions, given: Given): Promise<void> {
  const progress = progressOn(process.stderr)
  const { signal } = untilStopped()
  const files = options.function.map((file) => resolve(file))
  if (files.length === 0) throw new UsageError('name the function to work on: fairlead dev -f my-operator.ts')
  const missing = files.find((file) => !existsSync(file))
  if (missing !== undefined) throw new UsageError(`there is no function module ${missing}: give the path of a file`)
  const examples = (await Promise.all(options.apply.map(examplesIn))).flat()
  await using servers = await serversFor(options, given, progress, signal)
  const env = { ...process.env, ...servers.env }
  const functions = files.flatMap((file) => ['-f', file])
  const context = given.context === undefined ? [] : ['--context', given.context]
  const args = () => [
    ...context,
    'up',
    '--install',
    '--revision',
    `dev-${Date.now()}`,
    '--grace-seconds',
    '2',
    ...functions,
  ]
  const say = (text: string): void => progress.line(text)
  const settings = readConfig(env, { ...(given.context !== undefined && { context: given.context }) })
  await using served = options.console
    ? await openConsole(settings, { allowWrites: true, function: files, env })
    : undefined
  if (served) say(`console: ${served.address}`)
  if (options.open) served?.openBrowser()
  const running = runReloading({ args, env, files, say, signal })
  if (examples.length === 0) return running
  await using kube = await openKube(settings)
  await Promise.all([running, followExamples(kube, examples, say, signal)])
}

interface Servers extends AsyncDisposable {
  env: Record<string, string>
}

/** Only the command line may name other servers: KUBECONFIG and NATS_URL may name a production cluster. */
async function serversFor(
  options: DevOptions,
  given: Given,
  progress: Progress,
  signal: AbortSignal,
): Promise<Servers> {
  const { kubeconfig, context, nats } = given
  if (kubeconfig === undefined && (nats ?? context) !== undefined)
    throw new UsageError('--nats and --context are for a cluster that is there: give --kubeconfig too')
  if (kubeconfig === undefined) return localServers(options, progress, signal)
  if (nats !== undefined)
    return { env: { KUBECONFIG: kubeconfig, NATS_URL: nats }, [Symbol.asyncDispose]: async () => {} }
  const dir = await mkdtemp(join(tmpdir(), 'fl-'))
  const started = await withTask(progress, 'nats-server', () =>
    startNats({ dir, progress, dieWithParent: true, temporary: true }),
  )
  progress.line(`NATS_URL=${started.url}, as long as this command runs`)
  return { env: { KUBECONFIG: kubeconfig, NATS_URL: started.url }, [Symbol.asyncDispose]: () => started.stop() }
}

/** The local cluster, which continues after the command. */
async function localServers({ dir, node }: DevOptions, progress: Progress, signal: AbortSignal): Promise<Servers> {
  const status = await ensureDevelopmentCluster({
    dir: dir ?? defaultClusterDir(process.env),
    node,
    progress,
    signal,
  })
  const inDir = dir === undefined ? '' : ` --dir ${dir}`
  progress.line(
    `kubectl and nats use this cluster after: eval "$(fairlead local env${inDir})"; it stays until: fairlead local down${inDir}`,
  )
  return { env: developmentEnvironment(status, process.env), [Symbol.asyncDispose]: async () => {} }
}
