import { ConflictError, type EventReport, type KubeObject, type RunInput, TerminalError } from '#contracts'
import type { Finish } from '#queue/terms'
import {
  finalizersWithout,
  holdsFinalizer,
  keepsStatus,
  namesOthers,
  PAUSED_ANNOTATION,
  patchedBy,
  patchRecord,
  patchRecordOf,
  relationsOf,
} from '#spec'
import { sendActs } from './acting.ts'
import { waitingActs } from './acts.ts'
import { fingerprint, sameJson } from './compare.ts'
import { contentsReturned, noteConfidential, noteObserved } from './confidential.ts'
import { GoneError, gravest, notGranted, RefusedError, UnsettledError } from './errors.ts'
import { perform, read } from './external.ts'
import { fail, refusalOf } from './failure.ts'
import { type FieldsWrite, fieldsId, giveBackAll, isGivingBack, NO_PROGRESS } from './fields.ts'
import { deepFreeze, finalizersBefore, inputOf, isFinalizing } from './input.ts'
import type { MetadataWrite } from './metadata.ts'
import { fieldsTarget, metadataTarget, statusTarget } from './no-ops.ts'
import { type PlainOutcome, parseOutcome, timerIn } from './outcome.ts'
import { isRetained } from './ownership.ts'
import { nextLookOf, plan, plannedStatus, requeueOf, type Write } from './plan.ts'
import {
  type Asking,
  ask,
  attempt,
  type End,
  ends,
  endsNow,
  FailedPass,
  failed,
  isLastPass,
  noteNoOp,
  type Pass,
  type Reconciled,
  type Run,
  type RunStart,
  tellEvents,
  tellGauges,
  tellReports,
} from './progress.ts'
import {
  addRefused,
  afterRefusal,
  type FeasiblePlan,
  type RefusedWrite,
  refusedFields,
  refusedMetadata,
  refusedWrite,
  waitingAct,
  withoutBlocked,
  withoutRefused,
} from './refusals.ts'
import { conditionPatch, PAUSED, type StatusPatch } from './status.ts'
import type { Failed, Observed, Written } from './vocabulary.ts'
import { called, withObject, withOwned, withPatched } from './world.ts'

/**
 * The number of decisions in one pass, each on the result of the one before, before the function counts as one that
 * never settles.
 */
const MAX_ROUNDS = 8
/** The number of places in an order whose first round begins the count again, if the order has not more objects. */
const MAX_PLACES = 100
/** The pause after a pass that has performed effects in all its rounds. */
const PAUSE_MS = 1000

/**
 * One run of one object. It yields what it asks of its driver, takes each answer, and returns how the run ends. It
 * depends on nothing but the answers: it reads no clock, draws no random number, and sends nothing. A driver that stops
 * earlier, because it may not write any more, leaves the run as a crash would.
 */
export function* run(of: Reconciled, start: RunStart): Asking<Finish> {
  const run: Run = { of, ...start, passes: 0, told: new Set(), confidential: [], performed: [] }
  let pass: Pass | undefined
  for (;;) {
    run.passes++
    let end: End
    try {
      const { seen } = yield* ask({ do: 'observe', begins: true })
      pass = seen === undefined || !isServed(of, seen.world.object) ? undefined : begin(run, seen)
      end = pass === undefined ? ends(run, { kind: 'done' }) : yield* reconcile(pass)
      if (end !== 'again') tellGauges(run, pass, end.finish)
    } catch (error) {
      if (!(error instanceof FailedPass)) throw error
      end = yield* fail(run, pass, error.failure)
    }
    if (end === 'again') continue
    const { changed } = yield* ask({ do: 'finish', finish: end.finish })
    if (!(changed && end.mayPassAgain)) return end.finish
  }
}

/**
 * Whether the reconciler serves the object. An object that is not selected or is being deleted is served only while it
 * waits for the reconciler.
 */
const isServed = ({ identity, selects, spec }: Reconciled, object: KubeObject): boolean =>
  holdsFinalizer(object, identity) ||
  (selects(object) && (object.metadata.deletionTimestamp === undefined || isFinalizing(object, identity, spec)))

function begin(run: Run, seen: Observed): Pass {
  noteObserved(run, seen.world)
  const waiting = waitingActs(run.of.spec, seen.world, seen.noOps, seen.now)
  const refused = waiting.map(({ object, waits }) => waitingAct(object, waits))
  return { run, unread: undefined, ...seen, external: undefined, refused, progress: NO_PROGRESS, unresolved: [] }
}

/** One pass: the function decides on an object that is not paused, and that has the finalizer that it must have. */
function* reconcile(pass: Pass): Asking<End> {
  const { run, world, now } = pass
  const { identity, spec, selects } = run.of
  const { object } = world
  const isSelected = selects(object)
  if (isPaused(object)) {
    const patch = isSelected && keepsStatus(spec) ? pausePatch(object, now) : undefined
    if (patch !== undefined) yield* ask({ do: 'writeStatus', object, patch, mayBeDropped: false })
    return ends(run, { kind: 'done' })
  }
  if (isGivingBack(object, identity) || (!isSelected && patchedBy(object, identity).length > 0)) yield* giveBack(pass)
  const finalizers = finalizersBefore(pass.world.object, identity, spec, isSelected)
  if (finalizers !== undefined) yield* writeFinalizers(pass, finalizers)
  const { object: present } = pass.world
  const isGoing = present.metadata.deletionTimestamp !== undefined
  const isToBeDecided = isGoing ? spec.finalize && isFinalizing(present, identity, spec) : selects(present)
  return isToBeDecided ? yield* rounds(pass) : ends(run, { kind: 'done' })
}

const isPaused = ({ metadata }: KubeObject): boolean => metadata.annotations?.[PAUSED_ANNOTATION] === 'true'

/** Returns the patch that reports the pause on the object. It is the only write to the object during the pause. */
function pausePatch(object: KubeObject, now: Date): StatusPatch | undefined {
  const message = `nothing is written while annotation ${PAUSED_ANNOTATION} is "true"`
  return conditionPatch(object, { type: PAUSED, status: 'True', reason: 'PausedByAnnotation', message }, now)
}

/**
 * The rounds of a pass. Each calls the function, and sends the first writes that its outcome requires, in this order:
 * owned objects, the record of fields of others, these fields, the acts, the labels and annotations of the object, its
 * status, its effect, and its deletion after all others. The next round decides on the result.
 */
function* rounds(pass: Pass): Asking<End> {
  const { run } = pass
  const places = new Set<number>()
  let ofFields = 0
  let mostPlaces: number | undefined
  for (let round = 1; ; round++) {
    pass.requeue = undefined
    const unread = pass.unread ?? notGranted(run.of.spec, pass.world.object)
    if (unread !== undefined) throw failed(unread)
    if (run.of.spec.external !== undefined && pass.external === undefined) {
      const limited = yield* read(pass)
      if (limited !== undefined) return limited
    }
    const outcome = yield* call(pass)
    let planned = feasible(pass, outcome)
    const { record, metadata, status, effect, requeue } = planned
    if (planned.stages.some((writes) => writes.length > 0)) planned = yield* writeOwned(pass, planned)
    else if (record !== undefined || planned.fields.length > 0) {
      if (record !== undefined) yield* writeRecord(pass, record.value)
      else planned = yield* writeFields(pass, planned)
      // The records around a write of fields are no results on which the function decides.
      if (ofFields++ < MAX_ROUNDS) round--
    } else if (planned.acts.length > 0) planned = yield* act(pass, planned)
    else if (metadata !== undefined) planned = yield* writeMetadata(pass, planned, metadata)
    else if (status !== undefined) yield* writeStatus(pass, status)
    else if (effect !== undefined) {
      const isPerformed = yield* perform(pass, effect, planned)
      if (!isPerformed) {
        // The next decision would depend on the result.
        tellReports(pass, planned)
        return endsNow(requeue === undefined ? { kind: 'done' } : { kind: 'requeue', at: requeue })
      }
      yield* observeAgain(pass)
    } else if (planned.isDeletion) {
      const isFinalized = yield* deleteObject(pass)
      if (!isFinalized) {
        tellReports(pass, planned)
        return ends(run, { kind: 'done' })
      }
    } else return yield* conclude(pass, planned)
    tellReports(pass, planned)
    // An order of stages that are ready at once ends with its last stage. One that grows with each call does not.
    mostPlaces ??= Math.max(MAX_PLACES, outcome.apply?.length ?? 0)
    if (planned.place !== undefined && places.size < mostPlaces && !places.has(planned.place)) {
      places.add(planned.place)
      round = 0
    }
    if (round === MAX_ROUNDS) return goOnLater(pass, planned)
  }
}

/** Calls the function. If its last call in this run saw the same state, uses that outcome and the time of that call. */
function* call(pass: Pass): Asking<PlainOutcome> {
  const { run, external } = pass
  const input: RunInput = { ...inputOf(pass), ...(external && { external: external.state }) }
  if (run.called !== undefined) {
    const { now, seed = pass.seed } = run.called.input
    if (sameJson(run.called.input, { ...input, now, seed })) {
      pass.now = new Date(now)
      pass.seed = seed
      return run.called.outcome
    }
  }
  const { returned } = yield* ask({ do: 'call', input: deepFreeze(input) })
  let outcome: PlainOutcome
  try {
    outcome = parseOutcome(returned, run.of.maxStateBytes)
  } catch (error) {
    noteConfidential(run, contentsReturned(returned))
    pass.requeue = requeueOf(timerIn(returned), pass.now)
    throw failed(error)
  }
  noteConfidential(run, [...(outcome.apply ?? []), ...(outcome.patch ?? [])])
  run.called = { input, outcome }
  return outcome
}

/** Returns what has to be written, without the writes that were refused in this pass. */
function feasible(pass: Pass, outcome: PlainOutcome): FeasiblePlan {
  const { run, world, now, noOps, refused, progress } = pass
  const { spec, identity, isAlone, isReferenceOnly: isConfidential } = run.of
  const wanted = plan(spec, world, outcome, { identity, now, noOps, progress, isConfidential, isAlone })
  pass.requeue = wanted.requeue
  if (wanted.findings.length > 0)
    throw failed(new TerminalError(wanted.findings.join('; '), { reason: 'InvalidOutcome' }))
  pass.requeue = nextLookOf(wanted, now)
  const planned = noteUnresolved(pass, withoutRefused(wanted, refused))
  const refusal = refusalOf(pass)
  return refusal === undefined
    ? planned
    : { ...planned, status: plannedStatus(spec, world, outcome, { identity, now, noOps, isAlone }, refusal) }
}

/** Notes the refused writes that the outcome requires. */
function noteUnresolved(pass: Pass, planned: FeasiblePlan): FeasiblePlan {
  pass.refused = addRefused(pass.refused, planned.unresolved)
  pass.unresolved = planned.unresolved
  return planned
}

/**
 * Writes owned objects, one stage after the other. A refused write does not stop the others. Returns the plan without
 * the writes that were refused.
 */
function* writeOwned(pass: Pass, wanted: FeasiblePlan): Asking<FeasiblePlan> {
  let planned = wanted
  for (let stage = 0; stage < planned.stages.length; stage++) {
    const writes = planned.stages[stage] ?? []
    if (writes.length === 0) continue
    const { results } = yield* ask({ do: 'write', writes })
    const { refused, failures, events } = took(pass, writes, results)
    if (refused.length > 0) planned = afterRefusal(planned, refused, stage + 1)
    noteUnresolved(pass, planned)
    tellEvents(pass, events)
    if (failures.length > 0) throw new FailedPass(gravest(failures))
    if (results.some((result) => 'isOld' in result && result.isOld)) {
      yield* observeAgain(pass)
      break
    }
  }
  return planned
}

/** Takes the results of the writes of owned objects into the pass. */
function took(pass: Pass, writes: readonly Write[], results: readonly (Written | Failed)[]) {
  const { run } = pass
  const refused: RefusedWrite[] = []
  const failures: Failed[] = []
  const events: EventReport[] = []
  const written: Parameters<typeof withOwned>[2][number][] = []
  for (const [index, write] of writes.entries()) {
    const result = results[index]
    if (result === undefined) continue
    if (!('failed' in result)) {
      const { object: after } = result
      written.push({ resource: write.resource, before: write.object, after })
      events.push(...eventsOf(write, result))
      // An applied object needs no apply of the same content while it has the version after this apply.
      if (write.verb === 'apply' && !result.isFound && after?.metadata.uid !== undefined)
        noteNoOp(pass, after.metadata.uid, `${after.metadata.resourceVersion} ${write.fingerprint}`)
    } else if (result.failed instanceof RefusedError) refused.push(refusedWrite(write, result.failed))
    else failures.push(result)
  }
  pass.world = withOwned(pass.world, run.of.spec.related, written)
  pass.refused = withoutBlocked(
    pass.refused,
    written.map(({ before }) => before),
  )
  noteConfidential(
    run,
    written.flatMap(({ after }) => after ?? []),
  )
  return { refused, failures, events }
}

/** Returns the Events of a write for users of the primary. */
function eventsOf(write: Write, { adopted }: Written): EventReport[] {
  if (adopted !== undefined) return [{ type: 'Normal', reason: 'Adopted', message: adopted }]
  if (write.verb !== 'delete' || !write.isPruned || !isRetained(write.object)) return []
  const message = `${called(write.object)} was retained, and was deleted because the function no longer returns it`
  return [{ type: 'Normal', reason: 'Pruned', message }]
}

/**
 * Gives back all fields of others, before anything else is read or called. Fails the pass if one of them could not be given
 * back; the record then has what is left.
 */
function* giveBack(pass: Pass): Asking<void> {
  const { run, world } = pass
  const { identity, spec } = run.of
  const writes = giveBackAll(world.object, identity, spec)
  const refused = yield* sendFields(pass, writes)
  const left = writes.map(({ fields }) => fields).filter((one) => !pass.progress.givenBack.has(fieldsId(one)))
  if (left.length < writes.length) {
    const result = yield* sendRecord(pass, patchRecord(world.object, left))
    if (result.isOld) throw failed(new ConflictError('the object was changed while its record was written'))
    present(pass, result)
  }
  pass.unresolved = refused
  if (refused.length > 0) throw new FailedPass()
  // Only the object itself was observed.
  if (spec.finalize && isFinalizing(pass.world.object, identity, spec)) yield* observeAgain(pass)
}

function* writeRecord(pass: Pass, value: string | undefined): Asking<void> {
  yield* wrotePrimary(pass, yield* sendRecord(pass, value))
}

function* sendRecord(pass: Pass, value: string | undefined): Asking<Written> {
  const annotation = patchRecordOf(pass.run.of.identity)
  const { result } = yield* ask({ do: 'writeRecord', object: pass.world.object, annotation, value })
  pass.progress = { ...pass.progress, givenBack: new Set() }
  return result
}

function* writeFields(pass: Pass, planned: FeasiblePlan): Asking<FeasiblePlan> {
  const refused = yield* sendFields(pass, planned.fields)
  return noteUnresolved(pass, refused.length > 0 ? afterRefusal(planned, refused, planned.stages.length) : planned)
}

/** Sends writes of fields of others, and takes their results into the pass. Returns those that were refused. */
function* sendFields(pass: Pass, writes: readonly FieldsWrite[]): Asking<RefusedWrite[]> {
  const { results } = yield* ask({ do: 'writeFields', writes })
  const refused: RefusedWrite[] = []
  const failures: Failed[] = []
  const givenBack = new Set(pass.progress.givenBack)
  const taken = new Map(pass.progress.taken)
  for (const [index, write] of writes.entries()) {
    const result = results[index]
    const id = fieldsId(write.fields)
    if (result === undefined) continue
    if ('failed' in result) {
      if (!(result.failed instanceof RefusedError)) {
        failures.push(result)
        continue
      }
      refused.push(refusedFields(write, result.failed))
      if (result.failed.taken.length > 0) taken.set(id, result.failed.taken)
    } else if (write.verb === 'giveBack') givenBack.add(id)
    else if (result.object !== undefined) {
      const { object } = result
      taken.delete(id)
      pass.world = withPatched(pass.world, pass.run.of.spec.related, object)
      noteNoOp(pass, fieldsTarget(object, write.fields), `${object.metadata.resourceVersion} ${write.fingerprint}`)
    }
  }
  pass.progress = { givenBack, taken }
  if (failures.length > 0) throw new FailedPass(gravest(failures))
  return refused
}

/** Sends the acts. What is refused or waits is in the function's next input, and decides about its Events. */
function* act(pass: Pass, planned: FeasiblePlan): Asking<FeasiblePlan> {
  const { refused, isWaiting, isOnPrimary } = yield* sendActs(pass, planned.acts)
  // The change may be one that does not count, and causes no run (spec.changes).
  if (isOnPrimary) yield* observeAgain(pass)
  if (refused.length > 0) return noteUnresolved(pass, afterRefusal(planned, refused, planned.stages.length))
  return isWaiting ? { ...planned, events: [], counters: [] } : planned
}

/**
 * Writes labels and annotations. A refusal does not stop the run: the function decides again, with the refusal in its
 * input.
 */
function* writeMetadata(pass: Pass, planned: FeasiblePlan, write: MetadataWrite): Asking<FeasiblePlan> {
  const { object } = pass.world
  const answer = yield* attempt({ do: 'writeMetadata', object, write })
  if ('failed' in answer) {
    if (!(answer.failed instanceof RefusedError)) throw new FailedPass(answer)
    return noteUnresolved(pass, afterRefusal(planned, [refusedMetadata(write, answer.failed)], planned.stages.length))
  }
  const { result } = answer
  noteNoOp(pass, metadataTarget(object), `${result.object?.metadata.resourceVersion} ${write.fingerprint}`)
  yield* wrotePrimary(pass, result)
  return planned
}

function* writeStatus(pass: Pass, patch: StatusPatch): Asking<void> {
  const { run, world } = pass
  const { object } = world
  const { resourceVersion } = object.metadata
  const { result } = yield* ask({ do: 'writeStatus', object, patch, mayBeDropped: !isLastPass(run) })
  if (result === 'dropped') {
    run.tell({ note: 'dropped' })
    throw failed(new ConflictError('the status was overtaken by a change before it was written'))
  }
  if (result.object?.metadata.resourceVersion === resourceVersion)
    noteNoOp(pass, statusTarget(object), `${resourceVersion} ${fingerprint(patch.status)}`)
  yield* wrotePrimary(pass, result)
}

/**
 * Deletes the object. Returns whether the run goes on with it: it is being deleted, and waits for this reconciler. An
 * object without finalizers is gone.
 */
function* deleteObject(pass: Pass): Asking<boolean> {
  const { identity, spec } = pass.run.of
  const { result } = yield* ask({ do: 'delete', object: pass.world.object })
  const isWaiting = result.object !== undefined && isFinalizing(result.object, identity, spec)
  if (result.isOld || isWaiting) {
    yield* wrotePrimary(pass, result)
    return true
  }
  present(pass, result)
  return false
}

/** Takes the result of a write of the primary. If it now names other related objects, the run observes again. */
function* wrotePrimary(pass: Pass, result: Written): Asking<void> {
  const { object: before } = pass.world
  const { spec, identity } = pass.run.of
  present(pass, result)
  if (result.isOld || namesOthers(relationsOf(spec, identity), before, pass.world.object)) yield* observeAgain(pass)
}

function* writeFinalizers(pass: Pass, finalizers: string[]): Asking<void> {
  const { result } = yield* ask({ do: 'writeFinalizers', object: pass.world.object, finalizers })
  if (result.isOld) throw failed(new ConflictError('the object was changed while its finalizers were written'))
  present(pass, result)
}

function present(pass: Pass, { object }: Written): void {
  if (object !== undefined) pass.world = withObject(pass.world, pass.run.of.spec.related, object)
}

/** Observes again in the same pass, because the observation is outdated. */
function* observeAgain(pass: Pass): Asking<void> {
  const { run } = pass
  const { identity, selects, spec } = run.of
  const { seen } = yield* ask({ do: 'observe', begins: false })
  if (seen === undefined || !isServed(run.of, seen.world.object))
    throw failed(new GoneError('the object was deleted during its run'))
  const { object } = seen.world
  const moved = (why: string) => failed(new ConflictError(`${why} during its run`))
  if (!selects(object) && !isFinalizing(object, identity, spec)) throw moved('the object has left the selection')
  if (isPaused(object)) throw moved('the object was paused')
  if (finalizersBefore(object, identity, spec, selects(object)) !== undefined)
    throw moved('the finalizers of the object have changed')
  noteObserved(run, seen.world)
  pass.external = undefined
  pass.world = seen.world
  pass.unread = seen.unread
  pass.noOps = { ...pass.noOps, ...seen.noOps }
}

/**
 * Ends a pass that has nothing left to write. Releases the finalizer of an object that is being deleted, unless the outcome
 * has acts, whose results are not observed yet. Fails the pass if a write of its last outcome was refused.
 */
function* conclude(pass: Pass, planned: FeasiblePlan): Asking<End> {
  const { run, world, now } = pass
  const { identity, spec, selects } = run.of
  const { object } = world
  const { isActing, unresolved } = planned
  tellReports(pass, planned)
  if (unresolved.length > 0) throw new FailedPass()
  const at = nextLookOf(planned, now)
  if (at !== undefined) return ends(run, { kind: 'requeue', at })
  if (!isActing && isFinalizing(object, identity, spec)) {
    // An object that has left the selection may be the former operator's again.
    const former = selects(object) ? spec.formerFinalizers : []
    yield* writeFinalizers(pass, finalizersWithout(object.metadata, identity, former))
  }
  return ends(run, { kind: 'done' })
}

/** Ends a pass after its last round. It has performed effects, or its function never settles. */
function goOnLater({ run }: Pass, planned: FeasiblePlan): End {
  const effect = run.performed.at(-1)
  if (effect === undefined) throw failed(new UnsettledError(MAX_ROUNDS, planned))
  if (effect.failure !== undefined) throw new FailedPass(effect.failure)
  return endsNow({ kind: 'requeue', at: { afterMs: PAUSE_MS } })
}
