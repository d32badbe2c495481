import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Nats } from '#lab'
import type { JetStream } from '#nats'
import { enqueueAll, FN, open, openBenchQueue, SLOTS, startWorker } from './queue-support.ts'

/** Seconds from the kill of a worker until the first and the last of its keys run in another process. */
export async function afterWorkerKill(js: JetStream, url: string): Promise<string> {
  const prefix = 'killed'
  const queue = await openBenchQueue(js, prefix)
  const doomed = await startWorker({ url, slots: SLOTS, holds: true })
  await open(doomed, prefix)
  doomed.send('go')
  await enqueueAll(queue, SLOTS)
  while ((await queue.depth(FN)).running < SLOTS) await sleep(20)
  const starts: number[] = []
  const handler = async () => {
    starts.push(performance.now())
    return { kind: 'done' as const }
  }
  const worker = queue.serve({ reconciler: FN, slots: SLOTS, handler })
  const killed = performance.now()
  doomed.kill('SIGKILL')
  await once(doomed, 'exit')
  while (starts.length < SLOTS) await sleep(10)
  await worker.drain(1000)
  const seconds = (at: number | undefined) => (((at ?? 0) - killed) / 1000).toFixed(1)
  return `${seconds(starts[0])} / ${seconds(starts.at(-1))}`
}

/**
 * nats-server is killed under a steady stream of keys: seconds from its return until keys run again, and until those
 * are done that were enqueued or running before.
 */
export async function afterServerKill(js: JetStream, nats: Nats): Promise<string> {
  const queue = await openBenchQueue(js, 'restarted')
  const seen = { enqueued: 0, latestRun: 0 }
  const unfinished = new Set<string>()
  const worker = queue.serve({
    reconciler: FN,
    slots: SLOTS,
    handler: async ({ key }) => {
      seen.latestRun = performance.now()
      await sleep(5)
      unfinished.delete(key)
      return { kind: 'done' }
    },
  })
  const stop = new AbortController()
  const enqueueing = (async () => {
    const calls: Promise<unknown>[] = []
    while (!stop.signal.aborted) {
      const key = `n.s${seen.enqueued++}`
      unfinished.add(key)
      calls.push(queue.enqueue(FN, key))
      await sleep(2)
    }
    await Promise.all(calls)
  })()
  while (seen.enqueued < 500) await sleep(10)
  await nats.restart()
  const back = performance.now()
  const before = new Set(unfinished)
  while (seen.latestRun < back) await sleep(1)
  const again = seen.latestRun - back
  while (before.intersection(unfinished).size > 0) await sleep(5)
  const all = performance.now() - back
  stop.abort()
  await enqueueing
  await worker.drain(2000)
  return `${(again / 1000).toFixed(2)} / ${(all / 1000).toFixed(2)}`
}
