import { type Cluster, isGoing } from './cluster.ts'
import { peerUrlOf, seedName } from './names.ts'
import { quorumOf } from './parts.ts'
import { claimFor, claims, mayForm, podFor } from './pod.ts'
import { withSnapshot } from './restoration.ts'
import type { Step } from './step.ts'
import { lackingSecret } from './tls.ts'
import { supportedFrom, versionFor } from './version.ts'

/** What nothing can be done without. */
export function demandSecrets({ object, secrets, members = [] }: Cluster): Step | undefined {
  const lack = object.spec.TLS?.auto ? undefined : lackingSecret(object, secrets)
  if (lack !== undefined) return { reason: 'SecretMissing', message: lack, isStuck: true, touchesNothing: true }
  const other = members.find(({ name, peerURL }) => peerURL !== peerUrlOf(object, name))
  if (other === undefined) return undefined
  const message = `members reach each other at ${other.peerURL}: TLS between members and spec.pod.ClusterDomain cannot be changed later`
  return { reason: 'PeerURLsDiffer', message, isStuck: true, touchesNothing: true }
}

/** The first member forms a cluster of its own; all others join it. Only until the cluster has ever answered. */
export function form({ object, policy, restore, pods, claims: disks, members }: Cluster): Step | undefined {
  if (object.status.clusterID !== undefined) return settleSeed({ object, pods, claims: disks, members })
  const refusal = supportedFrom(object)
  if (refusal !== undefined)
    return { reason: 'VersionNotSupported', message: refusal, isStuck: true, touchesNothing: true }
  const name = seedName(object)
  const pod = pods.find(({ metadata }) => metadata.name === name)
  const message = `member ${name} forms the cluster`
  if (pod === undefined) {
    const birth = { name, members: [name], state: 'new', version: versionFor(object) } as const
    const claim = claims(object) ? [claimFor(object, name)] : []
    const seed = withSnapshot(object, podFor(object, birth, policy), restore)
    if (seed !== undefined) return { reason: 'Seeding', message, put: [seed], claims: claim }
    return { reason: 'RestoreMissing', message: 'the EtcdRestore is gone: create it again', isStuck: true }
  }
  if (isGoing(pod)) return { reason: 'Seeding', message: `${message} when its former pod is gone`, drop: [name] }
  return { reason: 'Seeding', message, ...(members === undefined && { after: 2 }) }
}

/**
 * A process that is told to form a cluster would do so again if its disk came back empty. So the pod of the first member
 * is made again before the cluster is called available; without a claim the data go with the pod, and there is no need.
 */
function settleSeed({
  object,
  pods,
  claims,
  members,
}: Pick<Cluster, 'object' | 'pods' | 'claims' | 'members'>): Step | undefined {
  const name = seedName(object)
  if (object.status.phase === 'Running' || claims.every(({ metadata }) => metadata.name !== name)) return undefined
  const seed = pods.find(({ metadata }) => metadata.name === name)
  const message = `member ${name} starts again as one that joins`
  // It answered a moment ago, and has been deleted since.
  if (seed === undefined) return members && { reason: 'Seeding', message, after: 1 }
  return mayForm(seed) ? { reason: 'Seeding', message, drop: [name] } : undefined
}

/** Without a quorum nothing is deleted, and etcd changes nothing. What comes back with its disk may be enough. */
export function waitForQuorum({ object, policy, pods, claims, members, names, lastSize }: Cluster): Step | undefined {
  if (members !== undefined) return undefined
  const isThere = (name: string): boolean => pods.some(({ metadata }) => metadata.name === name)
  // Others are left of a cluster of before, and must not find each other again.
  const lacking = claims.filter(({ metadata: { name } }) => names.includes(name) && !isThere(name))
  const birth = { members: names, state: 'existing', version: versionFor(object) } as const
  const ended = pods.filter(
    ({ metadata, status }) =>
      (status?.phase === 'Failed' || status?.phase === 'Succeeded') &&
      claims.some((claim) => claim.metadata.name === metadata.name),
  )
  return {
    condition: 'Recovering',
    reason: 'WaitingForQuorum',
    message: `${quorumOf(lastSize)} of ${lastSize} members have to answer`,
    put: lacking.map(({ metadata: { name } }) => podFor(object, { name, ...birth }, policy)),
    // Their claims stay, and they are made again.
    drop: ended.map(({ metadata }) => metadata.name),
    after: 5,
  }
}
