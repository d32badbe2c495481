import type { KubeObject } from '#contracts'
import { RefusedError } from '#reconcile'
import { type AdmittedWrite, isResource, type Kind, type Reconciler } from '#sdk'
import { isOfKind } from './given.ts'

/** Writes of this kind that the cluster refuses, as by a missing right or a quota. */
export interface RefusedKind {
  kind: Kind<unknown>
  reason: string
  name: string | undefined
  /** Refused is only what would be one more than so many objects. */
  most?: number
}

/** A write; without `groups`, policies do not check it. */
type Write = Pick<AdmittedWrite, 'object' | 'old'> & { groups?: readonly string[] | undefined }

/**
 * Returns the object as the API server stores it. Throws for a write that the rules of its kind refuse, unless the object
 * is older than they are.
 */
export function admitted(
  { owns, related, for: primary }: Reconciler,
  { groups, ...write }: Write,
  isOlder: boolean,
): KubeObject {
  const object = (write.object ?? write.old) as KubeObject
  const kind = [primary, ...owns, ...related].find((one) => isOfKind(object, one))
  if (kind === undefined || !isResource(kind) || kind.rules.length === 0) return object
  const { object: stored = object, violations } = kind.admit(groups === undefined ? write : { ...write, groups })
  const [first] = violations
  if (first === undefined || isOlder) return stored
  const what = violations.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`)).join('; ')
  const reason = first.reason === 'Forbidden' ? 'AdmissionDenied' : 'Invalid'
  throw new RefusedError(`${object.kind} ${object.metadata.name} is refused: ${what}`, { reason })
}
