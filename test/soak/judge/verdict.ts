import { type History, leftOver } from './history.ts'
import { grewIn, type Memory, quantile, type Remains, remainsOf } from './leaks.ts'
import { type Fault, type Recovery, recoveries } from './recovery.ts'
import { type Diaries, lostEnqueues, overlaps, runsByKey } from './runs.ts'
import { armedTooEarly, undisturbed } from './timers.ts'

/** All that a soak has to show. */
export interface Evidence {
  diaries: Diaries
  history: History
  faults: readonly Fault[]
  /** undefined: the queue did not become idle, so there is more than remains. */
  remains: Remains | undefined
  /** Processes that lived to the end. */
  survivors: readonly number[]
  /** Memory of each server in the end. */
  serverMiB: readonly number[]
  /** What was wrong already while it ran. */
  wrong: readonly string[]
  /** Server's time of a diary's. */
  wallOf: (monotonic: number) => number
  clockToleranceMs: number
}

export interface Verdict {
  wrong: string[]
  recovered: Recovery[]
  figures: Record<string, string>
}

/** What follows a server's return for so long is not taken for the usual lateness. */
const SETTLE_MS = 3000

export function judge(evidence: Evidence): Verdict {
  const { diaries, history, faults, remains, wallOf, clockToleranceMs } = evidence
  const byKey = runsByKey(diaries)
  const wrong = [
    ...evidence.wrong,
    ...overlaps(byKey),
    ...lostEnqueues(diaries.enqueued, byKey),
    ...history.wrong,
    ...(remains ? [...leftOver(history), ...remainsOf(remains)] : []),
    ...armedTooEarly(diaries.runs.values(), history, wallOf, clockToleranceMs),
    ...diaries.memory.flatMap((memory) => grewIn(memory) ?? []),
    ...deathsOfTheirOwn(evidence),
  ]
  return { wrong, recovered: recoveries(faults, byKey), figures: figuresOf(evidence) }
}

function deathsOfTheirOwn({ diaries: { lives }, faults, survivors }: Evidence): string[] {
  const explained = new Set([...survivors, ...faults.filter(({ ended }) => ended).map(({ pid }) => pid)])
  return lives.filter(({ pid }) => !explained.has(pid)).map(({ name, pid }) => `${name} (${pid}) ended by itself`)
}

function figuresOf({ diaries, history, faults, wallOf, serverMiB }: Evidence): Record<string, string> {
  const runs = [...diaries.runs.values()]
  const count = (some: readonly unknown[]) => some.length.toLocaleString('en')
  const away = faults.filter(({ ofServer }) => ofServer).map(({ at, over }) => ({ from: wallOf(at), to: wallOf(over) }))
  const late = undisturbed(history.lateness, away, SETTLE_MS)
  return {
    'enqueues accepted': count(diaries.enqueued),
    'runs begun / ended / cut short / fenced': [
      count(runs),
      count(runs.filter(({ end }) => end !== undefined)),
      count(runs.filter(({ end }) => end === undefined)),
      count(runs.filter(({ result }) => result === 'fenced')),
    ].join(' / '),
    'messages in the history / not seen': `${history.counts.messages.toLocaleString('en')} / ${history.missed}`,
    'timers fired / leases that ran out': `${history.counts.fires} / ${history.counts.watchdogs}`,
    'timers that fired although a client had ended them': String(history.crossed),
    'timers late, server well, p50 / p99 / max ms': `${quantile(late, 0.5)} / ${quantile(late, 0.99)} / ${late.at(-1)}`,
    'timers late, all, max ms': String(history.lateness.reduce((most, { ms }) => Math.max(most, ms), 0)),
    'memory of the servers in the end, MiB': serverMiB.map((one) => one.toFixed(0)).join(' / '),
    ...Object.fromEntries(longestLives(diaries.memory).map(memoryOf)),
  }
}

/** Returns the longest life for each name. */
const longestLives = (memory: readonly Memory[]): Memory[] =>
  [...Map.groupBy(memory, ({ name }) => name).values()].flatMap(
    (lives) => lives.toSorted((a, b) => b.heap.length - a.heap.length)[0] ?? [],
  )

const memoryOf = ({ name, heap, resident }: Memory): [string, string] => [
  `memory of ${name} over ${5 * heap.length} s, heap / resident, first / most / last MiB`,
  [heap, resident]
    .map((sizes) => [sizes[0] ?? 0, Math.max(...sizes), sizes.at(-1) ?? 0].map((one) => one.toFixed(0)).join(' / '))
    .join('   '),
]
