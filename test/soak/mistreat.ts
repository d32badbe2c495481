import { randomFrom } from '../support/random.ts'
import { residentMiBOf } from '../support/usage.ts'
import { type Arena, openArena } from './arena.ts'
import { monotonicMs, readDiaries } from './diary.ts'
import { inflictFaults, keepAlive } from './faults.ts'
import type { Fault } from './judge/recovery.ts'
import { addNote, type Diaries, noDiaries } from './judge/runs.ts'
import { judge, type Verdict } from './judge/verdict.ts'
import type { SoakOptions } from './options.ts'
import { LEASE_MS } from './terms.ts'
import { windDown } from './wind-down.ts'

const SHOW_MS = 1000
/** The tolerance of the queue's clocks, and a margin for the time between the diary and the call. */
const CLOCK_TOLERANCE_MS = LEASE_MS / 20 + 50

export interface Progress {
  phase: 'under fire' | 'becoming idle' | 'judging'
  faults: number
  messages: number
}

/** Mistreats everything for so long, or until the signal; then lets the queue become idle, and judges. */
export async function mistreat(
  dir: string,
  { minutes, replicas, seed }: SoakOptions,
  signal: AbortSignal,
  show: (progress: Progress) => void,
): Promise<Verdict> {
  await using arena = await openArena({ dir, replicas, seed })
  const offset = Date.now() - monotonicMs()
  const faults: Fault[] = []
  let phase: Progress['phase'] = 'under fire'
  const showing = setInterval(
    () => show({ phase, faults: faults.length, messages: arena.observer.history.counts.messages }),
    SHOW_MS,
  )
  const keeping = new AbortController()
  const kept = keepAlive(arena, keeping.signal)
  try {
    const enough = AbortSignal.any([signal, AbortSignal.timeout(minutes * 60_000)])
    await inflictFaults(arena, randomFrom(seed), enough, (fault) => faults.push(fault))
    phase = 'becoming idle'
    const { wrong, remains } = await windDown(arena)
    phase = 'judging'
    const diaries = await diariesIn(dir)
    return judge({
      diaries,
      faults,
      wrong,
      survivors: pidsOf(arena),
      serverMiB: arena.nats.names.map((name) => residentMiBOf(arena.processes.get(name)?.pid ?? 0)),
      history: await arena.observer.settle(),
      remains: remains && { ...remains, workerLives: diaries.lives.length },
      wallOf: (monotonic) => monotonic + offset,
      clockToleranceMs: CLOCK_TOLERANCE_MS,
    })
  } finally {
    clearInterval(showing)
    keeping.abort()
    await kept
  }
}

/** Returns the last process of each name: one that dies before the end is started again. */
const pidsOf = ({ processes, workers, enqueuers }: Arena): number[] =>
  [...workers, ...enqueuers].flatMap((name) => processes.get(name)?.pid ?? [])

async function diariesIn(dir: string): Promise<Diaries> {
  const diaries = noDiaries()
  for await (const note of readDiaries(dir)) addNote(diaries, note)
  return diaries
}
