import { type Cluster, hasEnded, isGoing, isReady } from './cluster.ts'
import { peerUrlOf, seedName } from './names.ts'
import { named, type PodObject, quorumOf } from './parts.ts'
import { imageIn, imageOf, isUnpulled, isUp, podFor, versionIn, versionOf, withVersion } from './pod.ts'
import { refusedSnapshot, withSnapshot } from './restoration.ts'
import { refuse, type Step, said } from './step.ts'
import { lackingSecret } from './tls.ts'
import { isDowngrade, supportedFrom, versionFor } from './version.ts'

/** Requires the Secrets, without which no step is possible. */
export function demandSecrets({ object, secrets, members = [] }: Cluster): Step | undefined {
  const lack = object.spec.TLS?.auto ? undefined : lackingSecret(object, secrets)
  if (lack !== undefined) return refuse('SecretMissing', lack)
  const other = members.find(({ name, peerURL }) => peerURL !== peerUrlOf(object, name))
  const why = 'TLS between members and spec.pod.ClusterDomain cannot be changed later'
  return other && refuse('PeerURLsDiffer', `members reach each other at ${other.peerURL}: ${why}`)
}

/**
 * Forms the cluster: the first member forms a cluster of its own, and all others join it. Applies only until the
 * cluster has answered once. Until then the first member runs spec.version, because the cluster has no version yet.
 */
export function form(cluster: Cluster): Step | undefined {
  const { object, restore, pods } = cluster
  if (object.status.clusterID !== undefined) return undefined
  const refusal = supportedFrom(object)
  if (refusal !== undefined) return refuse('VersionNotSupported', refusal)
  const name = seedName(object)
  const step = { reason: 'Seeding', message: `member ${name} forms the cluster` }
  const pod = named(pods, name)
  if (pod !== undefined && isGoing(pod)) return { ...step, drop: [name] }
  const tooNew = restore?.metadata.uid === object.status.restoring ? refusedSnapshot(object, restore) : undefined
  if (pod !== undefined) {
    if (!hasWrongImage(cluster, pod)) return { ...step, after: 2 }
    if (tooNew !== undefined) return { ...step, message: `${step.message}; ${tooNew}`, after: 2 }
    return { ...step, put: [withVersion(object, pod, versionIn(object))] }
  }
  if (tooNew !== undefined) return { reason: 'SnapshotTooNew', message: tooNew, isStuck: true }
  const seed = withSnapshot(object, seedPod(cluster, versionIn(object)), restore)
  if (seed !== undefined) return { ...step, put: [seed] }
  return { reason: 'RestoreMissing', message: 'the EtcdRestore is gone: create it again', isStuck: true }
}

/**
 * Whether the first member is to get another image before it forms the cluster. It keeps its data, which clients may
 * have written. A process that runs is not replaced by one of an earlier minor version, which cannot read its data: it
 * forms the cluster, which is downgraded afterwards.
 */
function hasWrongImage({ object, clusterID }: Cluster, pod: PodObject): boolean {
  const version = versionIn(object)
  if (clusterID !== undefined || isReady(pod) || imageIn(pod) === imageOf(object, version)) return false
  return !(isUp(pod) && isDowngrade(versionOf(pod) ?? version, version))
}

/**
 * Gives pods whose image cannot be pulled the image of a version that the user has corrected. Such a member would be
 * waited for until it counts as dead, and the only member of a cluster for ever.
 */
export function correctImages({ object, pods }: Cluster): Step | undefined {
  const version = versionFor(object)
  const wrong = pods.filter((pod) => !isGoing(pod) && isUnpulled(pod) && imageIn(pod) !== imageOf(object, version))
  if (wrong.length === 0) return undefined
  const message = `pods ${said(wrong.map(({ metadata }) => metadata))} get the image of ${version}`
  return { reason: 'CorrectingImage', message, put: wrong.map((pod) => withVersion(object, pod, version)), after: 5 }
}

/**
 * Waits for a quorum. Without one, nothing is deleted, and etcd changes nothing. Members that return with their disks
 * may be enough.
 */
export function waitForQuorum(cluster: Cluster): Step | undefined {
  const { pods, claims, members, names, lastSize } = cluster
  if (members !== undefined) return undefined
  // Volumes with another name belong to a former cluster, whose members must not find each other again.
  const disks = names.filter((name) => named(claims, name) !== undefined)
  const ended = pods.filter((pod) => hasEnded(pod) && named(claims, pod.metadata.name) !== undefined)
  return {
    reason: 'WaitingForQuorum',
    message: `${quorumOf(lastSize)} of ${lastSize} members have to answer`,
    put: disks.filter((name) => named(pods, name) === undefined).map((name) => joiningPod(cluster, name)),
    // The claims of these pods stay, and the pods are made again.
    drop: ended.map(({ metadata }) => metadata.name),
    after: 5,
  }
}

/** Returns the pod of the first member. */
export function seedPod({ object, policy }: Cluster, version = versionFor(object)): PodObject {
  const name = seedName(object)
  return podFor(object, { name, members: [name], state: 'new', version }, policy)
}

/** Returns the pod of a joining member, which receives the names of all members. */
export const joiningPod = ({ object, policy, names }: Cluster, name: string): PodObject =>
  podFor(object, { name, members: names, state: 'existing', version: versionFor(object) }, policy)
