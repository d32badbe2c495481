import { type Cluster, hasEnded, isGoing, isReady, type Led, type Member, unreadyFor, votes } from './cluster.ts'
import { joiningPod } from './formation.ts'
import { nextName, peerUrlOf } from './names.ts'
import { type PodObject, quorumOf } from './parts.ts'
import { imageIn, imageOf, mayForm, wasToldOf } from './pod.ts'
import type { Alarm } from './seen.ts'
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
function removal(cluster: Led, victim: Member, step: Step): Step {
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
const lowestFirst = (members: readonly Member[], ...ranks: ((member: Member) => number)[]): Member[] =>
  members.toSorted((a, b) => ranks.reduce((order, rank) => order || rank(a) - rank(b), 0))

/**
 * The number of log entries that a learner may lack when it becomes a voter. etcd itself would accept a tenth of all.
 */
const MAX_LAG = 1000

/** Whether a voter is missing, or must be replaced by another one. */
const isOneMoreWanted = ({ object: { spec }, voters }: Led): boolean =>
  voters.length < spec.size || (voters.length === spec.size && voters.some(({ isOutdated }) => isOutdated))

/** Promotes the one learner when it has caught up, and removes it when it is not wanted. */
export function promote(cluster: Led): Step | undefined {
  const { leader, members } = cluster
  const learner = members.find(({ isLearner }) => isLearner)
  if (learner === undefined) return undefined
  const { name, id, answer } = learner
  if (!isOneMoreWanted(cluster) || learner.isOutdated)
    return removal(cluster, learner, { reason: 'RemovingLearner', message: `learner ${name} is not wanted any more` })
  const isBehind = answer !== undefined && leader.answer.index - answer.appliedIndex > MAX_LAG
  if (answer === undefined || isBehind) {
    const message = `learner ${name} ${isBehind ? 'is catching up' : 'does not answer yet'}`
    return { reason: 'WaitingForLearner', message, after: 1 }
  }
  const message = `learner ${name} becomes a voter`
  return { reason: 'Promoting', message, effect: { kind: 'promote', via: leader.name, id } }
}

/** Adds a member, one learner at a time. */
export function grow(cluster: Led): Step | undefined {
  if (!isOneMoreWanted(cluster)) return undefined
  const { object, leader, voters } = cluster
  const { size } = object.spec
  const outdated = said(voters.filter(({ isOutdated }) => isOutdated))
  const step =
    voters.length < size
      ? { reason: 'AddingMember', message: `${voters.length} of ${size} members are there` }
      : { reason: 'ReplacingOutdatedMember', message: `members ${outdated} have another pod policy than the spec` }
  const peerURL = peerUrlOf(object, nextName(object, leader.answer.index))
  return { ...step, effect: { kind: 'addLearner', via: leader.name, peerURL } }
}

/** Removes a member: first unhealthy ones, then outdated ones, then the newest of the others; the leader last. */
export function shrink(cluster: Led): Step | undefined {
  const { object, leader, voters } = cluster
  const { size } = object.spec
  const [victim] = lowestFirst(
    voters,
    ({ isHealthy }) => Number(isHealthy),
    ({ isOutdated }) => Number(!isOutdated),
    (member) => Number(member === leader),
    ({ pod }) => -Date.parse(pod?.metadata.creationTimestamp ?? '1970-01-01'),
  )
  if (victim === undefined || voters.length <= size) return undefined
  const message = `${voters.length} members are there, and ${size} are wanted; ${victim.name} goes`
  return removal(cluster, victim, { reason: 'RemovingMember', message })
}

const MIB = 1024 * 1024
/** The free space in a file that justifies a defragmentation, during which a member does not answer. */
const FREE_BYTES = 200 * MIB
/** The fraction of the quota from which on a database counts as full. Below it, the alarm is disarmed. */
const FULL = 0.9
/** The default quota, for etcd before 3.6, which does not report it. */
const USUAL_QUOTA = 2048 * MIB

/** Returns the ID of the member that has raised the alarm. */
const raiserOf = ({ answers }: Cluster, kind: Alarm['alarm']): string | undefined =>
  answers.flatMap(({ alarms }) => alarms).find(({ alarm }) => alarm === kind)?.id

/** Replaces the corrupt member and disarms the alarm. Only etcd knows which member differs from the others. */
export function replaceCorrupt(cluster: Led): Step | undefined {
  const id = raiserOf(cluster, 'CORRUPT')
  if (id === undefined) return undefined
  const reason = 'CorruptMember'
  const member = cluster.members.find((one) => one.id === id)
  if (member !== undefined)
    return removal(cluster, member, { reason, message: `member ${member.name} differs from the others` })
  if (id === '0') {
    const message =
      'members differ, and etcd does not know which of them is right: compare their data, or restore a backup'
    return { reason, message, isStuck: true }
  }
  const effect = { kind: 'disarm', via: cluster.leader.name, id, alarm: 'CORRUPT' } as const
  return { reason, message: 'the member that differed is gone', effect }
}

/**
 * Frees space. A full database refuses writes until old revisions are compacted, its files are defragmented, and the
 * alarm is disarmed.
 */
export function freeSpace(cluster: Led): Step | undefined {
  const { leader, voters, refused } = cluster
  const { name: via } = leader
  const id = raiserOf(cluster, 'NOSPACE')
  if (id === undefined) return undefined
  const step = { reason: 'NoSpace', message: 'the database has reached its quota, and writes are refused' }
  const full = voters.filter((one) => shareOf(one, 'dbSize') >= FULL)
  if (full.length === 0)
    return { ...step, message: 'the database has space again', effect: { kind: 'disarm', via, id, alarm: 'NOSPACE' } }
  const helped = full.filter((one) => shareOf(one, 'dbSizeInUse') < FULL)
  if (helped.length > 0) return rewrite(cluster, helped, step)
  if (refused?.kind !== 'compact')
    return { ...step, effect: { kind: 'compact', via, revision: leader.answer.revision } }
  const ways = 'compaction cannot free more: delete keys, or raise ETCD_QUOTA_BACKEND_BYTES in spec.pod.etcdEnv'
  return { ...step, message: `${step.message}; ${ways}`, isStuck: true, after: 60 }
}

/** Defragments files with much free space, one member at a time, in the window in the spec. */
export function defragment(cluster: Led): Step | undefined {
  const { object, now, voters } = cluster
  const worth = voters.filter(({ answer }) => answer && answer.dbSize - answer.dbSizeInUse >= FREE_BYTES)
  if (worth.length === 0) return undefined
  const { fromHour, hours } = object.spec.defragmentation ?? { fromHour: 0, hours: 24 }
  // The hours are hours of the day in UTC. A window may pass midnight.
  if ((now.getUTCHours() - fromHour + 24) % 24 >= hours) return undefined
  return rewrite(cluster, worth, { reason: 'Defragmenting', message: `files of ${said(worth)} have much free space` })
}

/**
 * Defragments the next member. A member does not answer meanwhile, so the leader is last, after it has handed over its
 * leadership.
 */
function rewrite(cluster: Led, members: readonly Member[], step: Step): Step {
  const { leader, voters } = cluster
  const next = members.find((one) => one !== leader) ?? leader
  if (next === leader && voters.length > 1) return moveLeader(cluster, step)
  return { ...step, effect: { kind: 'defragment', via: next.name } }
}

const shareOf = ({ answer }: Member, size: 'dbSize' | 'dbSizeInUse'): number =>
  answer === undefined ? 0 : answer[size] / (answer.dbSizeQuota || USUAL_QUOTA)
