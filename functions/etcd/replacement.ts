import { type Cluster, isGoing, isHealthy, isReady, type Member, unreadyFor, votes } from './cluster.ts'
import { type PodObject, quorumOf } from './parts.ts'
import { claimFor, claims, imageIn, imageOf, isOutdated, podFor, wasToldOf } from './pod.ts'
import type { Step } from './step.ts'
import { versionFor } from './version.ts'

/** A member that is silent for so long is replaced, in seconds. */
const SILENT_S = 300
/** A process that ends so often before it answers has lost what it knew. */
const RESTARTS = 5

/** Members whose pod is missing get one: those that have just been added, and those that have their disk. */
export function makePods({ object, policy, members = [] }: Cluster): Step | undefined {
  const names = members.map(({ name }) => name)
  const keepsData = ({ claim, isStarted }: Member): boolean => claim !== undefined || !isStarted
  const able = members.filter(keepsData)
  const lacking = able.filter(({ pod }) => pod === undefined)
  const birth = { members: names, state: 'existing', version: versionFor(object) } as const
  if (lacking.length > 0)
    return {
      condition: lacking.some(votes) ? 'Recovering' : 'Scaling',
      reason: 'CreatingMember',
      message: `members ${said(lacking)} get a pod`,
      put: lacking.map(({ name }) => podFor(object, { name, ...birth }, policy)),
      claims: claims(object)
        ? lacking.filter(({ claim }) => claim === undefined).map(({ name }) => claimFor(object, name))
        : [],
    }
  // It joins only if it is told of the very members that there are.
  const isMisinformed = ({ pod, isStarted, answer }: Member): boolean =>
    pod !== undefined && !isStarted && answer === undefined && !wasToldOf(object, pod, names)
  const useless = able.filter((one) => one.pod !== undefined && (hasEnded(one.pod) || isMisinformed(one)))
  if (useless.length === 0) return undefined
  const message = `pods of members ${said(useless)} are made again`
  return { condition: 'Recovering', reason: 'RecreatingPod', message, drop: useless.map(({ name }) => name) }
}

const hasEnded = ({ metadata, status }: PodObject): boolean =>
  metadata.deletionTimestamp === undefined && (status?.phase === 'Failed' || status?.phase === 'Succeeded')

/** A dead member is removed, one at a time. The next steps add another one in its place. */
export function removeDead(cluster: Cluster): Step | undefined {
  const { members = [] } = cluster
  const dead = members.filter((member) => isDead(cluster, member))
  const [victim] = dead.toSorted((a, b) => Number(a.isLearner) - Number(b.isLearner))
  return victim && removal(cluster, victim, 'Recovering', 'ReplacingDeadMember', `member ${victim.name} is dead`)
}

/** A member that does not answer may come back; until it counts as dead, no event tells how long it has been away. */
export function awaitMembers(cluster: Cluster): Step | undefined {
  const away = (cluster.members ?? []).filter((one) => !isHealthy(cluster, one))
  if (away.length === 0) return undefined
  const left = away.map(({ pod }) => SILENT_S - (pod ? unreadyFor(cluster, pod) : 0))
  return {
    condition: 'Recovering',
    reason: 'WaitingForMember',
    message: `${said(away)} should answer, and is replaced after ${SILENT_S} s without an answer`,
    after: Math.max(2, Math.min(...left, 30)),
  }
}

function isDead(cluster: Cluster, { pod, claim, isStarted, answer }: Member): boolean {
  if (isStarted && claim === undefined && (pod === undefined || isGoing(pod))) return true
  if (pod === undefined || answer !== undefined || isReady(pod)) return false
  return unreadyFor(cluster, pod) >= SILENT_S || isCrashing(pod)
}

function isCrashing({ status }: PodObject): boolean {
  const etcd = status?.containerStatuses?.find(({ name }) => name === 'etcd')
  const isOutOfMemory = etcd?.lastState?.terminated?.reason === 'OOMKilled'
  return etcd?.state?.waiting?.reason === 'CrashLoopBackOff' && etcd.restartCount >= RESTARTS && !isOutOfMemory
}

/** Removes a member, unless those that stay would have no quorum of healthy ones, or it leads. */
export function removal(
  cluster: Cluster,
  victim: Member,
  condition: NonNullable<Step['condition']>,
  reason: string,
  why: string,
): Step {
  const { leader, members = [] } = cluster
  const stay = members.filter((one) => one !== victim && votes(one))
  const healthy = stay.filter((one) => isHealthy(cluster, one))
  const wait = (message: string): Step => ({ condition, reason, message: `${why}; ${message}`, after: 2 })
  if (leader === undefined) return wait('there is no leader')
  if (!victim.isLearner && healthy.length < quorumOf(stay.length))
    return wait(`without it ${healthy.length} of ${stay.length} members are healthy`)
  if (victim === leader) return moveLeader(cluster, condition, reason, why)
  return { condition, reason, message: why, effect: { kind: 'remove', via: leader.name, id: victim.id } }
}

/** To a healthy member that is to stay as it is, if there is one; of these, to the one that has most. */
export function moveLeader(
  cluster: Cluster,
  condition: NonNullable<Step['condition']>,
  reason: string,
  why: string,
): Step {
  const { object, policy, leader, members = [] } = cluster
  const image = imageOf(object, versionFor(object))
  const stays = ({ pod }: Member): boolean => pod !== undefined && !isOutdated(policy, pod) && imageIn(pod) === image
  const [next] = members
    .filter((one) => one !== leader && votes(one) && isHealthy(cluster, one) && one.pod && !isGoing(one.pod))
    .toSorted(
      (a, b) => Number(stays(b)) - Number(stays(a)) || (b.answer?.appliedIndex ?? 0) - (a.answer?.appliedIndex ?? 0),
    )
  const step = { condition, reason }
  if (leader === undefined || next === undefined)
    return { ...step, message: `${why}; no other member can lead`, after: 2 }
  return {
    ...step,
    message: `${why}; ${next.name} is to lead`,
    effect: { kind: 'moveLeader', via: leader.name, to: next.id },
  }
}

export const said = (members: readonly Member[]): string => members.map(({ name }) => name).join(', ')
