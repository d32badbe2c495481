import { setTimeout as sleep } from 'node:timers/promises'
import type { WorkQueue } from '#queue'
import { monotonicMs, type Note } from './diary.ts'
import { FN } from './terms.ts'

const HOT_KEYS = 5
const KEYS_AT_A_TIME = 60
const AGE_MS = 3000
const BURST = 100

export interface Changing {
  queue: WorkQueue
  note: (note: Note) => void
  random: () => number
  /** Mean pause between two changes. */
  pauseMs: number
}

/**
 * Changes keys until the signal, without waiting for one to be accepted before the next; returns when all are. Some keys
 * are hot for ever; most belong to a few seconds and are never touched again, so that no later change hides a lost one.
 */
export async function changeKeys({ queue, note, random, pauseMs }: Changing, signal: AbortSignal): Promise<void> {
  const underWay = new Set<Promise<void>>()
  const pick = (count: number) => Math.floor(count * random())
  while (!signal.aborted) {
    await sleep(2 * pauseMs * random())
    const changes = random() < 0.002 ? BURST : 1
    for (let i = 0; i < changes; i++) {
      const ofNow = `of${Math.floor(monotonicMs() / AGE_MS)}.${pick(KEYS_AT_A_TIME)}`
      const key = random() < 0.2 ? `hot.${pick(HOT_KEYS)}` : ofNow
      const work = enqueueNoted(queue, key, random() < 0.7 ? 'high' : 'low', note).finally(() => underWay.delete(work))
      underWay.add(work)
    }
  }
  await Promise.all(underWay)
}

export async function enqueueNoted(
  queue: WorkQueue,
  key: string,
  lane: 'high' | 'low',
  note: (note: Note) => void,
): Promise<void> {
  const from = monotonicMs()
  await queue.enqueue(FN, key, { lane })
  note({ note: 'enqueued', from, at: monotonicMs(), key, lane })
}
