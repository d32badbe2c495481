import { ROOT, userIn } from './certificates.ts'
import type { Cluster } from './cluster.ts'
import type { Step } from './step.ts'
import { clientTls } from './tls.ts'

/** etcd demands a user, and this function has none: of a snapshot with users, or because a certificate is another one. */
export function demandUser({ denial }: Cluster): Step | undefined {
  if (denial === undefined) return undefined
  const message =
    `etcd answers "${denial}": it demands users, and takes the CN of the certificate in the operator's Secret for the user. ` +
    `Set TLS in the spec, with an operator's certificate of CN=${ROOT}`
  return { reason: 'UserDemanded', message, isStuck: true, touchesNothing: true }
}

/** The user of this function becomes root before etcd demands users. */
export function switchAuth({ object, secrets, leader, isAuthEnabled }: Cluster): Step | undefined {
  const wanted = object.spec.auth?.enabled
  if (wanted === undefined || leader === undefined) return undefined
  const user = wanted ? userIn(clientTls(object, secrets)?.cert ?? '') : ROOT
  if (user !== ROOT) {
    const message =
      `the certificate in the operator's Secret has CN=${user ?? ''}, and is no user of etcd that may change members: ` +
      `give it CN=${ROOT}, and auth is enabled`
    return { reason: 'OperatorNotRoot', message, isStuck: true }
  }
  if (isAuthEnabled === wanted) return undefined
  const step = { condition: 'Maintaining', reason: wanted ? 'EnablingAuth' : 'DisablingAuth' } as const
  if (isAuthEnabled === undefined) return { ...step, message: 'etcd does not tell whether it demands users', after: 5 }
  const message = wanted
    ? `the certificate of CN=${ROOT} becomes that of the user ${ROOT}`
    : 'etcd demands no users any more'
  return { ...step, message, effect: { kind: wanted ? 'enableAuth' : 'disableAuth', via: leader.name } }
}
