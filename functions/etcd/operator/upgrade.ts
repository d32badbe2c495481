import { type Cluster, isReady, type Led, type Member } from './cluster.ts'
import { hasPresentStatus, imageIn, imageOf, versionIn, withVersion } from './pod.ts'
import { moveLeader } from './replacement.ts'
import { type Step, said, wait } from './step.ts'
import { isDowngrading, minorOf, refusedPath } from './version.ts'

/**
 * Upgrades members in place to the version in the spec: followers first, the leader last. The pod of each member must be
 * ready with its new container before the next one is changed.
 */
export function upgrade(cluster: Led): Step | undefined {
  const { object, leader, members, voters } = cluster
  if (refusedPath(object) !== undefined) return undefined
  const version = versionIn(object)
  const isNew = hasImageOf(object, version)
  const old = members.filter((one) => !isNew(one))
  const message = `${members.length - old.length} of ${members.length} members have the image of ${version}`
  const step = { reason: 'UpgradingMembers', message }
  const late = voters.filter((one) => !isServing(one) || (isNew(one) && one.answer?.version !== version))
  if (late.length > 0 && (old.length > 0 || object.status.currentVersion !== version))
    return wait(step, `waits for ${said(late)}`)
  const next = old.find((one) => one !== leader) ?? old[0]
  if (next?.pod === undefined) return cancelDowngrade(leader, version)
  if (isUnprepared(cluster)) return prepareDowngrade(leader, { ...step, reason: 'PreparingDowngrade' }, version)
  // The target version is recorded first, so that the next run can continue the upgrade.
  if (object.status.targetVersion !== version) return { ...step, after: 1 }
  if (next === leader && voters.length > 1) return moveLeader(cluster, step)
  return { ...step, put: [withVersion(object, next.pod, version)] }
}

const hasImageOf =
  (object: Cluster['object'], version: string) =>
  ({ pod }: Member): boolean =>
    pod !== undefined && imageIn(pod) === imageOf(object, version)

/** Whether the pod of a member is ready with its present image. */
const isServing = ({ pod }: Member): boolean => pod !== undefined && isReady(pod) && hasPresentStatus(pod)

/** Whether all members run the version. */
export const isUpgraded = ({ object, members = [] }: Cluster, version: string): boolean =>
  members.length > 0 &&
  members.every((one) => hasImageOf(object, version)(one) && isServing(one) && one.answer?.version === version)

/** Reports an unsupported version. This rule is last, so that all other steps continue. */
export function refuseVersion({ object }: Cluster): Step | undefined {
  const message = refusedPath(object)
  return message === undefined ? undefined : { reason: 'VersionPathNotSupported', message, isStuck: true }
}

/**
 * Whether a downgrade is not prepared yet. Before an older version can start, all members must write their data in its
 * format.
 */
export function isUnprepared({ object, members = [] }: Cluster): boolean {
  const written = members.map(({ answer }) => answer && minorOf(answer.storageVersion || answer.version))
  return isDowngrading(object) && written.some((version) => version !== minorOf(versionIn(object)))
}

function prepareDowngrade({ name: via, answer }: Led['leader'], step: Step, version: string): Step {
  if (answer.downgradeTo !== undefined) return { ...step, after: 2 }
  return { ...step, effect: { kind: 'downgrade', via, action: 'enable', version: minorOf(version) } }
}

/** Cancels a downgrade that the spec no longer requests. */
function cancelDowngrade({ name: via, answer: { downgradeTo } }: Led['leader'], version: string): Step | undefined {
  if (downgradeTo === undefined || minorOf(downgradeTo) === minorOf(version)) return undefined
  const message = `no downgrade to ${downgradeTo} is wanted`
  return { reason: 'CancellingDowngrade', message, effect: { kind: 'downgrade', via, action: 'cancel', version: '' } }
}
