import { ConflictError, type EventReport, type KubeObject } from '#contracts'
import { namesOthers, type OwnedResource } from '#spec'
import { noting } from './confidential.ts'
import { gravest } from './consequence.ts'
import { fingerprint } from './covers.ts'
import { RefusedError } from './errors.ts'
import { fail } from './failure.ts'
import { isFinalizing } from './input.ts'
import { type MetadataWrite, metadataTarget } from './metadata.ts'
import { decideOrLeave } from './observed.ts'
import { isRetained } from './ownership.ts'
import { statusTarget, type Write } from './plan.ts'
import { after, lookAgain, type Pass, type Step, tell } from './progress.ts'
import {
  afterRefusal,
  type FeasiblePlan,
  type RefusedWrite,
  refusedMetadata,
  refusedWrite,
  withoutHeld,
} from './refusals.ts'
import { done, endRound, standing, writeStage } from './rounds.ts'
import type { StatusPatch } from './status.ts'
import type { Failed, Note, Written } from './vocabulary.ts'
import { called, withObject, withOwned } from './world.ts'

/** Continues after the writes of one stage. A refused write does not stop the others. */
export function wroteStage(
  pass: Pass,
  plan: FeasiblePlan,
  stage: number,
  results: readonly (Written | Failed)[],
): Step {
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
export function metadataRefused(pass: Pass, plan: FeasiblePlan, write: MetadataWrite, failure: Failed): Step {
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

export function wroteStatus(pass: Pass, plan: FeasiblePlan, patch: StatusPatch, result: Written | 'dropped'): Step {
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

export function wroteMetadata(pass: Pass, plan: FeasiblePlan, { fingerprint }: MetadataWrite, result: Written): Step {
  const target = metadataTarget(pass.world.object)
  const value = `${result.object?.metadata.resourceVersion} ${fingerprint}`
  const settled = { ...pass.settled, [target]: value }
  return after([{ note: 'settled', target, value }], goOn({ ...pass, settled }, plan, result))
}

/**
 * Continues after the deletion. An object without finalizers is gone. Another object is being deleted, and is finalized
 * now if it waits for this reconciler.
 */
export function deleted(pass: Pass, plan: FeasiblePlan, result: Written): Step {
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

export function addedFinalizer(pass: Pass, result: Written): Step {
  return result.isOld ? movedMeanwhile(pass) : decideOrLeave(present(pass, result))
}

export function released(pass: Pass, result: Written): Step {
  return result.isOld ? movedMeanwhile(pass) : done(present(pass, result))
}

const movedMeanwhile = (pass: Pass): Step =>
  fail(pass, { failed: new ConflictError('the object was changed while its finalizers were written') })

const present = (pass: Pass, { object }: Written): Pass =>
  object === undefined ? pass : { ...pass, world: withObject(pass.world, object) }
