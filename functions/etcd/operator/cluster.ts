import { type Run, Secret } from 'fairlead'
import type { RestoreObject } from '../restore/index.ts'
import { type Tls, tlsOf } from './authorities.ts'
import { memberOf, seedName } from './names.ts'
import {
  Claim,
  type ClaimObject,
  type DisruptionBudget,
  MemberPod,
  named,
  type PodObject,
  Restore,
  type SecretObject,
} from './parts.ts'
import { isOutdated, policyOf } from './pod.ts'
import type { ClusterObject, EtcdCluster } from './resource.ts'
import type { Answer, ListedMember, Seen } from './seen.ts'
import { authoritiesOf, digestOf, OperatorSecret, PeerSecret, ServerSecret } from './tls.ts'

export type EtcdRun = Run<
  typeof EtcdCluster,
  typeof MemberPod | typeof Claim | typeof DisruptionBudget | typeof Secret,
  typeof PeerSecret | typeof ServerSecret | typeof OperatorSecret | typeof Restore
>

/** The parts of a run that a decision reads. */
export type Given = Pick<EtcdRun, 'object' | 'owned' | 'related' | 'now' | 'performed' | 'secret'> & { external: Seen }

/** One member, as etcd and Kubernetes report it. */
export interface Member {
  name: string
  id: string
  peerURL: string
  isLearner: boolean
  /** True: the member has joined once, so an empty disk means that its data are lost. */
  isStarted: boolean
  pod: PodObject | undefined
  claim: ClaimObject | undefined
  /** The member's own answer. Undefined: it did not answer. */
  answer: Answer | undefined
  /** True: the member answers, and follows the leader. */
  isHealthy: boolean
  /** True: the pod was made for another policy than that of the spec. */
  isOutdated: boolean
}

/** The whole state that a decision is based on. */
export interface Cluster {
  object: ClusterObject
  now: Date
  /** The Secrets that the spec names, or that the function has made. */
  secrets: readonly SecretObject[]
  /** Set if the function is the authority and has recorded that. */
  tls: Tls | undefined
  /** A digest that distinguishes pods that match the spec from pods that must be replaced. */
  policy: string
  /** The EtcdRestore that requests other data. */
  restore: RestoreObject | undefined
  pods: readonly PodObject[]
  /** The claims, except those that are being deleted. */
  claims: readonly ClaimObject[]
  /** The answers of members of this cluster. */
  answers: readonly (Answer & { name: string })[]
  /** The ID of the etcd cluster. Undefined: it has not been formed. */
  clusterID: string | undefined
  /** Undefined: no quorum has confirmed the list of members. */
  members: readonly Member[] | undefined
  /** The members that vote. */
  voters: readonly Member[]
  /** The names of the members, as they were last known. */
  names: readonly string[]
  /** The number of members when it was last known. */
  lastSize: number
  /** The leader, if it answers and members follow it. */
  leader: (Member & { answer: Answer }) | undefined
  /** Undefined: not known. */
  isAuthEnabled: boolean | undefined
  /** The reason why etcd does not answer this user. */
  denial: string | undefined
  /** The change that etcd refused in this run. */
  refused: { kind: string; error: string } | undefined
}

/** A cluster that can be changed, because it has a quorum and a leader. */
export interface Led extends Cluster {
  members: NonNullable<Cluster['members']>
  leader: NonNullable<Cluster['leader']>
}

export function clusterOf(run: Given): Cluster {
  const { object, now, external: seen, performed } = run
  const pods = run.owned(MemberPod).toSorted(byName)
  const claims = run
    .owned(Claim)
    .filter(({ metadata }) => metadata.deletionTimestamp === undefined)
    .toSorted(byName)
  const secrets = secretsOf(run)
  const tls = tlsOf(object, run.owned(Secret), run.secret)
  const policy = policyOf(object, tls ? [digestOf(tls.bundle)] : authoritiesOf(object, secrets))
  const clusterID = clusterIdOf(object, seen.answers, pods)
  // The answer of a member of another cluster does not count, whatever the name of its pod.
  const answers = Object.fromEntries(Object.entries(seen.answers).filter(([, one]) => one.clusterID === clusterID))
  const list = clusterID !== undefined && seen.list?.clusterID === clusterID ? seen.list : undefined
  const leaderID = leaderAmong(list?.members ?? [], answers)
  const listed = (list?.members ?? []).map(({ id, name: published, peerURL, isLearner }): Member => {
    const name = memberOf(peerURL)
    const pod = named(pods, name)
    const answer = answers[name]?.id === id ? answers[name] : undefined
    return {
      name,
      id,
      peerURL,
      isLearner,
      isStarted: published !== '',
      pod,
      claim: named(claims, name),
      answer,
      isHealthy: answer !== undefined && answer.leader === leaderID,
      isOutdated: pod !== undefined && isOutdated(policy, pod),
    }
  })
  listed.sort((a, b) => (a.name < b.name ? -1 : 1))
  const voters = listed.filter(votes)
  const isCurrent = list?.isCurrent === true
  return {
    object,
    now,
    secrets,
    tls,
    policy,
    restore: run.related(Restore)[0],
    pods,
    claims,
    answers: Object.entries(answers).map(([name, answer]) => ({ name, ...answer })),
    clusterID,
    members: isCurrent ? listed : undefined,
    voters: isCurrent ? voters : [],
    names: isCurrent ? listed.map(({ name }) => name) : namesIn(object, pods),
    // A member without confirmation by a quorum may not know the newest members.
    lastSize: isCurrent ? voters.length : Math.max(voters.length, object.status.size ?? 0, 1),
    leader: listed.find((one): one is Member & { answer: Answer } => one.answer !== undefined && one.id === leaderID),
    isAuthEnabled: seen.isAuthEnabled,
    denial: seen.denial,
    refused: performed?.error === undefined ? undefined : { kind: performed.effect.kind, error: performed.error },
  }
}

/**
 * Returns the ID of the cluster. Before the cluster is formed, only its first member counts: other members belong to a
 * former cluster. The same holds while a cluster is recovered, unless its former members follow a leader again, or one
 * of them is ready. None was ready when the recovery began, so this one has found a quorum.
 */
export function clusterIdOf(
  object: ClusterObject,
  answers: Seen['answers'],
  pods: readonly PodObject[],
): string | undefined {
  const { clusterID, recovering } = object.status
  if (clusterID !== undefined && recovering === undefined) return clusterID
  const hasLeader = Object.values(answers).some((one) => one.clusterID === clusterID && one.leader !== NO_LEADER)
  return hasLeader || (recovering !== undefined && readyFormer(object, pods).length > 0)
    ? clusterID
    : (answers[seedName(object)]?.clusterID ?? clusterID)
}

const NO_LEADER = '0'

/** Returns the members that a quorum has confirmed last, as far as they are ready. */
export const readyFormer = ({ status: { members } }: ClusterObject, pods: readonly PodObject[]): string[] =>
  [...(members?.ready ?? []), ...(members?.unready ?? [])].filter((name) => isReady(named(pods, name))).sort()

/** Returns the names of members. A name is recorded before the member votes, so the names include all voters. */
function namesIn({ status: { clusterID, members } }: ClusterObject, pods: readonly PodObject[]): string[] {
  if (clusterID === undefined || members === undefined) return pods.map(({ metadata }) => metadata.name)
  return [...members.ready, ...members.unready].sort()
}

/** Returns all Secrets that the spec names, or that the function has made. */
export const secretsOf = ({ object, owned, related }: Pick<EtcdRun, 'object' | 'owned' | 'related'>): SecretObject[] =>
  object.spec.TLS?.auto === undefined
    ? [PeerSecret, ServerSecret, OperatorSecret].flatMap((kind) => related(kind))
    : owned(Secret)

/** Returns the leader that the members with the newest term follow, if that leader answers. */
function leaderAmong(members: readonly ListedMember[], answers: Seen['answers']): string | undefined {
  const heard = Object.values(answers).filter((one) => members.some(({ id }) => id === one.id))
  const newest = Math.max(...heard.map(({ term }) => term))
  const followed = heard.filter(({ term }) => term === newest).map(({ leader }) => leader)
  return heard.find(({ id }) => followed.includes(id))?.id
}

const byName = (a: { metadata: { name: string } }, b: { metadata: { name: string } }): number =>
  a.metadata.name < b.metadata.name ? -1 : 1

export const votes = ({ isLearner }: Member): boolean => !isLearner

/** Whether the processes of a pod have ended and are not started again. */
export const hasEnded = ({ metadata, status }: PodObject): boolean =>
  metadata.deletionTimestamp === undefined && (status?.phase === 'Failed' || status?.phase === 'Succeeded')

export const isGoing = (pod: PodObject): boolean => pod.metadata.deletionTimestamp !== undefined || hasEnded(pod)

/** Whether the member votes and reaches a quorum, by its readiness probe. */
export const isReady = (pod: PodObject | undefined): boolean =>
  pod !== undefined && !isGoing(pod) && readiness(pod)?.status === 'True'

export const readiness = ({ status }: PodObject) => status?.conditions?.find(({ type }) => type === 'Ready')

/** Returns for how many seconds a pod has not been ready. This counts from a time that the API server has recorded. */
export function unreadyFor({ now }: Cluster, pod: PodObject): number {
  const since = readiness(pod)?.lastTransitionTime ?? pod.metadata.creationTimestamp
  return since === undefined ? 0 : (now.getTime() - Date.parse(since)) / 1000
}
