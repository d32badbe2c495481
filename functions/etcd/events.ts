import type { ConditionUpdate, EventReport } from '#sdk'
import type { Cluster } from './cluster.ts'
import type { Step } from './step.ts'

type Status = Partial<Cluster['object']['status']>

/** The steps for which the function publishes an Event while they are made. */
const GRAVE = new Set(['ReplacingDeadMember', 'CorruptMember', 'NoSpace'])

/**
 * Returns the Events of a run, as the difference between the stored status and the new one. So an Event reports an
 * observed change, and is repeated only if a process dies before the status is written.
 */
export function eventsOf(
  { object, members }: Cluster,
  { status: after, conditions }: { status: Status; conditions: readonly ConditionUpdate[] },
  step: Step | undefined,
): EventReport[] {
  const before: Status = object.status
  const { conditions: former = [] } = object.status
  const available = conditions.find(({ type }) => type === 'Available')
  const refusal = conditions.find(({ reason }) => reason === 'RecoveryRefused' || reason === 'RestoreRefused')
  const isSame = before.clusterID === after.clusterID
  const isNews = (reason: string, type: string): boolean => former.find((one) => one.type === type)?.reason !== reason
  return [
    ...when(!isSame && after.clusterID !== undefined, normal('ClusterFormed', formedBy(after))),
    ...when(isAdded('recovering', before, after), warning('RecoveryStarted', step?.message)),
    ...when(
      isAdded('recovered', before, after),
      normal('Recovered', 'the cluster has the data of a member that was left'),
    ),
    ...when(isSame && isAdded('recovering', after, before), normal('RecoveryEnded', 'members have a quorum again')),
    ...when(isAdded('restoring', before, after), warning('RestoreStarted', step?.message)),
    ...when(isAdded('restoredFrom', before, after), normal('Restored', `the cluster has the data of the EtcdRestore`)),
    ...when(isSame && isAdded('quorumLostSince', before, after), warning('QuorumLost', available?.message)),
    ...when(isSame && isAdded('quorumLostSince', after, before), normal('QuorumRegained', available?.message)),
    ...when(
      refusal?.reason !== undefined && isNews(refusal.reason, 'Recovering'),
      warning(refusal?.reason ?? '', refusal?.message),
    ),
    ...(isSame && members !== undefined ? membersBetween(before, after) : []),
    ...when(
      step !== undefined && (step.isStuck === true || GRAVE.has(step.reason)) && isNews(step.reason, 'Progressing'),
      warning(step?.reason ?? '', step?.message),
    ),
  ]
}

const when = (is: boolean, event: EventReport): EventReport[] => (is ? [event] : [])
const normal = (reason: string, message = ''): EventReport => ({ type: 'Normal', reason, message })
const warning = (reason: string, message = ''): EventReport => ({ type: 'Warning', reason, message })

type Mark = 'recovering' | 'recovered' | 'restoring' | 'restoredFrom' | 'quorumLostSince'
const isAdded = (mark: Mark, from: Status, to: Status): boolean => to[mark] !== undefined && to[mark] !== from[mark]

const namesIn = ({ members }: Status): string[] => [...(members?.ready ?? []), ...(members?.unready ?? [])].sort()
const formedBy = (status: Status): string => `member ${namesIn(status).join(', ')} has formed the cluster`

/** Returns Events for members that joined, that vote now, that left, and that run another version. */
function membersBetween(before: Status, after: Status): EventReport[] {
  const [were, are] = [namesIn(before), namesIn(after)]
  const votes = (before.members?.learners ?? []).filter((name) => are.includes(name) && !isLearner(after, name))
  const versions = Object.entries(after.versions ?? {}).flatMap(([name, version]) => {
    const former = before.versions?.[name]
    return former === undefined || former === version
      ? []
      : [normal('MemberUpgraded', `member ${name} runs ${version} instead of ${former}`)]
  })
  const { currentVersion } = after
  const isUpgraded = before.currentVersion !== undefined && before.currentVersion !== currentVersion
  return [
    ...are.filter((name) => !were.includes(name)).map((name) => normal('NewMemberAdded', `member ${name} was added`)),
    ...votes.map((name) => normal('MemberPromoted', `member ${name} votes`)),
    ...were.filter((name) => !are.includes(name)).map((name) => normal('MemberRemoved', `member ${name} was removed`)),
    ...versions,
    ...when(isUpgraded, normal('Upgraded', `all members run ${currentVersion} instead of ${before.currentVersion}`)),
  ]
}

const isLearner = ({ members }: Status, name: string): boolean => members?.learners.includes(name) === true
