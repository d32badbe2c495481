import { setTimeout as sleep } from 'node:timers/promises'
import { viewRuns } from '#events'
import { Arrivals, delaysOf } from '../../bench/bridge-changes.ts'
import { percentiles } from '../../bench/median.ts'
import { until } from '../../support/wait.ts'
import type { Etcd } from './fill.ts'
import { teamOf } from './function.ts'
import { Changes, Edits, SAMPLED_TEAM } from './load.ts'
import { Meter, usageText } from './meter.ts'
import type { Scene } from './scene.ts'

/** Changes and edits at these rates, until the end of the block, and what they show. */
export async function startLoad(
  { size, kube, js, cluster, nats, ...scene }: Scene,
  etcd: Etcd,
  rates: { rate: number; edits: number },
) {
  const stop = new AbortController()
  const idle = new AbortController()
  const changes = new Changes(etcd, size)
  const edits = new Edits(kube, size)
  const processes = [
    ...['etcd', 'kube-apiserver'].map((name) => ({ name, pid: () => cluster.processes.get(name)?.pid ?? 0 })),
    ...nats.names.map((name) => ({ name, pid: () => nats.processes.get(name)?.pid ?? 0 })),
    ...(['bridge', 'dispatcher'] as const).map((name) => ({ name, pid: () => scene[name].pid })),
    { name: 'this test', pid: () => process.pid },
  ]
  const runs = viewRuns(js)
  const after = await until(() => runs.end())
  const [meter, whole] = [new Meter(processes), new Meter(processes)]
  meter.take()
  whole.take()
  const arrivals = new Arrivals(js, teamOf(SAMPLED_TEAM))
  const watching = edits.watch(runs, after, stop.signal)
  const running = [changes.run(() => rates.rate, idle.signal), edits.run(() => rates.edits, idle.signal)]
  return {
    changes,
    edits,
    whole: () => usageText(whole.take()),
    async window(seconds: number) {
      const before = { changes: changes.sent, edits: edits.sent }
      arrivals.take()
      edits.takeDelays()
      await Promise.race([sleep(seconds * 1000), ...running])
      const arrived = delaysOf(arrivals.take())
      const delays = edits.takeDelays()
      const follows = delays.map(({ ended }) => ended)
      const text =
        `${((changes.sent - before.changes) / seconds).toFixed(0)} changes/s, in EVENTS after ${percentiles(arrived)} ms (p50 / p99); ` +
        `${((edits.sent - before.edits) / seconds).toFixed(0)} edits/s, followed after ${percentiles(follows)} ms, ${edits.unfollowed} open; ` +
        usageText(meter.take())
      return { arrivals: arrived, delays, follows, text }
    },
    /** Ends the load, and waits until each edit is followed. */
    async rest() {
      idle.abort()
      await Promise.all(running)
      await until(() => edits.unfollowed === 0, { timeoutMs: 120_000, leastMs: 100 }).catch(() => undefined)
    },
    async [Symbol.asyncDispose]() {
      idle.abort()
      stop.abort()
      await Promise.allSettled([...running, watching, arrivals[Symbol.asyncDispose]()])
    },
  }
}
