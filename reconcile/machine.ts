import { ConflictError, type EventReport, type KubeObject } from '#contracts'
import { holdsFinalizer, keepsStatus, namesOthers, type OwnedResource, PAUSED_ANNOTATION } from '#spec'
import { fingerprint } from './compare.ts'
import { noting, objectsOf } from './confidential.ts'
import { GoneError, gravest, RefusedError } from './errors.ts'
import { limited, performed, unreadable } from './external.ts'
import { end, fail, unreported } from './failure.ts'
import { finalizersBefore, isFinalizing } from './input.ts'
import { type MetadataWrite, metadataTarget } from './metadata.ts'
import { isRetained } from './ownership.ts'
import { statusTarget, type Write } from './plan.ts'
import {
  after,
  finish,
  isLastPass,
  lookAgain,
  observe,
  type Pass,
  type Progress,
  type Reconciled,
  type Step,
  step,
  tell,
} from './progress.ts'
import {
  afterRefusal,
  type FeasiblePlan,
  type RefusedWrite,
  refusedMetadata,
  refusedWrite,
  withoutHeld,
} from './refusals.ts'
import { call, done, endRound, hasRead, returned, standing, writeStage } from './rounds.ts'
import { conditionPatch, PAUSED, type StatusPatch } from './status.ts'
import type { Answer, Ask, Failed, Note, Observed, Written } from './vocabulary.ts'
import { called, withObject, withOwned } from './world.ts'

class UnexpectedAnswerError extends Error {
  override readonly name = 'UnexpectedAnswerError'
  constructor(ask: Ask, answer: Answer) {
    super(`the driver answered ${'did' in answer ? answer.did : 'a failure'} to ${ask.do}`)
  }
}

/**
 * Returns the first step of a run. `attempt`: the number of failed runs of the key since the last success. `random`: 0
 * ≤ x < 1.
 */
export function start(of: Reconciled, { attempt, random }: Pick<Progress, 'attempt' | 'random'>): Step {
  return observe({ of, attempt, random, passes: 0, told: [], confidential: [], performed: [] })
}

/**
 * Returns the step after an answer. Pure: no clock, no randomness, no input or output. A driver does what `ask`
 * requests, until it requests the finish. A driver that stops earlier, because it may not write any more, leaves the
 * run as a crash would.
 */
export function next({ place, ask }: Step, answer: Answer): Step {
  if ('failed' in answer) {
    if (place.at === 'reporting') return unreported(place.pass, answer)
    if (place.at === 'reading') return unreadable(place.pass, answer)
    if (place.at === 'performing' && ask.do === 'perform') return performed(place.pass, place.plan, ask, answer)
    if (place.at === 'writingMetadata' && ask.do === 'writeMetadata')
      return metadataRefused(place.pass, place.plan, ask.write, answer)
    return fail('pass' in place ? place.pass : place.run, answer)
  }
  switch (place.at) {
    case 'observing':
      if (answer.did === 'observe') return begin(place.run, answer.seen)
      break
    case 'sayingPaused':
      if (answer.did === 'writeStatus') return leave(place.pass)
      break
    case 'addingFinalizer':
      if (answer.did === 'writeFinalizers') return addedFinalizer(place.pass, answer.result)
      break
    case 'reading':
      if (answer.did === 'read') return hasRead(place.pass, answer.external)
      if (answer.did === 'limit') return limited(place.pass, answer.afterMs)
      break
    case 'calling':
      if (answer.did === 'call') return returned(place.pass, place.input, answer.returned)
      break
    case 'writing':
      if (answer.did === 'write') return wroteStage(place.pass, place.plan, place.stage, answer.results)
      break
    case 'writingStatus':
      if (answer.did === 'writeStatus' && ask.do === 'writeStatus')
        return wroteStatus(place.pass, place.plan, ask.patch, answer.result)
      break
    case 'writingMetadata':
      if (answer.did === 'writeMetadata' && ask.do === 'writeMetadata')
        return wroteMetadata(place.pass, place.plan, ask.write, answer.result)
      break
    case 'performing':
      if (ask.do === 'perform' && (answer.did === 'perform' || answer.did === 'skip'))
        return performed(place.pass, place.plan, ask, answer)
      break
    case 'deleting':
      if (answer.did === 'delete') return deleted(place.pass, place.plan, answer.result)
      break
    case 'lookingAgain': {
      if (answer.did !== 'observe') break
      const looked = lookedAgain(place.pass, answer.seen)
      return 'ask' in looked ? looked : endRound(looked, place.plan)
    }
    case 'releasing':
      if (answer.did === 'writeFinalizers') return released(place.pass, answer.result)
      break
    case 'reporting':
      if (answer.did === 'writeStatus') return end(place.pass, place.finish, place.holdMs)
      break
    case 'holding':
      if (answer.did === 'hold') return end(place.run, place.finish, 0)
      break
    case 'finishing':
      if (answer.did === 'finish') return observe(place.run)
      break
  }
  throw new UnexpectedAnswerError(ask, answer)
}

/**
 * Begins a pass: checks that the reconciler serves the object, and that the object has the finalizer that it must have.
 */
function begin(run: Progress, seen: Observed | undefined): Step {
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
function decideOrLeave(pass: Pass): Step {
  const { of, world } = pass
  const isToBeDecided = isFinalizing(world.object, of.identity) ? of.spec.finalize : of.selects(world.object)
  return isToBeDecided ? call(pass) : leave(pass)
}

/** Ends the run, because there is nothing to do. */
const leave = (run: Progress): Step => finish(run, { kind: 'done' }, { mayLookAgain: !isLastPass(run) })

/** Returns the pass with a second observation, or the step that ends the pass. */
function lookedAgain(pass: Pass, seen: Observed | undefined): Pass | Step {
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

/** Continues after the writes of one stage. A refused write does not stop the others. */
function wroteStage(pass: Pass, plan: FeasiblePlan, stage: number, results: readonly (Written | Failed)[]): Step {
  const writes = plan.stages[stage] ?? []
  const notes: Note[] = []
  const refused: RefusedWrite[] = []
  const failures: Failed[] = []
  const events: EventReport[] = []
  const written: { resource: OwnedResource; before: KubeObject; after: KubeObject | undefined }[] = []
  const learned: [target: string, value: string][] = []
  for (const [index, write] of writes.entries()) {
    const result = results[index]
    if (result === undefined) continue
    if ('failed' in result) {
      if (result.failed instanceof RefusedError) refused.push(refusedWrite(write, result.failed))
      else failures.push(result)
      continue
    }
    written.push({ resource: write.resource, before: write.object, after: result.object })
    events.push(...eventsOf(write, result))
    learned.push(...settledBy(write, result))
  }
  const world = withOwned(pass.world, written)
  const settled = { ...pass.settled, ...Object.fromEntries(learned) }
  const told = withoutHeld(
    pass.refused,
    written.map(({ before }) => before),
  )
  notes.push(...learned.map(([target, value]) => ({ note: 'settled' as const, target, value })))
  const next = refused.length === 0 ? plan : afterRefusal(plan, refused, stage + 1)
  const found = results.flatMap((result) => ('object' in result && result.object ? [result.object] : []))
  const seen = noting({ ...pass, world, settled, refused: told }, found)
  const [round, news] = tell(standing(seen, next), world.object, events)
  notes.push(...news)
  if (failures.length > 0) return after(notes, fail(round, gravest(failures)))
  const isOld = results.some((result) => 'isOld' in result && result.isOld)
  return after(notes, isOld ? lookAgain(round, next) : writeStage(round, next, stage + 1))
}

/**
 * Continues after labels and annotations could not be written. A refusal does not stop the run: the function decides
 * again, with the refusal in its input.
 */
function metadataRefused(pass: Pass, plan: FeasiblePlan, write: MetadataWrite, failure: Failed): Step {
  const { failed: error } = failure
  if (!(error instanceof RefusedError)) return fail(pass, failure)
  const next = afterRefusal(plan, [refusedMetadata(write, error)], plan.stages.length)
  return endRound(standing(pass, next), next)
}

/** Returns the Events of a write for users of the primary. */
function eventsOf(write: Write, { adopted }: Written): EventReport[] {
  if (adopted !== undefined) return [{ type: 'Normal', reason: 'Adopted', message: adopted }]
  if (write.verb !== 'delete' || !write.isPruned || !isRetained(write.object)) return []
  const message = `${called(write.object)} was retained, and was deleted because the function no longer returns it`
  return [{ type: 'Normal', reason: 'Pruned', message }]
}

/** An applied object needs no apply of the same content while it has the version after this apply. */
function settledBy(write: Write, { object, isFound }: Written): [target: string, value: string][] {
  if (write.verb !== 'apply' || isFound || object?.metadata.uid === undefined) return []
  return [[object.metadata.uid, `${object.metadata.resourceVersion} ${write.fingerprint}`]]
}

function wroteStatus(pass: Pass, plan: FeasiblePlan, patch: StatusPatch, result: Written | 'dropped'): Step {
  if (result === 'dropped') {
    const moved = new ConflictError('the status was overtaken by a change before it was written')
    return after([{ note: 'dropped' }], fail(pass, { failed: moved }))
  }
  const { object } = pass.world
  const { resourceVersion } = object.metadata
  const isUnchanged = result.object?.metadata.resourceVersion === resourceVersion
  const target = statusTarget(object)
  const value = `${resourceVersion} ${fingerprint(patch.status)}`
  const settled = isUnchanged ? { ...pass.settled, [target]: value } : pass.settled
  const notes: Note[] = isUnchanged ? [{ note: 'settled', target, value }] : []
  return after(notes, goOn({ ...pass, settled }, plan, result))
}

function wroteMetadata(pass: Pass, plan: FeasiblePlan, { fingerprint }: MetadataWrite, result: Written): Step {
  const target = metadataTarget(pass.world.object)
  const value = `${result.object?.metadata.resourceVersion} ${fingerprint}`
  const settled = { ...pass.settled, [target]: value }
  return after([{ note: 'settled', target, value }], goOn({ ...pass, settled }, plan, result))
}

/**
 * Continues after the deletion. An object without finalizers is gone. Another object is being deleted, and is finalized
 * now if it waits for this reconciler.
 */
function deleted(pass: Pass, plan: FeasiblePlan, result: Written): Step {
  const isWaiting = result.object !== undefined && isFinalizing(result.object, pass.of.identity)
  if (result.isOld || isWaiting) return goOn(pass, plan, result)
  const left = present(pass, result)
  const [told, notes] = tell(left, left.world.object, plan.events)
  return after(notes, done(told))
}

/** Continues after a write of the primary. If it now names other related objects, the run observes again. */
function goOn(pass: Pass, plan: FeasiblePlan, result: Written): Step {
  const written = present(pass, result)
  const isElsewhere = namesOthers(pass.of.spec.related, pass.world.object, written.world.object)
  return result.isOld || isElsewhere ? lookAgain(written, plan) : endRound(written, plan)
}

function addedFinalizer(pass: Pass, result: Written): Step {
  return result.isOld ? movedMeanwhile(pass) : decideOrLeave(present(pass, result))
}

function released(pass: Pass, result: Written): Step {
  return result.isOld ? movedMeanwhile(pass) : done(present(pass, result))
}

const movedMeanwhile = (pass: Pass): Step =>
  fail(pass, { failed: new ConflictError('the object was changed while its finalizers were written') })

const present = (pass: Pass, { object }: Written): Pass =>
  object === undefined ? pass : { ...pass, world: withObject(pass.world, object) }
