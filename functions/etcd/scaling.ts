import type { Led } from './cluster.ts'
import { nextName, peerUrlOf } from './names.ts'
import { lowestFirst, removal } from './replacement.ts'
import { type Step, said } from './step.ts'

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
