import { viewRuns } from '#events'
import { memoryOf } from '../../bench/bridge-support.ts'
import { percentiles, quantile } from '../../bench/median.ts'
import { until } from '../../support/wait.ts'
import { type Etcd, otherName } from './fill.ts'
import { teamOf } from './function.ts'
import { Edits } from './load.ts'
import { diskMiBOf } from './meter.ts'
import { type Scene, say, startBridge, startDispatcher, timed } from './scene.ts'
import { startLoad } from './under-load.ts'

/** Rates of edits at which the last phase looks for what falls behind first. */
const RAMP = [20, 40, 80, 120, 160, 240]
const RAMP_SECONDS = 40
/** After a start of NATS, the times of edits are told for each of these. */
const WINDOW_SECONDS = 10
const WINDOWS_AFTER_START = 4
/** An edit that takes this long shows that a part has fallen behind. */
const BEHIND_MS = 2000
const HOURS = { timeoutMs: 4 * 3_600_000, leastMs: 1000 }
/** From empty streams until all objects are in EVENTS, and each primary waits for its timer. */
export async function firstList({ size, bridge, dispatcher, js, nats, report }: Scene): Promise<void> {
  const waiting = size.teams * size.primaries
  await timed(report, 'first list', async () => {
    await bridge.logged(isConfigMapList)
    return { bridge: memoryOf(bridge.pid) }
  })
  await timed(report, 'first runs', async () => {
    await until(async () => {
      const [keys, queued] = [await js.count('WORK', 'key.>'), await js.count('WORK', 'work.>')]
      return keys.count >= waiting && queued.count === 0
    }, HOURS)
    return { waiting, dispatcher: memoryOf(dispatcher.pid), bridge: memoryOf(bridge.pid) }
  })
  await reportStreams({ js, nats, report })
}

async function reportStreams({ js, nats, report }: Pick<Scene, 'js' | 'nats' | 'report'>): Promise<void> {
  const streams: Record<string, string> = {}
  for await (const { config, state } of js.admin.streams.list())
    streams[config.name] = `${state.messages} messages, ${Math.round(state.bytes / 2 ** 20)} MiB`
  const servers = nats.names.map((name) => ({
    ...memoryOf(nats.processes.get(name)?.pid ?? 0),
    disk: diskMiBOf(nats.processes.dir, 'nats', name),
  }))
  report('NATS', { streams, servers })
}

/** The load for as many minutes as asked for. Returns whether each edit was followed. */
export async function steady(scene: Scene, etcd: Etcd): Promise<boolean> {
  const { size, report } = scene
  await using load = await startLoad(scene, etcd, { rate: size.rate, edits: size.edits })
  const [arrivals, follows]: [number[], number[]] = [[], []]
  for (let minute = 1; minute <= size.minutes; minute++) {
    const seen = await load.window(60)
    arrivals.push(...seen.arrivals)
    follows.push(...seen.follows)
    say(`minute ${minute}: ${seen.text}`)
  }
  await load.rest()
  report('steady', {
    minutes: size.minutes,
    changes: load.changes.sent,
    edits: load.edits.sent,
    unfollowed: load.edits.unfollowed,
    failed: load.edits.failed,
    'change to EVENTS p50 / p99, ms': percentiles(arrivals),
    'edit p50 / p99, ms': percentiles(follows),
    usage: load.whole(),
  })
  await reportStreams(scene)
  return load.edits.unfollowed === 0 && load.edits.failed === 0
}

/** How long each part takes from its start until an edit is followed. */
export async function startAgain(scene: Scene, etcd: Etcd): Promise<void> {
  const { report, kube, size, js } = scene
  const followed = async () => {
    const stop = new AbortController()
    const edits = new Edits(kube, size)
    const runs = viewRuns(js)
    const watching = edits.watch(runs, await until(() => runs.end()), stop.signal)
    const running = edits.run(() => 5, stop.signal)
    await until(() => edits.takeDelays().length > 0, { timeoutMs: 1_800_000, leastMs: 100 })
    stop.abort()
    await Promise.allSettled([watching, running])
  }
  const stopBridge = async () => {
    scene.bridge.kill('SIGTERM')
    await scene.bridge.exited
  }
  await timed(report, 'bridge starts again', async () => {
    await stopBridge()
    scene.bridge = startBridge(scene)
    await followed()
    return { bridge: memoryOf(scene.bridge.pid) }
  })
  await timed(report, 'API server starts again, bridge lists all objects again', async () => {
    await stopBridge()
    // The API server that starts knows no change from before its start, so the bridge cannot go on where it was.
    await etcd.put([{ namespace: teamOf(0), name: otherName(0) }])
    await scene.cluster.restart('kube-apiserver')
    scene.bridge = startBridge(scene)
    await scene.bridge.logged(isConfigMapList)
    await followed()
    return { bridge: memoryOf(scene.bridge.pid) }
  })
  await timed(report, 'dispatcher starts again', async () => {
    scene.dispatcher.kill('SIGTERM')
    await scene.dispatcher.exited
    scene.dispatcher = startDispatcher(scene)
    await followed()
    return { dispatcher: memoryOf(scene.dispatcher.pid) }
  })
  await natsStartsAgain(scene, etcd)
}

/** From the start of NATS: what edits wait for while all keys run once more, and how long that takes. */
async function natsStartsAgain(scene: Scene, etcd: Etcd): Promise<void> {
  const { nats, js, report, size } = scene
  for (const index of nats.names.keys()) await nats.restart(index)
  await nats.ready()
  await timed(report, 'NATS starts again', async () => {
    await using load = await startLoad(scene, etcd, { rate: size.rate, edits: size.edits })
    const windows: object[] = []
    for (let window = 1; window <= WINDOWS_AFTER_START; window++) {
      const { delays } = await load.window(WINDOW_SECONDS)
      const shown = (times: number[]) => `${percentiles(times, 0)} / ${Math.max(...times).toFixed(0)}`
      windows.push({
        edits: delays.length,
        'queued, ms': shown(delays.map(({ queued }) => queued)),
        'run began, ms': shown(delays.map(({ began }) => began)),
        'run ended, ms': shown(delays.map(({ ended }) => ended)),
      })
    }
    await load.rest()
    const usage = load.whole()
    await until(async () => (await js.count('WORK', 'work.>')).count === 0, HOURS)
    return { 'p50 / p99 / most': windows, unfollowed: load.edits.unfollowed, usage }
  })
}

/** Makes more and more edits until they take seconds. The busiest process then is the part that is slow first. */
export async function ramp(scene: Scene, etcd: Etcd): Promise<void> {
  const { size, report } = scene
  for (const edits of RAMP) {
    await using load = await startLoad(scene, etcd, { rate: size.rate, edits })
    await load.window(5)
    const { arrivals, follows } = await load.window(RAMP_SECONDS)
    report(`ramp ${edits}`, {
      'edits a second': (follows.length / RAMP_SECONDS).toFixed(0),
      'change to EVENTS p50 / p99, ms': percentiles(arrivals),
      'edit p50 / p99, ms': percentiles(follows),
      usage: load.whole(),
    })
    await load.rest()
    if (quantile(follows, 0.5) > BEHIND_MS) return
  }
}

const isConfigMapList = ({ msg, resource }: { msg: string; resource?: unknown }): boolean =>
  msg === 'listed' && resource === 'configmaps.v1'
