import { type KubeObject, kindName, type Refusal } from '#contracts'
import { actId, type PlannedAct, type Waiting } from './acts.ts'
import { fingerprint } from './compare.ts'
import { RefusedError } from './errors.ts'
import { type FieldsWrite, fieldsWriteId, type HeldFields } from './fields.ts'
import type { MetadataWrite } from './metadata.ts'
import { neededBy, providedIn } from './needs.ts'
import type { Plan, Write } from './plan.ts'
import { called } from './world.ts'

/** A write that was refused in this pass, or was not sent because it needs an object that was refused. */
export interface RefusedWrite {
  /** Equal for writes of the same content. */
  id: string
  object: KubeObject
  /** The object or type that other objects may need. It is missing or outdated. */
  provides: string | undefined
  isBlocked: boolean
  error: RefusedError
}

/** The limit of one message in the function's input, in characters. */
const LONGEST_MESSAGE = 1000

export const refusedWrite = (write: Write, error: RefusedError): RefusedWrite => ({
  id: idOf(write),
  object: write.object,
  provides: providedBy(write),
  isBlocked: false,
  error,
})

const refusedPart = (id: string, object: KubeObject, error: RefusedError): RefusedWrite => ({
  id,
  object,
  provides: undefined,
  isBlocked: false,
  error,
})

export const refusedMetadata = ({ object, fingerprint }: MetadataWrite, error: RefusedError): RefusedWrite =>
  refusedPart(fingerprint, object, error)

export const refusedFields = (write: FieldsWrite, error: RefusedError): RefusedWrite =>
  refusedPart(fieldsWriteId(write), write.object, error)

export const refusedAct = (act: PlannedAct, error: RefusedError): RefusedWrite =>
  refusedPart(actId(act), act.object, error)

/** An act that waits is told to the function, and fails no run. */
export const waitingAct = (object: KubeObject, { reason, message }: Waiting): RefusedWrite => ({
  ...refusedPart(`waits ${object.metadata.uid}`, object, new RefusedError(message, { reason })),
  isBlocked: true,
})

const heldFields = ({ write, message }: HeldFields): RefusedWrite => ({
  ...refusedFields(write, new RefusedError(message, { reason: 'FieldConflict' })),
  isBlocked: true,
})

/** The part of a plan that can be written in this pass. */
export interface FeasiblePlan extends Plan {
  /** The writes that the outcome requires and that were refused or blocked. */
  unresolved: readonly RefusedWrite[]
}

/** Returns the part of a plan that can be written after these refusals in the same pass. */
export function withoutRefused(plan: Plan, refused: readonly RefusedWrite[]): FeasiblePlan {
  if (refused.length === 0 && plan.held.length === 0) return { ...plan, unresolved: [] }
  const sent = new Map(refused.filter(({ isBlocked }) => !isBlocked).map((one) => [one.id, one]))
  const writes = plan.stages.flat()
  const metadata = sent.get(plan.metadata?.fingerprint ?? '')
  const again = [
    ...writes.flatMap((write) => sent.get(idOf(write)) ?? []),
    ...plan.fields.flatMap((write) => sent.get(fieldsWriteId(write)) ?? []),
    ...plan.held.map(heldFields),
    ...plan.acts.flatMap((act) => sent.get(actId(act)) ?? []),
    ...(metadata ? [metadata] : []),
  ]
  const fields = plan.fields.filter((write) => !sent.has(fieldsWriteId(write)))
  const acts = plan.acts.filter((act) => !sent.has(actId(act)))
  const left = { ...plan, fields, acts, metadata: metadata === undefined ? plan.metadata : undefined }
  return again.length === 0 ? { ...plan, unresolved: [] } : withoutNeeds({ ...left, unresolved: again }, 0)
}

/**
 * Returns the rest of a plan from a stage on. Its Events and counters are left out: the next decision, which knows of the refusals,
 * decides them.
 */
export const afterRefusal = (plan: FeasiblePlan, refused: readonly RefusedWrite[], from: number): FeasiblePlan =>
  withoutNeeds({ ...plan, unresolved: [...plan.unresolved, ...refused], events: [], counters: [] }, from)

/**
 * Removes the writes that need refused objects, the acts and the effect, which may need them too, and all deletions: an
 * object to be deleted may still do the work of a missing one.
 */
function withoutNeeds(plan: FeasiblePlan, from: number): FeasiblePlan {
  const unresolved = withBlocked(plan.stages.slice(from).flat(), plan.unresolved)
  const isOut = new Set(unresolved.map(({ id }) => id))
  const isSent = (write: Write) => !isOut.has(idOf(write)) && !(write.verb === 'delete' && write.isPruned)
  const stages = plan.stages.map((stage, index) => (index < from ? stage : stage.filter(isSent)))
  return { ...plan, stages, acts: [], effect: undefined, isDeletion: false, unresolved }
}

function withBlocked(writes: readonly Write[], refused: readonly RefusedWrite[]): RefusedWrite[] {
  const unresolved = [...refused]
  const known = new Set(refused.map(({ id }) => id))
  const missing = new Map(
    refused.flatMap(({ provides, object }) => (provides === undefined ? [] : [[provides, object]])),
  )
  let left = writes
    .filter((write) => !(write.verb === 'delete' && write.isPruned))
    .map((write) => ({ write, id: idOf(write), needs: [...neededBy(write.object)] }))
    .filter(({ id }) => !known.has(id))
  for (let count = -1; count !== left.length; ) {
    count = left.length
    left = left.filter(({ write, id, needs }) => {
      const [lack] = needs.flatMap((need) => missing.get(need) ?? [])
      if (lack === undefined) return true
      const { verb, object } = write
      const provides = providedBy(write)
      const message = `cannot ${verb} ${called(object)}: it needs ${called(lack)}, which was refused`
      unresolved.push({ id, object, provides, isBlocked: true, error: new RefusedError(message, BLOCKED) })
      if (provides !== undefined) missing.set(provides, object)
      return false
    })
  }
  return unresolved
}

const BLOCKED = { reason: 'DependencyRefused' }

/** Adds new refusals to the earlier refusals of a pass. */
export function addRefused(before: readonly RefusedWrite[], more: readonly RefusedWrite[]): RefusedWrite[] {
  const known = new Set(before.map(({ id }) => id))
  return [...before, ...more.filter(({ id }) => !known.has(id))]
}

/** Removes the refusals of objects that were blocked and are now written. */
export function withoutBlocked(refused: readonly RefusedWrite[], written: readonly KubeObject[]): RefusedWrite[] {
  const names = new Set(written.map(called))
  return refused.filter(({ isBlocked, object }) => !isBlocked || !names.has(called(object)))
}

/**
 * Returns the last refusal of each object in the form of the function's input. The order does not depend on the order
 * of the writes.
 */
export function toldOf(refused: readonly RefusedWrite[], scrub: (text: string) => string): Record<string, Refusal[]> {
  const last = new Map(refused.map((one) => [`${one.object.apiVersion} ${called(one.object)}`, one]))
  const sorted = [...last].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, one]) => one)
  const told: Record<string, Refusal[]> = {}
  for (const { object, error } of sorted) {
    const { name, namespace } = object.metadata
    const message = scrub(error.message).slice(0, LONGEST_MESSAGE)
    const refusal = { name, ...(namespace !== undefined && { namespace }), reason: error.reason, message }
    ;(told[kindName(object.kind, object.apiVersion)] ??= []).push(refusal)
  }
  return told
}

function idOf(write: Write): string {
  const { verb, object } = write
  const { name, namespace = '' } = object.metadata
  return JSON.stringify([verb, object.apiVersion, object.kind, namespace, name, contentOf(write)])
}

function contentOf(write: Write): string {
  switch (write.verb) {
    case 'create':
      return fingerprint(write.object)
    case 'apply':
      return write.fingerprint
    case 'patch':
      return fingerprint(write.patch)
    case 'delete':
      return write.object.metadata.uid ?? ''
  }
}

/**
 * Returns the object that other objects may need and that is missing or outdated if this write fails. Undefined if
 * there is none.
 */
function providedBy(write: Write): string | undefined {
  const { verb, object } = write
  if (verb === 'delete' && write.isPruned) return undefined
  const isThere = verb === 'delete' || verb === 'patch' || (verb === 'apply' && write.observed !== undefined)
  if (object.kind === 'Namespace' && isThere) return undefined
  return providedIn(object)
}
