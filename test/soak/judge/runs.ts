import type { Note, Outcome } from '../diary.ts'
import type { Memory } from './leaks.ts'

export interface Run {
  /** Unique; one owner may make several runs of its key. */
  run: string
  key: string
  owner: string
  pid: number
  start: number
  /** First and last moment at which the lease certainly stood. */
  firstHeld?: number
  lastHeld?: number
  end?: number
  outcome?: Outcome
  dueInMs?: number
  result?: 'finished' | 'fenced'
}

export interface Enqueued {
  key: string
  lane: 'high' | 'low'
  from: number
  at: number
}

export interface Diaries {
  runs: Map<string, Run>
  enqueued: Enqueued[]
  memory: Memory[]
  lives: { name: string; pid: number; at: number }[]
}

export const noDiaries = (): Diaries => ({ runs: new Map(), enqueued: [], memory: [], lives: [] })

/** Adds one note; those of one run come in order, those of different processes as they like. */
export function addNote({ runs, enqueued, memory, lives }: Diaries, note: Note): void {
  switch (note.note) {
    case 'up':
      return void lives.push(note)
    case 'enqueued':
      return void enqueued.push(note)
    case 'memory':
      return addMemory(memory, note)
    case 'start': {
      const { run, key, owner, pid, at } = note
      return void runs.set(run, { run, key, owner, pid, start: at })
    }
    case 'held':
    case 'end':
    case 'stored':
      return addToRun(runs.get(note.run), note)
  }
}

/** One entry per life of a process; its notes come one after the other. */
function addMemory(memory: Memory[], { name, pid, heapMiB, residentMiB }: Note & { note: 'memory' }): void {
  const last = memory.at(-1)
  const life = last?.pid === pid ? last : { name, pid, heap: [], resident: [] }
  if (life !== last) memory.push(life)
  life.heap.push(heapMiB)
  life.resident.push(residentMiB)
}

function addToRun(run: Run | undefined, note: Note & { note: 'held' | 'end' | 'stored' }): void {
  if (run === undefined) return
  if (note.note === 'stored') run.result = note.result
  if (note.note === 'held' || (note.note === 'end' && note.held)) {
    run.firstHeld ??= note.at
    run.lastHeld = note.at
  }
  if (note.note !== 'end') return
  run.end = note.at
  run.outcome = note.outcome
  if (note.dueInMs !== undefined) run.dueInMs = note.dueInMs
}

export const runsByKey = ({ runs }: Pick<Diaries, 'runs'>): Map<string, Run[]> =>
  new Map(
    [...Map.groupBy(runs.values(), ({ key }) => key)].map(([key, ofKey]) => [
      key,
      ofKey.toSorted((a, b) => a.start - b.start),
    ]),
  )

/** Two runs of one key, each certain of its lease while the other had it. */
export function overlaps(byKey: ReadonlyMap<string, readonly Run[]>): string[] {
  const found: string[] = []
  for (const runs of byKey.values()) {
    let holder: (Run & { lastHeld: number }) | undefined
    for (const run of runs.filter(isSureOfItsLease).toSorted((a, b) => a.firstHeld - b.firstHeld)) {
      if (holder && run.firstHeld < holder.lastHeld)
        found.push(
          `${run.key}: ${nameOf(run)} had its lease at ${run.firstHeld}, ${nameOf(holder)} until ${holder.lastHeld}`,
        )
      if (holder === undefined || run.lastHeld > holder.lastHeld) holder = run
    }
  }
  return found
}

const nameOf = ({ run, pid }: Run): string => `run ${run} of process ${pid}`

const isSureOfItsLease = (run: Run): run is Run & { firstHeld: number; lastHeld: number } => run.firstHeld !== undefined

/** Accepted enqueues after which no run began that also came to its end under its lease. */
export function lostEnqueues(enqueued: readonly Enqueued[], byKey: ReadonlyMap<string, readonly Run[]>): string[] {
  return enqueued
    .filter(({ key, from }) => !byKey.get(key)?.some((run) => run.start >= from && isComplete(run)))
    .map(
      ({ key, lane, from, at }) => `${key}: enqueued (${lane}) at ${from}, accepted at ${at}, and never run after that`,
    )
}

const isComplete = ({ end, lastHeld, result }: Run): boolean =>
  end !== undefined && lastHeld === end && result !== 'fenced'
