import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { KubeClient } from '#kube'
import { type Cluster, ensureBinaries, silentProgress } from '#lab'
import { openStreams, type Streams } from '#process/connections'
import { openHistory } from '#process/history'
import { createLogger } from '#process/logging'
import { createRuntime } from '#process/runtime'
import type { Reconciler } from '#sdk'
import { readConfig } from '../../cli/process/config.ts'
import { openKube } from '../../cli/process/kube.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { command } from '../support/command.ts'
import { until } from '../support/wait.ts'

const SDK = JSON.stringify(join(import.meta.dirname, '../../sdk/index.ts'))

/** A function whose object selects its behaviour: `spec.mode`. */
const SITES = `
import { ConfigMap, Deployment, reconciler, resource, Secret, TerminalError, z } from ${SDK}
const Site = resource({ group: 'example.com', version: 'v1', kind: 'Site', plural: 'sites',
  spec: z.object({ mode: z.string().default('ok'), config: z.string().optional() }), status: z.object({ mode: z.string() }) })
const Named = { ...ConfigMap, byName: 'spec.config' }
const ready = { type: 'Ready', status: 'True', reason: 'Done' }
export const site = reconciler({ name: 'site', for: Site, selector: 'site!=no', owns: [ConfigMap, Deployment, Secret], related: [Named],
  backoff: { initialSeconds: 60, maxSeconds: 60 },
  reconcile({ object, related, log }) {
    const { mode, config } = object.spec
    log.info({ mode }, 'decides by the mode')
    const { name } = object.metadata
    const status = { mode }
    if (mode === 'terminal') throw new TerminalError('spec.mode is terminal')
    if (mode === 'error') throw new Error('no route to host')
    if (config !== undefined && related(Named).length === 0)
      return { status, conditions: [{ ...ready, status: 'False', reason: 'NoConfig' }] }
    if (mode === 'deployment') {
      const labels = { app: name }
      const template = { metadata: { labels }, spec: { containers: [{ name: 'web', image: 'wbe' }] } }
      const deployment = Deployment.of({ metadata: { name }, spec: { selector: { matchLabels: labels }, template } })
      return { apply: [deployment], status, conditions: [{ ...ready, status: 'False', reason: 'Starting' }] }
    }
    if (mode === 'retained') {
      const kept = [Secret, ConfigMap].map((kind) => ({ ...kind.of({ metadata: { name: name + '-kept' } }), retain: true }))
      return { apply: kept, status, conditions: [ready] }
    }
    const labels = mode === 'invalid' ? { 'not valid': 'x' } : {}
    const requeue = mode === 'timer' ? { requeueAfter: 3600 } : {}
    return { apply: [ConfigMap.of({ metadata: { name, labels }, data: { mode } })], status, conditions: [ready], ...requeue }
  },
  finalize({ object }) {
    if (object.spec.mode === 'stays') throw new Error('the archive does not answer')
  },
})
`

export interface World extends AsyncDisposable {
  cluster: Cluster
  kube: KubeClient
  streams: Streams
  env: Record<string, string>
  module: string
  bridge: Part
  dispatcher: Part
  /** `fairlead …`; FILE stands for the module. */
  fairlead: (line: string) => Promise<{ stdout: string; stderr: string; code: number | null }>
  /** A line for a shell, of kubectl and fairlead. */
  perform(line: string): Promise<void>
}

interface Part {
  start(): Promise<void>
  stop(): Promise<void>
}

export async function startWorld(): Promise<World> {
  const cluster = await borrowCluster({ nats: true })
  const dir = await mkdtemp(join(tmpdir(), 'fl-explain-'))
  const module = join(dir, 'sites.ts')
  await writeFile(module, SITES)
  const { site } = (await import(module)) as { site: Reconciler }
  const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '' }
  const config = readConfig({ ...env, LOG_LEVEL: 'silent', FAIRLEAD_LEASE_SECONDS: '2' })
  const log = await createLogger(config)
  const kube = await openKube(config)
  const streams = await openStreams(config, kube, 'test', log)
  const kubectl = (await ensureBinaries(['kubectl'], silentProgress))('kubectl')

  function part(parts: { bridge: boolean; dispatch: boolean }): Part {
    let running: { stop: AbortController; own: Streams; over: Promise<void> } | undefined
    return {
      async start() {
        if (running) return
        const own = await openStreams(config, kube, 'test', log)
        const history = openHistory(config, own, { raiseReplicas: false, dropped: () => undefined, log })
        const runtime = createRuntime({
          kube,
          streams: own,
          parts,
          functions: [site],
          apiConcurrency: 10,
          log,
          history,
        })
        const stop = new AbortController()
        running = { stop, own, over: runtime.run(stop.signal, 1000) }
      },
      async stop() {
        running?.stop.abort()
        await running?.over
        await running?.own[Symbol.asyncDispose]()
        running = undefined
      },
    }
  }
  const bridge = part({ bridge: true, dispatch: false })
  const dispatcher = part({ bridge: false, dispatch: true })
  const fairlead = (line: string) => command(line.replace('FILE', module).split(' ').slice(1), env)

  return {
    cluster,
    kube,
    streams,
    env,
    module,
    bridge,
    dispatcher,
    fairlead,
    async perform(line) {
      for (const one of line.split(' && '))
        if (one.startsWith('fairlead bridge')) await bridge.start()
        else if (one.startsWith('fairlead dispatch')) await dispatcher.start()
        else if (one.startsWith('fairlead ')) {
          const { code, stderr } = await fairlead(one)
          if (code !== 0) throw new Error(`${one}: ${stderr}`)
        } else
          await promisify(execFile)('bash', ['-c', one.replace(/^kubectl/, kubectl)], {
            env: { ...process.env, KUBECONFIG: cluster.kubeconfig },
          })
    },
    async [Symbol.asyncDispose]() {
      await dispatcher.stop()
      await bridge.stop()
      await streams[Symbol.asyncDispose]()
      await kube.close()
      await cluster[Symbol.asyncDispose]()
      await rm(dir, { recursive: true, force: true })
    },
  }
}

interface Explained {
  healthy: boolean
  findings: { reason: string; level: string; message: string }[]
  next?: { say: string; command?: string }
}

export async function explained({ fairlead }: Pick<World, 'fairlead'>, what: string): Promise<Explained> {
  const { stdout, stderr } = await fairlead(`fairlead explain ${what} -o json`)
  if (stdout === '') throw new Error(stderr)
  return JSON.parse(stdout) as Explained
}

/** Returns the explanation after the situation has settled. */
export async function explainedAs(world: World, what: string, is: (now: Explained) => boolean): Promise<Explained> {
  let last: Explained | undefined
  try {
    await until(async () => is((last = await explained(world, what))))
  } catch (error) {
    throw new Error(`${what}: ${JSON.stringify(last, null, 2)}`, { cause: error })
  }
  return last!
}
