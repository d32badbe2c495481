import { hash } from 'node:crypto'
import type { KubeObject } from './objects.ts'
import type { ReconcilerSpec } from './reconciler.ts'

/**
 * Which objects map to a Reconciler's keys, and which incarnation of it asks. A watch cursor that covers this token
 * says: everything that concerns it is stored under the right owner, and its keys were enqueued.
 */
export function coverageToken({ metadata }: KubeObject, spec: ReconcilerSpec): string {
  const { for: primary, owns, related, finalize, revision, identity } = spec
  const optional = [revision, finalize ? 'finalize' : undefined, identity && { identity }]
  const asked = JSON.stringify([metadata.uid, primary, owns, related, ...optional.filter((one) => one !== undefined)])
  return `${metadata.name}@${hash('sha256', asked, 'base64url').slice(0, 16)}`
}
