import { hash } from 'node:crypto'
import type { KubeObject } from '#contracts'
import type { ReconcilerSpec } from './reconciler.ts'
import { owedRevision } from './revisions.ts'

/**
 * Which objects map to a Reconciler's keys, which incarnation of it asks, and for which revision of its function. A watch
 * cursor that covers this ID says: everything that concerns it is stored under the right owner, and its keys were
 * enqueued.
 */
export function coverageId(object: KubeObject, spec: ReconcilerSpec): string {
  const { metadata } = object
  const { for: primary, owns, related, finalize, identity } = spec
  const optional = [owedRevision(object, spec), finalize ? 'finalize' : undefined, identity && { identity }]
  const asked = JSON.stringify([metadata.uid, primary, owns, related, ...optional.filter((one) => one !== undefined)])
  return `${metadata.name}@${hash('sha256', asked, 'base64url').slice(0, 16)}`
}
