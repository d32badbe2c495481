import type { LogLine } from './fairlead.ts'

export interface RunInterval {
  key: string
  from: number
  /** When its function and writes were over, its lease at an end, or its process dead. */
  to: number
  process: number
  /** Its process died first. */
  cut?: true
}

/**
 * Returns the runs of one process from its log; unfinished runs ended with the process. A run ends before its end is
 * stored: another process may begin the next run as soon as the server has it. A run does not last longer than its
 * lease either: a process that was suspended writes nothing more, whether it logs the end of the run or not.
 */
export function runsOf(logs: readonly LogLine[], process: number, endedAt: number): RunInterval[] {
  const open = new Map<string, { from: number; leaseUntil: number }>()
  const runs: RunInterval[] = []
  for (const { msg, step, key, reconciler, time, leaseUntil } of logs) {
    if (key === undefined || leaseUntil === undefined) continue
    const id = `${reconciler}/${key}`
    const until = Date.parse(leaseUntil)
    const run = open.get(id)
    if (step === 'started') open.set(id, { from: Date.parse(time), leaseUntil: until })
    if (run === undefined) continue
    if (msg === 'lease renewed') run.leaseUntil = until
    if (step !== 'ended') continue
    runs.push({ key: id, from: run.from, to: Math.min(Date.parse(time), until), process })
    open.delete(id)
  }
  for (const [key, { from, leaseUntil }] of open)
    runs.push({ key, from, to: Math.min(leaseUntil, endedAt), process, cut: true })
  return runs
}

/** Runs of one key that began while an earlier one had not ended, each with that one, in whatever processes. */
export function overlaps(runs: readonly RunInterval[]): [RunInterval, RunInterval][] {
  const found: [RunInterval, RunInterval][] = []
  for (const ofKey of Map.groupBy(runs, ({ key }) => key).values()) {
    let longest: RunInterval | undefined
    for (const run of ofKey.toSorted((a, b) => a.from - b.from)) {
      if (longest && run.from < longest.to) found.push([longest, run])
      if (longest === undefined || run.to > longest.to) longest = run
    }
  }
  return found
}
