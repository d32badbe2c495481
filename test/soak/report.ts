import { median } from './judge/leaks.ts'
import type { Verdict } from './judge/verdict.ts'

export interface Circumstances {
  seed: number
  replicas: 1 | 3
  seconds: number
  interrupted: boolean
  /** Kinds of faults that this machine cannot have, and why. */
  notHad: readonly string[]
  /** Where everything is, if something was wrong. */
  evidence: string | undefined
}

const MOST_LISTED = 20

/** One page. */
export function reportOf({ wrong, recovered, figures }: Verdict, about: Circumstances): string {
  const { seed, replicas, seconds, interrupted, notHad, evidence } = about
  const lines = [
    `Soak, ${replicas === 1 ? 'one server' : 'three servers'}, seed ${seed}, ${seconds.toFixed(0)} s${interrupted ? ' (interrupted)' : ''}`,
    '',
    ...table(Object.entries(figures)),
    '',
    ...table([
      ['fault', 'times', 'runs cut', 'back after ms, median / longest', 'no run began for ms, median / longest'],
      ...recovered.map(({ kind, times, runs, backMs, silentMs = [] }) => [
        kind,
        String(times),
        String(runs),
        medianAndMost(backMs),
        medianAndMost(silentMs),
      ]),
    ]),
    ...notHad.map((what) => `not had here: ${what}`),
    '',
    ...endOf(wrong, evidence),
  ]
  return `${lines.join('\n')}\n`
}

/** `evidence`: where everything is, if something was wrong. */
export const endOf = (wrong: readonly string[], evidence: string | undefined): string[] => [
  ...(wrong.length === 0 ? ['Clean: nothing lost, doubled, early or left behind.'] : listOf(wrong)),
  ...(evidence ? [`Everything is kept in ${evidence}`] : []),
]

const medianAndMost = (times: readonly number[]): string =>
  times.length === 0 ? '' : `${median(times).toFixed(0)} / ${Math.max(...times).toFixed(0)}`

function listOf(wrong: readonly string[]): string[] {
  const listed = wrong.slice(0, MOST_LISTED).map((what) => `- ${what}`)
  const more = wrong.length - listed.length
  return [`${wrong.length} VIOLATION(S)`, ...listed, ...(more > 0 ? [`  and ${more} more`] : [])]
}

export function table(rows: readonly (readonly string[])[]): string[] {
  const widths = rows.reduce<number[]>(
    (most, row) => row.map((cell, column) => Math.max(cell.length, most[column] ?? 0)),
    [],
  )
  return rows.map((row) =>
    row
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
      .join('  '),
  )
}
