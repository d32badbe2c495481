import type { Run } from './runs.ts'

/** One thing that was done to a process; times of the diaries' clock. */
export interface Fault {
  kind: string
  target: string
  pid: number
  at: number
  /** When the process was whole again: it serves, or goes on. */
  over: number
  ofServer: boolean
  /** That process did not survive it. */
  ended: boolean
}

export interface Recovery {
  kind: string
  times: number
  /** Runs in the hands of the process that the fault ended or took the lease of. */
  runs: number
  /**
   * The time from a fault of a client until its key ran again. For a fault of a server: from its return until any key
   * ran.
   */
  backMs: number[]
  /** The longest time around a server's fault in which no run began anywhere. */
  silentMs?: number[]
}

/** The time after a fault of a server in which its effects may last. */
const AFTERMATH_MS = 5000

export function recoveries(faults: readonly Fault[], byKey: ReadonlyMap<string, readonly Run[]>): Recovery[] {
  const runs = [...byKey.values()].flat().toSorted((a, b) => a.start - b.start)
  const ofPid = Map.groupBy(runs, ({ pid }) => pid)
  const ofServer = (kind: string, same: readonly Fault[]): Recovery => ({
    kind,
    times: same.length,
    runs: 0,
    backMs: same.flatMap(({ over }) => after(over, runs)),
    silentMs: same.map((fault) => silence(fault, runs)),
  })
  const ofWorker = (kind: string, same: readonly Fault[]): Recovery => {
    const cut = same.flatMap((fault) => cutBy(fault, ofPid.get(fault.pid) ?? []).map(({ key }) => ({ key, fault })))
    const backMs = cut.flatMap(({ key, fault }) => after(fault.at, byKey.get(key) ?? []))
    return { kind, times: same.length, runs: cut.length, backMs }
  }
  return [...Map.groupBy(faults, ({ kind }) => kind)].map(([kind, same]) =>
    same.some((fault) => fault.ofServer) ? ofServer(kind, same) : ofWorker(kind, same),
  )
}

/** Runs that were under way at that time and did not come to their end under their lease. */
const cutBy = ({ at, over }: Fault, runs: readonly Run[]): Run[] =>
  runs.filter(({ start, end, result }) => start <= at && (end === undefined || (end >= over && result === 'fenced')))

function after(time: number, runs: readonly Run[]): number[] {
  const next = runs[firstAfter(time, runs)]
  return next ? [next.start - time] : []
}

function silence({ at, over }: Fault, runs: readonly Run[]): number {
  const near = runs.slice(firstAfter(at, runs), firstAfter(over + AFTERMATH_MS, runs))
  const times = [at, ...near.map(({ start }) => start)]
  return times.slice(1).reduce((most, time, before) => Math.max(most, time - (times[before] ?? time)), 0)
}

/** Index of the first run that began later; the runs are in order. */
function firstAfter(time: number, runs: readonly Run[]): number {
  let [low, high] = [0, runs.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((runs[middle] as Run).start > time) high = middle
    else low = middle + 1
  }
  return low
}
