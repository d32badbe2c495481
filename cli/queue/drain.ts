import { setTimeout as sleep } from 'node:timers/promises'
import { demandReconciler } from '#inspect'
import type { WorkQueue } from '#queue'

export interface DrainOptions {
  reconciler: string
  timeoutSeconds: number
}

const EVERY_MS = 200

/** Waits until nothing is queued or running; timers may go on waiting. */
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
    // Its numbers are not of one moment: a key may have passed from one to the other between them.
    if (empty === 2) return `${reconciler}: drained; ${waiting} waiting, ${parked} parked`
    const now = `${reconciler}: ${queued} queued, ${running} running`
    if (empty === 0 && now !== reported) report(now)
    reported = now
    if (performance.now() > end) throw new Error(`not drained after ${timeoutSeconds} s: ${now}`)
    await sleep(EVERY_MS, undefined, { signal })
  }
}
