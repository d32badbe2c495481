import { setTimeout as sleep } from 'node:timers/promises'
import { resourceName } from '#contracts'
import { At, at } from '#functions/at'
import { deleteInstalled, type Installed, install } from '#install'
import { isNotFound, type KubeClient, resourcePath } from '#kube'
import { type NodeKind, type Progress, progressOn, releasePorts } from '#lab'
import { type CommonOptions, readConfig, variablesOf } from '#process/config'
import { openStreams, type Streams } from '#process/connections'
import { EXIT, untilStopped } from '#process/exit'
import { openKube } from '#process/kube'
import { createLogger } from '#process/logging'
import { createRuntime, type Runtime } from '#process/runtime'
import { continueByHand, startInBackground } from './demo-by-hand.ts'
import { firstPage, nextPage } from './demo-pages.ts'
import { type DemoServers, demoServers } from './demo-servers.ts'
import {
  coloured,
  idOf,
  type Painter,
  plain,
  type Recorder,
  recordLifeOf,
  type Timeline,
  timelineOn,
} from './demo-timeline.ts'

/** Returns the exit code. */
export function showDemo(
  { keep, node: hasNode }: { keep: boolean; node: boolean },
  given: CommonOptions,
): Promise<number> {
  const env = { ...process.env, ...variablesOf(given) }
  const progress = progressOn(process.stderr)
  return demo({ keep, hasNode, env, progress, out: process.stdout, signal: untilStopped().signal })
}

const PODS = { group: '', version: 'v1', resource: 'pods' }
const SAMPLE = { namespace: 'default', name: 'example-at' }
const PROBE = { namespace: 'default', name: 'fairlead-demo-probe' }
const DUE_IN_MS = 5000
const DONE_WITHIN_MS = 120_000
const GRACE_MS = 5000

/** Milliseconds since the epoch, from a monotonic clock. */
const now = (): number => performance.timeOrigin + performance.now()

const NO_LOG: Partial<Record<NodeKind, string>> = {
  kwok: '(none: KWOK runs no containers)',
  none: '(none: there is no node, and the demo has ended the pod)',
}

interface DemoOptions {
  keep: boolean
  /** False if the demo itself reports the success of the pod. */
  hasNode: boolean
  env: NodeJS.ProcessEnv
  progress: Progress
  out: NodeJS.WriteStream
  signal: AbortSignal
}

/** Shows the life of one At on real servers, from creation to DONE, as a timeline. Returns the exit code. */
async function demo(options: DemoOptions): Promise<number> {
  const onBuild = (again: boolean) => options.progress.line(again ? nextPage : firstPage)
  try {
    for await (const servers of demoServers({ ...options, onBuild })) {
      const code = await demoOn(servers, options)
      if (code !== EXIT.ok) return code
    }
    return EXIT.ok
  } finally {
    releasePorts()
  }
}

async function demoOn(servers: DemoServers, options: DemoOptions): Promise<number> {
  try {
    const code = await showLife(servers, options)
    if (!options.keep || code !== EXIT.ok) return code
    await startInBackground(servers, options.env)
    options.out.write(continueByHand(servers))
    return code
  } finally {
    if (!options.keep) await stopped(servers, options.progress)
  }
}

async function showLife(servers: DemoServers, { keep, env, out, signal, progress }: DemoOptions): Promise<number> {
  // On an existing NATS, the demo uses streams of its own, and deletes them afterwards.
  const prefix = servers.existing.nats && !keep ? { FAIRLEAD_PREFIX: 'demo' } : {}
  const config = readConfig({
    LOG_LEVEL: 'warn',
    ...env,
    ...prefix,
    KUBECONFIG: servers.kubeconfig,
    NATS_URL: servers.natsUrl,
  })
  const log = await createLogger(config)
  await using kube = await openKube(config)
  const installed = await install(kube, [at])
  progress.line(
    `installed on ${kube.host}: ${installed
      .filter(isShown)
      .map(({ kind, name }) => `${kind} ${name}`)
      .join(', ')}`,
  )
  await using streams = await openStreams(config, kube, 'demo', log)

  const paint = out.isTTY ? coloured : plain
  const stop = new AbortController()
  const timeline = timelineOn(out, paint, now)
  const recorder = recordLifeOf(SAMPLE, (told) => timeline.add(told), now)
  const parts = { bridge: true, dispatch: true }
  const runtime = createRuntime({
    kube,
    streams,
    parts,
    functions: [at],
    apiConcurrency: 10,
    log,
    bridgeObserver: recorder.bridge,
    runObserver: recorder.run,
  })
  const running = runtime.run(stop.signal, GRACE_MS)
  const ended = servers.node === 'none' ? endPods(kube, SAMPLE.namespace, stop.signal) : undefined
  try {
    const ready = () => runtime.dispatcher?.serving().includes('at') === true
    while (!ready()) await sleep(20, undefined, { signal })
    if (installed.some(({ result }) => result === 'created')) await watched(kube, runtime, signal)
    timeline.begin()
    return await live(kube, { timeline, recorder }, servers, out, paint, signal)
  } finally {
    timeline.end()
    if (!keep) await removed(kube)
    stop.abort()
    await running
    await ended
    if (!keep) await cleaned(kube, streams, servers, installed)
  }
}

/**
 * Waits until the bridge receives changes of At: for two seconds, a watch of a new CRD may fail or stay silent, which
 * would delay the timeline. An At with a schedule in an hour shows when the watch works.
 */
async function watched(kube: KubeClient, { bridge }: Runtime, signal: AbortSignal): Promise<void> {
  const isSeen = () => bridge?.status().resources.some((one) => one.resource === resourceName(At) && one.lastEventAt)
  const { namespace, name } = PROBE
  const schedule = new Date(Date.now() + 3_600_000).toISOString()
  await kube.create(resourcePath(At, namespace), At.of({ metadata: { ...PROBE }, spec: { schedule, command: 'true' } }))
  try {
    while (!isSeen()) await sleep(20, undefined, { signal })
  } finally {
    await removed(kube, name)
  }
}

async function live(
  kube: KubeClient,
  { timeline, recorder }: { timeline: Timeline; recorder: Recorder },
  servers: DemoServers,
  out: NodeJS.WriteStream,
  paint: Painter,
  signal: AbortSignal,
): Promise<number> {
  await removed(kube)
  const due = new Date(Math.ceil((Date.now() + DUE_IN_MS) / 1000) * 1000)
  const schedule = due.toISOString().replace('.000Z', 'Z')
  const began = now()
  const detail = `${SAMPLE.name}, due at ${schedule}, command echo YAY`
  timeline.add({ at: began, what: 'At created', detail, id: idOf.creation('At', SAMPLE.name) })
  await kube.create(
    resourcePath(At, SAMPLE.namespace),
    At.of({ metadata: { ...SAMPLE }, spec: { schedule, command: 'echo YAY' } }),
  )
  const { phase, resourceVersion } = await done(kube, AbortSignal.any([signal, AbortSignal.timeout(DONE_WITHIN_MS)]))
  signal.throwIfAborted()
  if (phase !== 'DONE') {
    timeline.end()
    out.write(
      `\nThe At is ${phase || 'without a phase'} after ${DONE_WITHIN_MS / 1000} s: kubectl describe at ${SAMPLE.name}; kubectl describe pod ${SAMPLE.name}-pod\n`,
    )
    return EXIT.failed
  }
  const log = NO_LOG[servers.node ?? 'real'] ?? (await podLog(kube))
  timeline.add({ at: now(), what: 'pod log', detail: log, cause: recorder.lastSight('Pod', `${SAMPLE.name}-pod`) })
  const ended = now()
  timeline.add({
    at: ended,
    what: 'DONE',
    detail: `${((ended - due.getTime()) / 1000).toFixed(2)} s after it was due`,
    cause: idOf.version('At', SAMPLE.name, resourceVersion),
  })
  await timeline.explained()
  timeline.end()
  out.write(
    paint(
      'green',
      `\nDONE: one object, one pod, ${((ended - began) / 1000).toFixed(1)} s. A kill -9 would have lost nothing.\n`,
    ),
  )
  return EXIT.ok
}

/** Returns the last observed phase and its version: DONE, or another phase after the time-out. */
async function done(
  kube: KubeClient,
  signal: AbortSignal,
): Promise<{ phase: string; resourceVersion: string | undefined }> {
  let last = { phase: '', resourceVersion: undefined as string | undefined }
  try {
    const watched = kube.watch<ReturnType<typeof At.parse>>(resourcePath(At, SAMPLE.namespace), {
      fieldSelector: `metadata.name=${SAMPLE.name}`,
      signal,
    })
    for await (const event of watched) {
      if (event.type === 'BOOKMARK') continue
      const { status, metadata } = event.object
      last = { phase: status?.phase ?? '', resourceVersion: metadata.resourceVersion }
      if (last.phase === 'DONE') return last
    }
  } catch (error) {
    if (!signal.aborted) throw error
  }
  return last
}

async function podLog(kube: KubeClient): Promise<string> {
  const path = resourcePath(PODS, SAMPLE.namespace, `${SAMPLE.name}-pod`, 'log')
  return (await kube.text(path)).trim()
}

async function removed(kube: KubeClient, name = SAMPLE.name): Promise<void> {
  const path = resourcePath(At, SAMPLE.namespace, name)
  await kube.delete(path, { propagationPolicy: 'Background' }).catch((error) => {
    if (!isNotFound(error)) throw error
  })
}

/** Leaves out accounts and RBAC, which would hide the subject of the demo. */
const isShown = ({ kind }: Installed): boolean => kind === 'CustomResourceDefinition' || kind === 'Reconciler'

async function cleaned(
  kube: KubeClient,
  { js, events, queue }: Streams,
  { existing }: DemoServers,
  installed: Installed[],
): Promise<void> {
  if (existing.kubernetes)
    await deleteInstalled(kube, installed.filter(({ result }) => result === 'created').toReversed())
  if (existing.nats) for (const stream of [events.stream, queue.stream]) await js.admin.streams.delete(stream)
}

async function stopped(servers: DemoServers, progress: Progress): Promise<void> {
  const task = progress.task('stopping the servers')
  await servers.stop()
  task.done()
}

const POD_RESOURCE = { group: '', version: 'v1', resource: 'pods' }
const PAUSE_MS = 100

/** Without a node: sets each pod of the namespace to Succeeded as soon as it exists. Ends with the signal. */
async function endPods(kube: KubeClient, namespace: string, signal: AbortSignal): Promise<void> {
  const pods = resourcePath(POD_RESOURCE, namespace)
  while (!signal.aborted) {
    try {
      for await (const event of kube.watch(pods, { signal })) {
        if (event.type !== 'ADDED') continue
        const { name } = event.object.metadata
        await kube.patch(`${pods}/${name}/status`, { status: { phase: 'Succeeded' } }, 'merge')
      }
    } catch {
      // The pod is deleted, or the watch has ended: list all pods again.
      await sleep(PAUSE_MS)
    }
  }
}
