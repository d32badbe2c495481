import type { BridgeStatus, ResourceStatus } from './types.ts'

/**
 * The time after which an unanswered request, a watch that fails, or an unconfirmed change is no longer a temporary
 * failure.
 */
const PATIENCE_MS = 30_000
/** Within this time an open watch has received something, or it was opened again and the server has answered. */
const SILENCE_MS = 90_000

/**
 * Returns the reasons why a bridge does not work now; an empty list if it works. A resource that is missing or not
 * permitted does not count, because it is a fault of the Reconciler.
 */
export function troubles({ resources }: BridgeStatus, now: Date): string[] {
  if (resources.length === 0) return ['the bridge has not begun to watch']
  return resources.flatMap((resource) => {
    const trouble = troubleOf(resource, now)
    const where = resource.namespace === undefined ? '' : ` in ${resource.namespace}`
    return trouble === undefined ? [] : [`${resource.resource}${where}: ${trouble}`]
  })
}

function troubleOf(resource: ResourceStatus, now: Date): string | undefined {
  const { failure, failingSince, heldBackSince, phase, unansweredSince, heardAt, synced } = resource
  const msSince = (date: Date): number => now.getTime() - date.getTime()
  const secondsSince = (date: Date): number => Math.round(msSince(date) / 1000)
  if (failure !== undefined && ['absent', 'forbidden', 'rejected'].includes(failure.kind)) return undefined
  if (heldBackSince && msSince(heldBackSince) > PATIENCE_MS)
    return `a change is not confirmed by NATS since ${secondsSince(heldBackSince)} s`
  if (failingSince && msSince(failingSince) > PATIENCE_MS)
    return `the watch fails since ${secondsSince(failingSince)} s${failure ? `: ${failure.message}` : ''}`
  if (unansweredSince && msSince(unansweredSince) > PATIENCE_MS)
    return `the API server has not answered the request for the watch for ${secondsSince(unansweredSince)} s`
  if (phase === 'watching' && heardAt && msSince(heardAt) > SILENCE_MS)
    return `the API server has sent nothing for ${secondsSince(heardAt)} s`
  return synced ? undefined : 'not synced yet'
}
