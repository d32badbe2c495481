import { type Cluster, isHealthy, isReady, type Member, votes } from './cluster.ts'
import { imageIn, imageOf, versionIn, withVersion } from './pod.ts'
import { moveLeader, said } from './replacement.ts'
import type { Step } from './step.ts'
import { refusedPath } from './version.ts'

/** The version of the spec, in place: followers first, the leader last, each of them healthy before the next. */
export function upgrade(cluster: Cluster): Step | undefined {
  const { object, leader, members = [] } = cluster
  const condition = 'Upgrading'
  const refusal = refusedPath(object)
  if (refusal !== undefined) return { reason: 'VersionPathNotSupported', message: refusal, isStuck: true }
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
  if (old.length === 0) return undefined
  // Recorded first, so that whoever goes on knows what is under way.
  if (object.status.targetVersion !== version) return { condition, reason, message: why, after: 1 }
  const next = old.find((one) => one !== leader) ?? old[0]
  if (next?.pod === undefined) return undefined
  if (next === leader && members.some((one) => one !== leader && votes(one)))
    return moveLeader(cluster, condition, reason, why)
  return { condition, reason, message: why, put: [withVersion(object, next.pod, version)] }
}
