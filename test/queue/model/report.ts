import type { Exploration } from './explore.ts'

const numbered = (trace: readonly string[]): string =>
  trace.map((line, index) => `${String(index + 1).padStart(4)}. ${line}`).join('\n')

/** The law that was broken and how one gets there; nothing if all hold. */
export const counterexample = ({ violation }: Exploration): string | undefined =>
  violation && `${violation.law}\n${numbered(violation.trace)}`

export function figures({ states, edges, depth, exhausted }: Exploration): string {
  const of = exhausted ? ' (bound reached, not all)' : ''
  return `${states.toLocaleString('en')} states${of}, ${edges.toLocaleString('en')} moves, depth ${depth}`
}
