import { type Cluster, isHealthy, isReady, type Member, votes } from './cluster.ts'
import { imageIn, imageOf, versionIn, withVersion } from './pod.ts'
import { moveLeader, said } from './replacement.ts'
import type { Answer } from './seen.ts'
import type { Step } from './step.ts'
import { isDowngrading, minorOf, refusedPath } from './version.ts'

/** The version of the spec, in place: followers first, the leader last, each of them healthy before the next. */
export function upgrade(cluster: Cluster): Step | undefined {
  const { object, leader, members = [] } = cluster
  const condition = 'Upgrading'
  if (refusedPath(object) !== undefined) return undefined
  const version = versionIn(object)
  const isNew = ({ pod }: Member): boolean => pod !== undefined && imageIn(pod) === imageOf(object, version)
  const old = members.filter((one) => !isNew(one))
  const runsIt = (one: Member): boolean =>
    isHealthy(cluster, one) && isReady(one.pod) && (!isNew(one) || one.answer?.version === version)
  const waiting = members.filter((one) => votes(one) && !runsIt(one))
  const reason = 'UpgradingMembers'
  const why = `${members.length - old.length} of ${members.length} members have the image of ${version}`
  if (waiting.length > 0 && (old.length > 0 || object.status.currentVersion !== version))
    return { condition, reason, message: `${why}; waits for ${said(waiting)}`, after: 2 }
  if (old.length === 0) return cancel(cluster, version)
  const preparation = isDowngrading(object) ? prepare(cluster, version, why) : undefined
  if (preparation !== undefined) return preparation
  // Recorded first, so that whoever goes on knows what is under way.
  if (object.status.targetVersion !== version) return { condition, reason, message: why, after: 1 }
  const next = old.find((one) => one !== leader) ?? old[0]
  if (next?.pod === undefined) return undefined
  if (next === leader && members.some((one) => one !== leader && votes(one)))
    return moveLeader(cluster, condition, reason, why)
  return { condition, reason, message: why, put: [withVersion(object, next.pod, version)] }
}

/** Last, so that everything else goes on. */
export function refuseVersion({ object }: Cluster): Step | undefined {
  const message = refusedPath(object)
  return message === undefined ? undefined : { reason: 'VersionPathNotSupported', message, isStuck: true }
}

/** Before an older version can start, etcd has to write its data as that one does. */
function prepare(cluster: Cluster, version: string, why: string): Step | undefined {
  const { leader, members = [] } = cluster
  if (members.every(({ answer }) => isPrepared(answer, version))) return undefined
  const step = { condition: 'Upgrading', reason: 'PreparingDowngrade', message: why } as const
  if (leader?.answer === undefined || leader.answer.downgradeTo !== undefined) return { ...step, after: 2 }
  return { ...step, effect: { kind: 'downgrade', via: leader.name, action: 'enable', version: minorOf(version) } }
}

export const isPrepared = (answer: Answer | undefined, version: string): boolean =>
  answer !== undefined && minorOf(answer.storageVersion || answer.version) === minorOf(version)

/** A downgrade that the spec does not want any more. */
function cancel({ leader }: Cluster, version: string): Step | undefined {
  const to = leader?.answer?.downgradeTo
  if (leader === undefined || to === undefined || minorOf(to) === minorOf(version)) return undefined
  const effect = { kind: 'downgrade', via: leader.name, action: 'cancel', version: '' } as const
  return { condition: 'Upgrading', reason: 'CancellingDowngrade', message: `no downgrade to ${to} is wanted`, effect }
}
