import { setTimeout as sleep } from 'node:timers/promises'
import type { Arena } from './arena.ts'
import { enqueueNoted } from './changes.ts'
import { diaryIn } from './diary.ts'
import type { Remains } from './judge/leaks.ts'
import { FN, STREAM } from './terms.ts'

/** Longer than the janitor needs to find a token twice. */
const IDLE_WITHIN_MS = 150_000
const ENDS_WITHIN_MS = 10_000
/** Keys that are enqueued once more when all is over: a stuck one would not run. */
const LAST_LAP = 100
/** The consumers of the two lanes. */
const CONSUMERS = 2

/** Lets everything come to its end; gives what went wrong. Then nothing but servers and observer is left. */
export async function windDown(arena: Arena): Promise<{ wrong: string[]; remains?: Omit<Remains, 'workerLives'> }> {
  const wrong = await end(arena, arena.enqueuers)
  arena.calm()
  const stuck = await untilIdle(arena)
  if (stuck.length > 0) {
    const listed = stuck.slice(0, 10).join(', ')
    return { wrong: [...wrong, `${stuck.length} messages are left after ${IDLE_WITHIN_MS / 1000} s: ${listed}`] }
  }
  await lastLap(arena)
  wrong.push(...(await untilIdle(arena)).map((subject) => `${subject} is left after a last pass`))
  wrong.push(...(await end(arena, arena.workers)))
  return { wrong, remains: await remainsIn(arena) }
}

async function end({ processes, inHands }: Arena, names: readonly string[]): Promise<string[]> {
  const endOf = async (name: string) => {
    inHands.add(name)
    const process = processes.get(name)
    if (!process?.alive()) return []
    processes.signal(name, 'SIGTERM')
    const late = sleep(ENDS_WITHIN_MS, [`${name} did not end within ${ENDS_WITHIN_MS / 1000} s of SIGTERM`], {
      ref: false,
    })
    return Promise.race([process.exited.then(() => []), late])
  }
  return (await Promise.all(names.map(endOf))).flat()
}

/** Returns the remaining work if the queue does not become idle in time. */
async function untilIdle(arena: Arena): Promise<string[]> {
  const deadline = Date.now() + IDLE_WITHIN_MS
  for (;;) {
    const busy = (await subjectsOf(arena).catch(() => ['nobody knows what'])).filter(isBusy)
    if (busy.length === 0 || Date.now() > deadline) return busy
    await enqueueParked(arena).catch(() => undefined)
    await sleep(500)
  }
}

const isBusy = (subject: string): boolean => subject.split('.')[1] !== 'done'

async function subjectsOf({ js }: Arena): Promise<string[]> {
  const { state } = await js.admin.streams.info(STREAM, { subjects_filter: '>' })
  return Object.keys(state.subjects ?? {})
}

async function enqueueParked({ queue }: Arena): Promise<void> {
  for await (const { key, state } of queue.list({ reconciler: FN }))
    if (state === 'parked') await queue.enqueue(FN, key)
}

async function lastLap({ queue, dir }: Arena): Promise<void> {
  const note = diaryIn(dir, 'last-pass')
  for (let i = 0; i < LAST_LAP; i++) {
    const key = i < 5 ? `hot.${i}` : `last.${i}`
    const lane = i % 2 === 0 ? 'high' : 'low'
    await enqueueNoted(queue, key, lane, note)
  }
}

async function remainsIn(arena: Arena): Promise<Omit<Remains, 'workerLives'>> {
  const [subjects, { state }] = await Promise.all([subjectsOf(arena), arena.js.admin.streams.info(STREAM)])
  const consumers: Remains['consumers'][number][] = []
  for await (const { name, num_pending, num_ack_pending, num_waiting } of arena.js.admin.consumers.list(STREAM))
    consumers.push({ name, pending: num_pending, unacknowledged: num_ack_pending, waitingPulls: num_waiting })
  return { subjects, messages: state.messages, consumers, expectedConsumers: CONSUMERS }
}
