import { recoverContainer } from '../restore/index.ts'
import { type Cluster, isGoing, readiness, readyFormer } from './cluster.ts'
import { seedPod, waitForQuorum } from './formation.ts'
import { CLIENT_PORT, hostOf, seedName } from './names.ts'
import { named, type PodObject, quorumOf } from './parts.ts'
import { isOutdated, takesTls } from './pod.ts'
import type { ClusterObject } from './resource.ts'
import { seedData, withParts } from './restoration.ts'
import type { Step } from './step.ts'
import { operatorSecretOf } from './tls.ts'

/**
 * Returns the voters that still answer, the one with the highest revision first. Learners are left out, because they
 * may lack most of the data.
 */
export const survivorsOf = ({ answers }: Cluster): Cluster['answers'] =>
  answers.filter(({ isLearner }) => !isLearner).toSorted((a, b) => b.revision - a.revision || b.index - a.index)

/** Returns the quorum loss that the spec names. Undefined: none, or its recovery is under way or complete. */
function askedIn({ spec, status: { recovering, recovered } }: ClusterObject): string | undefined {
  const asked = spec.recovery?.quorumLostSince
  return recovering !== undefined || asked === recovered ? undefined : asked
}

/**
 * Returns the reason why the recovery that the spec requests does not begin. Undefined: it begins, or none is
 * requested.
 */
export function refusedRecovery(cluster: Cluster, lost: string | undefined): string | undefined {
  const asked = askedIn(cluster.object)
  if (asked === undefined) return undefined
  const request = `spec.recovery is for the quorum that was lost at ${asked}`
  if (cluster.members === undefined && readyFormer(cluster.object, cluster.pods).length >= quorumOf(cluster.lastSize))
    return `${request}, and ${present(cluster)}`
  if (lost === undefined) return `${request}, and none is lost: remove it`
  if (asked !== lost) return `${request}, and this one was lost at ${lost}: set quorumLostSince to that`
  if (cluster.lastSize === 1)
    return 'the cluster has one member, and so no other one has its data: bring it back, or restore a backup'
  if (survivorsOf(cluster).length === 0)
    return 'no member answers, so that none can give its data: bring members back, or restore a backup'
  return undefined
}

/**
 * Begins a recovery if a quorum is lost and the spec names this loss. It is recorded before any object is changed, and
 * when no member is ready any more. So a member that is ready later has found a quorum since.
 */
export function beginRecovery(cluster: Cluster): Step | undefined {
  const { object, members, pods } = cluster
  const asked = askedIn(object)
  if (members !== undefined || asked === undefined) return undefined
  if (refusedRecovery(cluster, object.status.quorumLostSince) !== undefined) return undefined
  const ready = readyFormer(object, pods)
  const waits = ready.length > 0 ? waitForQuorum(cluster) : undefined
  if (waits)
    return { ...waits, message: `${waits.message}; the recovery begins when ${ready.join(', ')} is not Ready any more` }
  return { ...RECOVERING, message: `the cluster goes on from ${survivorsSaid(cluster)}`, begins: { recovering: asked } }
}

const present = ({ object, pods }: Cluster): string =>
  `these members are Ready, and so have a quorum: ${readyFormer(object, pods).join(', ')}; see that TCP ${CLIENT_PORT} of the pods is reachable`

const RECOVERING = { reason: 'RecoveringFromSurvivor' }

/**
 * Starts the first member of another cluster with the data of a remaining member. The remaining members stay until the
 * new member answers and that is recorded. If they find a quorum before that, they continue, and the new member is
 * deleted, also while this process cannot reach them.
 */
export function recover(cluster: Cluster): Step | undefined {
  const { object, policy, pods, members, clusterID } = cluster
  if (object.status.recovering === undefined) return undefined
  const name = seedName(object)
  if (members !== undefined) {
    if (clusterID === object.status.clusterID) return undefined
    return { ...RECOVERING, message: `member ${name} has the data; those of before go`, touchesNothing: true }
  }
  const seed = named(pods, name)
  if (readyFormer(object, pods).length > 0)
    return { reason: 'FormerQuorumReady', message: present(cluster), ...(seed && { drop: [name] }), after: 5 }
  const message = `member ${name} begins with the data of ${survivorsSaid(cluster)}`
  if (seed === undefined) return { ...RECOVERING, message, put: recoveringPods(cluster), after: 5 }
  if (isGoing(seed) || isOutdated(policy, seed) || cannotRead(cluster, seed))
    return { ...RECOVERING, message: `${message}, when its former pod is gone`, drop: [name], after: 5 }
  return { ...RECOVERING, message, after: 5 }
}

/**
 * Returns the members of before that were ready after the recovery was recorded. Only their volumes have what clients
 * wrote then.
 */
export function returnedOf({ object, pods, claims, members }: Cluster): string[] {
  const { recovering, recoveringSince, returned = [] } = object.status
  const isOther = (name: string): boolean =>
    name !== seedName(object) && members?.some((one) => one.name === name) !== true
  const isKnown = recoveringSince !== undefined && (recovering !== undefined || members !== undefined)
  const names = isKnown ? pods.filter((pod) => wasReady(pod, recoveringSince)).map(({ metadata }) => metadata.name) : []
  return [...new Set([...returned, ...names])].filter((name) => isOther(name) && named(claims, name)).sort()
}

/** Whether a pod that was not ready at that time has been ready since. */
function wasReady(pod: PodObject, since: string): boolean {
  const { status, lastTransitionTime = '' } = readiness(pod) ?? {}
  return status === 'True' || (status === 'False' && Date.parse(lastTransitionTime) > Date.parse(since))
}

/**
 * Whether the new member cannot read the data: the spec names another image, or the member with the required revision
 * is gone.
 */
function cannotRead(cluster: Cluster, { spec, status }: PodObject): boolean {
  const { image, args = [] } = spec?.initContainers?.find(({ name }) => name === 'restore') ?? {}
  const ended = status?.initContainerStatuses?.find(({ name }) => name === 'restore')?.state?.terminated
  if (ended?.exitCode === 0) return false
  const [best] = survivorsOf(cluster)
  const wanted = cluster.object.spec.recovery?.agentImage ?? image
  return image !== wanted || (best !== undefined && !args.includes(`--revision=${best.revision}`))
}

function recoveringPods(cluster: Cluster): PodObject[] {
  const { object, pods, names } = cluster
  const { recovery } = object.spec
  if (recovery === undefined) return []
  const endpoints = names.map((name) => {
    const pod = named(pods, name)
    return `${pod && takesTls(pod) ? 'https' : 'http'}://${hostOf(object, name)}:${CLIENT_PORT}`
  })
  const { version, revision = 0 } = survivorsOf(cluster)[0] ?? {}
  const source = { endpoints, revision, tlsSecret: operatorSecretOf(object) }
  return [withParts(seedPod(cluster, version), recoverContainer(source, recovery, seedData(object)))]
}

function survivorsSaid(cluster: Cluster): string {
  const [first] = survivorsOf(cluster)
  if (first === undefined) return 'a member, as soon as one answers; a backup can be restored instead'
  return `member ${first.name}, which has revision ${first.revision}: what only others have of later ones is lost`
}
