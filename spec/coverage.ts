import { hash } from 'node:crypto'
import type { KubeObject } from '#contracts'
import type { ReconcilerSpec } from './reconciler.ts'
import { owedRevision } from './revisions.ts'

/**
 * Returns an ID of the objects that map to a Reconciler's keys, of the incarnation of the Reconciler, and of the
 * revision of its function. If a watch cursor has this ID, every object that concerns the Reconciler is stored under
 * the right owner, and its keys are queued.
 */
export function coverageId(object: KubeObject, spec: ReconcilerSpec): string {
  const { metadata } = object
  const { for: primary, owns, related, finalize, identity } = spec
  const optional = [owedRevision(object, spec), finalize ? 'finalize' : undefined, identity && { identity }]
  const asked = JSON.stringify([metadata.uid, primary, owns, related, ...optional.filter((one) => one !== undefined)])
  return `${metadata.name}@${hash('sha256', asked, 'base64url').slice(0, 16)}`
}
