import { connectJetStream } from '#nats'
import { openQueue, type WorkQueue } from '#queue'
import { startTestNats } from '../support/servers.ts'
import { silent } from '../support/silent.ts'
import { cpuMsOf } from '../support/usage.ts'

/**
 * `npm run bench reconcilers -- [COUNT…]`: a run of the queue, with more and more Reconcilers in one WORK. Each has two
 * consumers, and nats-server looks at all of them when it stores a record or removes a token. Measured with as many
 * slots of the process as `up` has, and with so few that keys wait for a slot.
 */
const RUNS = 1000
const SLOTS = [1000, 64]
const CONCURRENCY = 256
const IN_FLIGHT = 64
const LEASE_MS = 30_000

const counts = process.argv.length > 2 ? process.argv.slice(2).map(Number) : [1, 10, 100, 300, 1000]
const rows: Record<string, Record<string, string>> = {}
for (const count of counts)
  for (const slots of SLOTS) {
    rows[`${count} Reconcilers, ${slots} slots`] = await measured(count, slots)
    console.table(rows)
  }
process.exit(0)

async function measured(count: number, slots: number): Promise<Record<string, string>> {
  await using nats = await startTestNats()
  await using js = await connectJetStream({ servers: nats.url, name: 'bench', timeoutMs: 30_000 })
  const queue = await openQueue(js, { leaseMs: LEASE_MS, ackWaitMs: LEASE_MS, log: silent, slots })
  const names = Array.from({ length: count }, (_, number) => `r${number}`)
  for (const name of names) await queue.declare(name)
  const pid = nats.processes.get('nats')?.pid ?? 0
  await drained(queue, names, RUNS, 'warm')
  const messages = async () => {
    const answer = await fetch(`${nats.monitoringUrls[0]}/varz`)
    return ((await answer.json()) as { in_msgs: number }).in_msgs
  }
  const sent = await messages()
  const before = { nats: cpuMsOf(pid), own: process.cpuUsage(), at: performance.now() }
  await drained(queue, names, RUNS, 'key')
  const { user, system } = process.cpuUsage(before.own)
  return {
    'runs a second': ((RUNS * 1000) / (performance.now() - before.at)).toFixed(0),
    'messages to NATS for a run': (((await messages()) - sent) / RUNS).toFixed(1),
    'CPU of nats-server for a run, ms': ((cpuMsOf(pid) - before.nats) / RUNS).toFixed(2),
    'CPU of the process for a run, ms': ((user + system) / 1000 / RUNS).toFixed(2),
  }
}

/** Enqueues as many keys, of all Reconcilers in turn, and resolves when each has run. */
async function drained(queue: WorkQueue, names: readonly string[], runs: number, key: string): Promise<void> {
  let left = runs
  const all = Promise.withResolvers<void>()
  const handler = async () => {
    if (--left === 0) all.resolve()
    return { kind: 'done' as const }
  }
  const workers = names.map((reconciler) => queue.serve({ reconciler, slots: CONCURRENCY, handler }))
  for (let from = 0; from < runs; from += IN_FLIGHT)
    await Promise.all(
      Array.from({ length: Math.min(IN_FLIGHT, runs - from) }, (_, index) =>
        queue.enqueue(names[(from + index) % names.length] ?? '', `n.${key}-${from + index}`),
      ),
    )
  await all.promise
  await Promise.all(workers.map((worker) => worker.drain(5000)))
}
