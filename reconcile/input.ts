import type { Performed, PerformInput, ReadInput, RunInput } from '#contracts'
import { scrubberOf } from './confidential.ts'
import { isFinalizing } from './finalizer.ts'
import { deepFreeze } from './freeze.ts'
import type { Pass } from './progress.ts'
import { toldOf } from './refusals.ts'
import { byKind } from './world.ts'

/** Returns the function's input in this pass, without the state of its external system. */
export function inputOf(pass: Pass): Omit<RunInput, 'external'> {
  const { of, world, attempt, seed, now } = pass
  const { identity, spec } = of
  const owned = world.owned.map((child) => child.object)
  const performed = lastPerformed(pass)
  return {
    object: world.object,
    owned: byKind(spec.owns, owned),
    related: byKind(spec.related, world.related),
    attempt,
    seed,
    now: now.toISOString(),
    finalizing: isFinalizing(world.object, identity),
    ...(pass.refused.length > 0 && { refused: toldOf(pass.refused, scrubberOf(pass)) }),
    ...(performed && { performed }),
  }
}

export const readInput = (pass: Pass): ReadInput => deepFreeze({ ...inputOf(pass), ask: 'read' })

export const performInput = (pass: Pass, effect: PerformInput['effect']): PerformInput =>
  deepFreeze({ ...inputOf(pass), ask: 'perform', effect })

function lastPerformed({ performed }: Pass): Performed | undefined {
  const last = performed.at(-1)
  if (last === undefined) return undefined
  const { effect, result, error } = last
  return { effect, ...(result !== undefined && { result }), ...(error !== undefined && { error }) }
}
