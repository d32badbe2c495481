import type { KubeObject } from '#contracts'
import { RefusedError, sameJson } from '#reconcile'
import { type AdmittedWrite, Deployment, isResource, type Kind, type Reconciler, StatefulSet } from '#sdk'
import { isOfKind } from './given.ts'

/** Writes of this kind that the cluster refuses, as by a missing right or a quota. */
export interface RefusedKind {
  kind: Kind<unknown>
  reason: string
  name: string | undefined
  /** Refused is only what would be one more than so many objects. */
  most?: number
}

/**
 * The fields of workloads that the API server lets nobody change, with what they are where they are left out: another value
 * needs another object.
 */
const FIXED: readonly [kind: Kind<unknown>, fields: Readonly<Record<string, unknown>>][] = [
  [Deployment, { selector: undefined }],
  [
    StatefulSet,
    { selector: undefined, serviceName: '', podManagementPolicy: 'OrderedReady', volumeClaimTemplates: [] },
  ],
]

/** Returns the fields of the spec that nobody may change, by name. Undefined: the kind has none. */
export const fixedFieldsOf = (object: KubeObject) => FIXED.find(([kind]) => isOfKind(object, kind))?.[1]

/** Returns the fixed fields that had another value before. */
export function fixedChanges(object: KubeObject, before: KubeObject): string[] {
  const [spec = {}, former = {}] = [object, before].map((one) => one.spec as Record<string, unknown> | undefined)
  const isChanged = ([field, absent]: [string, unknown]): boolean => {
    const was = former[field] ?? absent
    return was !== undefined && !sameJson(spec[field] ?? absent, was)
  }
  const changed = Object.entries(fixedFieldsOf(object) ?? {}).filter(isChanged)
  return changed.map(([field]) => field)
}

/** A write; without `groups`, policies do not check it. */
type Write = Pick<AdmittedWrite, 'object' | 'old'> & { groups?: readonly string[] | undefined }

/**
 * Returns the object as the API server stores it. Throws for a write that changes a fixed field, or that the rules of its
 * kind refuse, unless the object is older than they are.
 */
export function admitted(
  { owns, related, for: primary }: Reconciler,
  { groups, ...write }: Write,
  isOlder: boolean,
): KubeObject {
  const object = (write.object ?? write.old) as KubeObject
  const fixed = write.object && write.old ? fixedChanges(write.object, write.old) : []
  if (fixed.length > 0) {
    const fields = fixed.map((field) => `spec.${field}`).join(', ')
    const message = `${object.kind} ${object.metadata.name} is refused: nobody may change its ${fields}`
    throw new RefusedError(message, { reason: 'Invalid' })
  }
  const kind = [primary, ...owns, ...related].find((one) => isOfKind(object, one))
  if (kind === undefined || !isResource(kind) || kind.rules.length === 0) return object
  const { object: stored = object, violations } = kind.admit(groups === undefined ? write : { ...write, groups })
  const [first] = violations
  if (first === undefined || isOlder) return stored
  const what = violations.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`)).join('; ')
  const reason = first.reason === 'Forbidden' ? 'AdmissionDenied' : 'Invalid'
  throw new RefusedError(`${object.kind} ${object.metadata.name} is refused: ${what}`, { reason })
}
