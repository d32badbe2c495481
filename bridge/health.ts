import type { BridgeStatus, ResourceStatus } from './types.ts'

/** A watch that cannot go on for so long, or changes that are not confirmed for so long, are no passing trouble. */
const PATIENCE_MS = 30_000

/** Why a bridge does not do its work now; nothing: it does. What a Reconciler asks for in vain is no fault of the bridge. */
export function troubles({ resources }: BridgeStatus, now: Date): string[] {
  if (resources.length === 0) return ['the bridge has not begun to watch']
  return resources.flatMap((resource) => {
    const trouble = troubleOf(resource, now)
    const where = resource.namespace === undefined ? '' : ` in ${resource.namespace}`
    return trouble === undefined ? [] : [`${resource.resource}${where}: ${trouble}`]
  })
}

function troubleOf(resource: ResourceStatus, now: Date): string | undefined {
  const { failure, failingSince, heldBackSince, synced } = resource
  const secondsSince = (date: Date): number => Math.round((now.getTime() - date.getTime()) / 1000)
  if (failure !== undefined && ['absent', 'forbidden', 'rejected'].includes(failure.kind)) return undefined
  if (heldBackSince && now.getTime() - heldBackSince.getTime() > PATIENCE_MS)
    return `a change is not confirmed by NATS since ${secondsSince(heldBackSince)} s`
  if (failingSince && now.getTime() - failingSince.getTime() > PATIENCE_MS)
    return `the watch fails since ${secondsSince(failingSince)} s${failure ? `: ${failure.message}` : ''}`
  return synced ? undefined : 'not synced yet'
}
