import { type Cluster, hasEnded, isGoing, isReady, type Led, type Member, unreadyFor, votes } from './cluster.ts'
import { joiningPod } from './formation.ts'
import { type PodObject, quorumOf } from './parts.ts'
import { imageIn, imageOf, mayForm, wasToldOf } from './pod.ts'
import { type Step, said, wait } from './step.ts'
import { versionFor } from './version.ts'

/** A member that is silent for this long is replaced, in seconds. */
const SILENT_S = 300
/** A process that restarts this often before it answers has lost its data. */
const RESTARTS = 5

/**
 * Makes pods for members whose pod is missing or unusable: members that were just added, and members that have their
 * disk.
 */
export function makePods(cluster: Cluster): Step | undefined {
  const { object, members = [], names } = cluster
  const able = members.filter(({ claim, isStarted }) => claim !== undefined || !isStarted)
  const lacking = able.filter(({ pod }) => pod === undefined)
  if (lacking.length > 0)
    return {
      ...(!lacking.some(votes) && { condition: 'Scaling' }),
      reason: 'CreatingMember',
      message: `members ${said(lacking)} get a pod`,
      put: lacking.map(({ name }) => joiningPod(cluster, name)),
    }
  const isUseless = ({ pod, claim, isStarted, answer }: Member): boolean => {
    if (pod === undefined) return false
    // A process that was started to form a cluster would do so again if its disk came back empty.
    if (object.status.phase !== 'Running' && claim !== undefined && mayForm(pod)) return true
    // A member joins only if its pod was started with exactly the present members.
    return hasEnded(pod) || (!isStarted && answer === undefined && !wasToldOf(object, pod, names))
  }
  const useless = able.filter(isUseless).map(({ name }) => name)
  const message = `pods of members ${useless.join(', ')} are made again`
  return useless.length > 0 ? { reason: 'RecreatingPod', message, drop: useless } : undefined
}

/** Removes a dead member, one at a time. The next steps add another one in its place. */
export function removeDead(cluster: Led): Step | undefined {
  const dead = cluster.members.filter((member) => isDead(cluster, member))
  const victim = dead.find(votes) ?? dead[0]
  return victim && removal(cluster, victim, { reason: 'ReplacingDeadMember', message: `member ${victim.name} is dead` })
}

/**
 * Waits for members that do not answer. Until a member counts as dead, no event reports how long it has been silent.
 */
export function awaitMembers({ voters }: Led): Step | undefined {
  const away = voters.filter(({ isHealthy }) => !isHealthy)
  const message = `${said(away)} should answer, and is replaced after ${SILENT_S} s without an answer`
  return away.length > 0 ? { reason: 'WaitingForMember', message, after: 5 } : undefined
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

/**
 * Returns the step that removes a member, unless the remaining members would have no quorum of healthy ones, or the
 * member is the leader.
 */
export function removal(cluster: Led, victim: Member, step: Step): Step {
  const { leader, voters } = cluster
  const stay = voters.filter((one) => one !== victim)
  const healthy = stay.filter(({ isHealthy }) => isHealthy)
  if (!victim.isLearner && healthy.length < quorumOf(stay.length))
    return wait(step, `without it ${healthy.length} of ${stay.length} members are healthy`)
  if (victim === leader) return moveLeader(cluster, step)
  return { ...step, effect: { kind: 'remove', via: leader.name, id: victim.id } }
}

/**
 * Moves the leadership to a healthy member, preferably one that is not about to be replaced or upgraded. Among these,
 * the member that has applied the most entries is chosen.
 */
export function moveLeader({ object, voters, leader }: Led, step: Step): Step {
  const image = imageOf(object, versionFor(object))
  const [next] = lowestFirst(
    voters.filter((one) => one !== leader && one.isHealthy && one.pod && !isGoing(one.pod)),
    ({ pod, isOutdated }) => Number(isOutdated || (pod && imageIn(pod)) !== image),
    ({ answer }) => -(answer?.appliedIndex ?? 0),
  )
  if (next === undefined) return wait(step, 'no other member can lead')
  const effect = { kind: 'moveLeader', via: leader.name, to: next.id } as const
  return { ...step, message: `${step.message}; ${next.name} is to lead`, effect }
}

/** Sorts members by the first rank in which they differ. */
export const lowestFirst = (members: readonly Member[], ...ranks: ((member: Member) => number)[]): Member[] =>
  members.toSorted((a, b) => ranks.reduce((order, rank) => order || rank(a) - rank(b), 0))
