import { type Cluster, isHealthy, type Member, votes } from './cluster.ts'
import { nextName, peerUrlOf } from './names.ts'
import { isOutdated } from './pod.ts'
import { removal, said } from './replacement.ts'
import type { Step } from './step.ts'

/** A learner may lack so many entries of the log when it becomes a voter. etcd itself would take a tenth of all. */
const MAX_LAG = 1000

const votersOf = ({ members = [] }: Cluster): Member[] => members.filter(votes)
const outdated = ({ policy, members = [] }: Cluster): Member[] =>
  members.filter(({ pod }) => pod !== undefined && isOutdated(policy, pod))

/** More members than there are to vote: those that are to go, by the number that the spec says. */
const isOneMoreWanted = (cluster: Cluster): boolean => {
  const { size } = cluster.object.spec
  const voters = votersOf(cluster).length
  return voters < size || (voters === size && outdated(cluster).some(votes))
}

/** The one learner becomes a voter when it has caught up, and goes when it is not wanted. */
export function promote(cluster: Cluster): Step | undefined {
  const { leader, members = [], policy } = cluster
  const learner = members.find(({ isLearner }) => isLearner)
  if (learner === undefined) return undefined
  const { name, id, answer, pod } = learner
  if (!isOneMoreWanted(cluster) || (pod !== undefined && isOutdated(policy, pod)))
    return removal(cluster, learner, 'Scaling', 'RemovingLearner', `learner ${name} is not wanted any more`)
  const waits = (message: string): Step => ({
    condition: 'Scaling',
    reason: 'WaitingForLearner',
    message: `learner ${name} ${message}`,
    after: 1,
  })
  if (answer === undefined) return waits('does not answer yet')
  if (leader?.answer === undefined) return waits('waits for a leader')
  if (leader.answer.index - answer.appliedIndex > MAX_LAG) return waits('is catching up')
  const message = `learner ${name} becomes a voter`
  return { condition: 'Scaling', reason: 'Promoting', message, effect: { kind: 'promote', via: leader.name, id } }
}

/** One learner at a time, and only where all voters are healthy. */
export function grow(cluster: Cluster): Step | undefined {
  if (!isOneMoreWanted(cluster)) return undefined
  const { object, leader } = cluster
  const voters = votersOf(cluster)
  const { size } = object.spec
  const isReplacing = voters.length === size
  const reason = isReplacing ? 'ReplacingOutdatedMember' : 'AddingMember'
  const condition = 'Scaling'
  const why = isReplacing
    ? `members ${said(outdated(cluster))} have another pod policy than the spec`
    : `${voters.length} of ${size} members are there`
  const unhealthy = voters.filter((one) => !isHealthy(cluster, one))
  if (leader?.answer === undefined || unhealthy.length > 0)
    return { condition, reason, message: `${why}; waits for ${said(unhealthy) || 'a leader'}`, after: 2 }
  const peerURL = peerUrlOf(object, nextName(object, leader.answer.index))
  return { condition, reason, message: why, effect: { kind: 'addLearner', via: leader.name, peerURL } }
}

/** What is unhealthy goes first, then what is outdated, the leader last, and of the rest the newest. */
export function shrink(cluster: Cluster): Step | undefined {
  const { object, policy, leader } = cluster
  const voters = votersOf(cluster)
  const { size } = object.spec
  if (voters.length <= size) return undefined
  const rank = (member: Member): number[] => [
    Number(isHealthy(cluster, member)),
    Number(!(member.pod && isOutdated(policy, member.pod))),
    Number(member === leader),
  ]
  const [victim] = voters.toSorted((a, b) => {
    const [of, against] = [rank(a), rank(b)]
    const at = of.findIndex((number, index) => number !== against[index])
    return at < 0 ? newestFirst(a, b) : (of[at] ?? 0) - (against[at] ?? 0)
  })
  const unhealthy = voters.filter((one) => one !== victim && !isHealthy(cluster, one))
  const why = `${voters.length} members are there, and ${size} are wanted`
  if (victim === undefined) return undefined
  if (unhealthy.length > 0)
    return { condition: 'Scaling', reason: 'RemovingMember', message: `${why}; waits for ${said(unhealthy)}`, after: 2 }
  return removal(cluster, victim, 'Scaling', 'RemovingMember', `${why}; ${victim.name} goes`)
}

const newestFirst = (a: Member, b: Member): number => {
  const [of, against] = [a, b].map(({ pod }) => pod?.metadata.creationTimestamp ?? '')
  return of === against ? (a.name < b.name ? -1 : 1) : (of ?? '') > (against ?? '') ? -1 : 1
}
