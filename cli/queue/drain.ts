import { setTimeout as sleep } from 'node:timers/promises'
import { demandReconciler } from '#inspect/keys'
import type { WorkQueue } from '#queue'

export interface DrainOptions {
  reconciler: string
  timeoutSeconds: number
}

const EVERY_MS = 200

/** Waits until no key is queued or running. Timers may remain. */
export async function untilDrained(
  queue: WorkQueue,
  { reconciler, timeoutSeconds }: DrainOptions,
  signal: AbortSignal,
  report: (text: string) => void,
): Promise<string> {
  await demandReconciler(queue, reconciler)
  const end = performance.now() + timeoutSeconds * 1000
  let empty = 0
  let reported = ''
  for (;;) {
    const { queued, running, waiting, parked } = await queue.depth(reconciler)
    empty = queued + running === 0 ? empty + 1 : 0
    // The counts are not a snapshot: a key may have changed its state between them. So two empty results are required.
    if (empty === 2) return `${reconciler}: drained; ${waiting} waiting, ${parked} parked`
    const now = `${reconciler}: ${queued} queued, ${running} running`
    if (empty === 0 && now !== reported) report(now)
    reported = now
    if (performance.now() > end) throw new Error(`not drained after ${timeoutSeconds} s: ${now}`)
    await sleep(EVERY_MS, undefined, { signal })
  }
}
