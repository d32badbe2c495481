import { ROOT, userIn } from './certificates.ts'
import type { Cluster, Led } from './cluster.ts'
import { refuse, type Step } from './step.ts'
import { clientTls } from './tls.ts'

/**
 * Returns a step if etcd demands a user and this function has none: the snapshot contains users, or the certificate has
 * another CN.
 */
export function demandUser({ denial }: Cluster): Step | undefined {
  if (denial === undefined) return undefined
  const message =
    `etcd answers "${denial}": it demands users, and takes the CN of the certificate in the operator's Secret for the user. ` +
    `Set TLS in the spec, with an operator's certificate of CN=${ROOT}`
  return refuse('UserDemanded', message)
}

/** Enables or disables authentication. The user of this function becomes root before etcd demands users. */
export function switchAuth({ object, secrets, leader, isAuthEnabled }: Led): Step | undefined {
  const wanted = object.spec.auth?.enabled
  if (wanted === undefined) return undefined
  const user = wanted ? userIn(clientTls(object, secrets)?.cert ?? '') : ROOT
  if (user !== ROOT) {
    const message =
      `the certificate in the operator's Secret has CN=${user ?? ''}, which is not a user of etcd that may change members: ` +
      `give it CN=${ROOT}, and auth is enabled`
    return { reason: 'OperatorNotRoot', message, isStuck: true }
  }
  if (isAuthEnabled === wanted) return undefined
  const step = wanted
    ? { reason: 'EnablingAuth', message: `the certificate of CN=${ROOT} becomes that of the user ${ROOT}` }
    : { reason: 'DisablingAuth', message: 'etcd demands no users any more' }
  if (isAuthEnabled === undefined)
    return { ...step, message: 'etcd does not report whether it requires users', after: 5 }
  return { ...step, effect: { kind: wanted ? 'enableAuth' : 'disableAuth', via: leader.name } }
}
