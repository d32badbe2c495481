import type { KubeClient } from '#kube'
import type { Cluster, Nats } from '#lab'
import type { JetStream } from '#nats'
import { type FairleadProcess, startFairlead } from '../../support/fairlead.ts'
import type { Plan } from './fill.ts'

export interface Size extends Plan {
  /** Changes a second of objects that nothing reconciles. */
  rate: number
  /** Edits a second of objects that are reconciled. */
  edits: number
  minutes: number
  replicas: 1 | 3
}

/** Everything that one measurement has started. */
export interface Scene {
  size: Size
  cluster: Cluster
  nats: Nats
  js: JetStream
  kube: KubeClient
  env: Record<string, string>
  functionFile: string
  bridge: FairleadProcess
  dispatcher: FairleadProcess
  report: (what: string, figures: object) => void
}

/** Node.js gives a heap half of the memory limit of a container. The limits are those of the shipped pods, in MiB. */
const heapFor = (limit: number) => ({ NODE_OPTIONS: `--max-old-space-size=${limit / 2}` })

export const startBridge = ({ env }: Pick<Scene, 'env'>): FairleadProcess =>
  startFairlead(['bridge'], { ...env, ...heapFor(512), LOG_LEVEL: 'debug' })

export const startDispatcher = ({ env, functionFile }: Pick<Scene, 'env' | 'functionFile'>): FairleadProcess =>
  startFairlead(['dispatch', '--function', functionFile], { ...env, ...heapFor(1024) })

export const say = (text: string) => void process.stdout.write(`${new Date().toISOString().slice(11, 19)} ${text}\n`)

export async function timed(report: Scene['report'], what: string, act: () => Promise<object>): Promise<void> {
  const began = performance.now()
  const figures = await act()
  report(what, { seconds: Math.round((performance.now() - began) / 1000), ...figures })
}
