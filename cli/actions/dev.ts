import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { type CommonOptions, readConfig } from '#host/config'
import { UsageError, untilStopped } from '#host/exit'
import { openKube } from '#host/kube'
import {
  defaultClusterDir,
  developmentEnvironment,
  ensureDevelopmentCluster,
  type Progress,
  progressOn,
  type WantedNode,
} from '#local'
import { examplesIn, followExamples } from '../dev/examples.ts'
import { runReloading } from '../dev/reloading.ts'

export interface DevOptions {
  function: string[]
  node: WantedNode
  dir?: string
  apply: string[]
}

/** What the command line names instead of the local cluster. */
type Given = Pick<CommonOptions, 'kubeconfig' | 'nats'>

/** Functions under development on a cluster of this machine, started again at each change of their files. */
export async function dev(options: DevOptions, given: Given): Promise<void> {
  const progress = progressOn(process.stderr)
  const { signal } = untilStopped()
  const files = options.function.map((file) => resolve(file))
  if (files.length === 0) throw new UsageError('name the function to work on: fairlead dev -f my-operator.ts')
  const missing = files.find((file) => !existsSync(file))
  if (missing !== undefined) throw new UsageError(`there is no function module ${missing}: give the path of a file`)
  const examples = (await Promise.all(options.apply.map(examplesIn))).flat()
  const env = { ...process.env, ...(await serversFor(options, given, progress, signal)) }
  const functions = files.flatMap((file) => ['-f', file])
  const args = () => ['up', '--install', '--revision', `dev-${Date.now()}`, '--grace-seconds', '2', ...functions]
  const say = (text: string): void => progress.line(text)
  const running = runReloading({ args, env, files, say, signal })
  if (examples.length === 0) return running
  await using kube = await openKube(readConfig(env, {}))
  await Promise.all([running, followExamples(kube, examples, say, signal)])
}

/** A variable of the environment may name a cluster that is not for trying things: only the command line counts. */
async function serversFor(
  { dir, node }: DevOptions,
  { kubeconfig, nats }: Given,
  progress: Progress,
  signal: AbortSignal,
): Promise<Record<string, string>> {
  if (kubeconfig !== undefined && nats !== undefined) return { KUBECONFIG: kubeconfig, NATS_URL: nats }
  if (kubeconfig !== undefined || nats !== undefined)
    throw new UsageError('give both --kubeconfig and --nats, or none of them for a cluster of this machine')
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
  return developmentEnvironment(status, process.env)
}
