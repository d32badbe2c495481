import type { RestoreObject } from '#functions/etcd-restore'
import { type Run, Secret } from '#sdk'
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

/** What a decision is given of a run. */
export type Given = Pick<EtcdRun, 'object' | 'owned' | 'related' | 'now' | 'performed' | 'secret'> & { external: Seen }

/** One member: what etcd and what Kubernetes say of it. */
export interface Member {
  name: string
  id: string
  peerURL: string
  isLearner: boolean
  /** It has joined once, so that an empty disk is a lost one. */
  isStarted: boolean
  pod: PodObject | undefined
  claim: ClaimObject | undefined
  /** What it says itself; undefined: nothing. */
  answer: Answer | undefined
  /** It answers, and follows the leader. */
  isHealthy: boolean
  /** Its pod was made by another policy than that of the spec. */
  isOutdated: boolean
}

/** All that a decision is made on. */
export interface Cluster {
  object: ClusterObject
  now: Date
  /** That the spec names, or that are the function's own. */
  secrets: readonly SecretObject[]
  /** Where the function is the authority, and has recorded that. */
  tls: Tls | undefined
  /** Tells pods that are as the spec says from those that are to be replaced. */
  policy: string
  /** What asks for other data. */
  restore: RestoreObject | undefined
  pods: readonly PodObject[]
  /** Without those that are being deleted. */
  claims: readonly ClaimObject[]
  /** Of members of this cluster. */
  answers: readonly (Answer & { name: string })[]
  /** Of etcd. Undefined: it has not been formed. */
  clusterID: string | undefined
  /** Undefined: no quorum has confirmed who the members are. */
  members: readonly Member[] | undefined
  /** Those of them that vote. */
  voters: readonly Member[]
  /** Of the members, as they were known last. */
  names: readonly string[]
  /** Number of members when that was known last. */
  lastSize: number
  /** It answers, and members follow it. */
  leader: (Member & { answer: Answer }) | undefined
  /** Undefined: not known. */
  isAuthEnabled: boolean | undefined
  /** Why etcd does not answer this user. */
  denial: string | undefined
  /** What was tried in this run and refused by etcd. */
  refused: { kind: string; error: string } | undefined
}

/** A cluster that can be changed. */
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
  const clusterID = clusterIdOf(object, seen.answers)
  // A member of another cluster has no say, whatever its name.
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
    // A member that no quorum confirms may not know of the newest.
    lastSize: isCurrent ? voters.length : Math.max(voters.length, object.status.size ?? 0, 1),
    leader: listed.find((one): one is Member & { answer: Answer } => one.answer !== undefined && one.id === leaderID),
    isAuthEnabled: seen.isAuthEnabled,
    denial: seen.denial,
    refused: performed?.error === undefined ? undefined : { kind: performed.effect.kind, error: performed.error },
  }
}

/**
 * Before the cluster is formed, its first member alone has a say: others are left of a cluster of before. The same holds
 * when a cluster is recovered, unless members of it follow a leader again.
 */
export function clusterIdOf(object: ClusterObject, answers: Seen['answers']): string | undefined {
  const { clusterID, recovering } = object.status
  if (clusterID !== undefined && recovering === undefined) return clusterID
  const hasLeader = Object.values(answers).some((one) => one.clusterID === clusterID && one.leader !== NO_LEADER)
  return hasLeader ? clusterID : (answers[seedName(object)]?.clusterID ?? clusterID)
}

const NO_LEADER = '0'

/** Recorded before a member votes, and so of all that do. */
function namesIn({ status: { clusterID, members } }: ClusterObject, pods: readonly PodObject[]): string[] {
  if (clusterID === undefined || members === undefined) return pods.map(({ metadata }) => metadata.name)
  return [...members.ready, ...members.unready].sort()
}

/** All that the spec names, or that the function has made. */
export const secretsOf = ({ object, owned, related }: Pick<EtcdRun, 'object' | 'owned' | 'related'>): SecretObject[] =>
  object.spec.TLS?.auto === undefined
    ? [PeerSecret, ServerSecret, OperatorSecret].flatMap((kind) => related(kind))
    : owned(Secret)

/** Whom the members that have seen the newest election follow, if it answers. */
function leaderAmong(members: readonly ListedMember[], answers: Seen['answers']): string | undefined {
  const heard = Object.values(answers).filter((one) => members.some(({ id }) => id === one.id))
  const newest = Math.max(...heard.map(({ term }) => term))
  const followed = heard.filter(({ term }) => term === newest).map(({ leader }) => leader)
  return heard.find(({ id }) => followed.includes(id))?.id
}

const byName = (a: { metadata: { name: string } }, b: { metadata: { name: string } }): number =>
  a.metadata.name < b.metadata.name ? -1 : 1

export const votes = ({ isLearner }: Member): boolean => !isLearner

/** Its processes have ended, and are not started again. */
export const hasEnded = ({ metadata, status }: PodObject): boolean =>
  metadata.deletionTimestamp === undefined && (status?.phase === 'Failed' || status?.phase === 'Succeeded')

export const isGoing = (pod: PodObject): boolean => pod.metadata.deletionTimestamp !== undefined || hasEnded(pod)

/** By its readiness probe it votes and reaches a quorum. */
export const isReady = (pod: PodObject | undefined): boolean =>
  pod !== undefined && !isGoing(pod) && readiness(pod)?.status === 'True'

const readiness = ({ status }: PodObject) => status?.conditions?.find(({ type }) => type === 'Ready')

/** For how long a pod has not been ready, in seconds; counted from what the API server has, not from a clock of ours. */
export function unreadyFor({ now }: Cluster, pod: PodObject): number {
  const since = readiness(pod)?.lastTransitionTime ?? pod.metadata.creationTimestamp
  return since === undefined ? 0 : (now.getTime() - Date.parse(since)) / 1000
}
