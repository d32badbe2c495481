import { ConflictError, type KubeObject } from '#contracts'
import { holdsFinalizer, keepsStatus, PAUSED_ANNOTATION } from '#spec'
import { noting, objectsOf } from './confidential.ts'
import { GoneError } from './errors.ts'
import { fail } from './failure.ts'
import { finalizersBefore, isFinalizing } from './input.ts'
import { finish, isLastPass, type Pass, type Progress, type Reconciled, type Step, step } from './progress.ts'
import { call } from './rounds.ts'
import { conditionPatch, PAUSED, type StatusPatch } from './status.ts'
import type { Observed } from './vocabulary.ts'

/**
 * Begins a pass: checks that the reconciler serves the object, and that the object has the finalizer that it must have.
 */
export function begin(run: Progress, seen: Observed | undefined): Step {
  if (seen === undefined || !isServed(run.of, seen.world.object)) return leave(run)
  const fresh = { external: undefined, rounds: 0, refused: [], standing: [] }
  const pass: Pass = { ...noting(run, objectsOf(seen.world)), ...seen, ...fresh }
  const { of, world } = pass
  const { object } = world
  const isSelected = of.selects(object)
  if (isPaused(object)) return sayPaused(pass, isSelected)
  const finalizers = finalizersBefore(object, of.identity, of.spec, isSelected)
  if (finalizers === undefined) return decideOrLeave(pass)
  return step({ at: 'addingFinalizer', pass }, { do: 'writeFinalizers', object, finalizers })
}

/** Continues when the finalizers are as they must be. */
export function decideOrLeave(pass: Pass): Step {
  const { of, world } = pass
  const isToBeDecided = isFinalizing(world.object, of.identity) ? of.spec.finalize : of.selects(world.object)
  return isToBeDecided ? call(pass) : leave(pass)
}

/** Ends the run, because there is nothing to do. */
export const leave = (run: Progress): Step => finish(run, { kind: 'done' }, { mayLookAgain: !isLastPass(run) })

/** Returns the pass with a second observation, or the step that ends the pass. */
export function lookedAgain(pass: Pass, seen: Observed | undefined): Pass | Step {
  if (seen === undefined || !isServed(pass.of, seen.world.object))
    return fail(pass, { failed: new GoneError('the object was deleted during its run') })
  const { object } = seen.world
  const { identity, selects, spec } = pass.of
  const moved = (why: string): Step => fail(pass, { failed: new ConflictError(why) })
  if (!selects(object) && !isFinalizing(object, identity))
    return moved('the object has left the selection during its run')
  if (isPaused(object)) return moved('the object was paused during its run')
  if (finalizersBefore(object, identity, spec, selects(object)) !== undefined)
    return moved('the finalizers of the object have changed during its run')
  return {
    ...noting(pass, objectsOf(seen.world)),
    external: undefined,
    world: seen.world,
    excess: seen.excess,
    settled: { ...pass.settled, ...seen.settled },
  }
}

function sayPaused(pass: Pass, isSelected: boolean): Step {
  const { object } = pass.world
  const patch = isSelected && keepsStatus(pass.of.spec) ? pausePatch(object, pass.now) : undefined
  if (patch === undefined) return leave(pass)
  return step({ at: 'sayingPaused', pass }, { do: 'writeStatus', object, patch, mayBeDropped: false })
}

/**
 * Whether the reconciler serves the object. An object that is not selected or is being deleted is served only while it
 * waits for the reconciler.
 */
const isServed = ({ identity, selects }: Reconciled, object: KubeObject): boolean =>
  (selects(object) && object.metadata.deletionTimestamp === undefined) || holdsFinalizer(object, identity)

const isPaused = ({ metadata }: KubeObject): boolean => metadata.annotations?.[PAUSED_ANNOTATION] === 'true'

/** Returns the patch that reports the pause on the object. It is the only write to the object during the pause. */
function pausePatch(object: KubeObject, now: Date): StatusPatch | undefined {
  const message = `nothing is written while annotation ${PAUSED_ANNOTATION} is "true"`
  return conditionPatch(object, { type: PAUSED, status: 'True', reason: 'PausedByAnnotation', message }, now)
}
