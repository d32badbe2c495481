import { type ConditionUpdate, type EventReport, type KubeObject, type ReconcileOutcome, Secret } from 'fairlead'
import { kept } from './authorities.ts'
import { ROOT, userIn } from './certificates.ts'
import { type Cluster, clusterOf, type Given, type Led } from './cluster.ts'
import { correctImages, demandSecrets, form, waitForQuorum } from './formation.ts'
import { withObstacles } from './obstacles.ts'
import { named, partsOf } from './parts.ts'
import { claimFor, hasClaims } from './pod.ts'
import { beginRecovery, recover, returnedOf } from './recovery.ts'
import {
  awaitMembers,
  defragment,
  freeSpace,
  grow,
  makePods,
  promote,
  removeDead,
  replaceCorrupt,
  shrink,
} from './replacement.ts'
import { beginRestore, endFormer } from './restoration.ts'
import { nextTlsTime, prepareTls, renewTls, rotate } from './rotation.ts'
import type { EtcdEffect } from './seen.ts'
import { statusOf } from './status.ts'
import { refuse, type Step } from './step.ts'
import { clientTls } from './tls.ts'
import { refuseVersion, upgrade } from './upgrade.ts'

export type Decision = ReconcileOutcome<ReturnType<typeof statusOf>['status'], EtcdEffect>

/**
 * Decides on one step: the desired objects in Kubernetes, and at most one change of etcd. The same state gives the same
 * step.
 */
export function decide(run: Given): Decision {
  const cluster = clusterOf(run)
  const { object } = cluster
  const step = object.spec.paused ? undefined : withObstacles(stepOf(cluster), cluster.pods)
  const status = statusOf(cluster, step)
  const told = { ...status, events: eventsOf(cluster, status, step) }
  if (object.spec.paused || step?.touchesNothing === true) return told
  const at = nextTlsTime(cluster)
  // A TLS state that this step records changes the Secrets in the next step.
  const secrets = step?.tls === undefined && cluster.tls ? cluster.tls.secrets : kept(run.owned(Secret))
  return {
    apply: [...wanted(cluster, step), ...secrets],
    ...told,
    ...(step?.effect && { effect: step.effect }),
    ...(step?.after !== undefined && { requeueAfter: step.after }),
    ...(at && { requeueAt: at }),
  }
}

/** A rule, and the condition that is True while the rule has a step. */
type Rule<C> = readonly [condition: Step['condition'], stepIn: (cluster: C) => Step | undefined]

/**
 * The rules in order: the first rule with a step applies. A later rule may rely on the checks of the rules before it.
 */
const BEGINNINGS: readonly Rule<Cluster>[] = [
  [undefined, demandSecrets],
  [undefined, prepareTls],
  ['Maintaining', renewTls],
  [undefined, demandUser],
  ['Recovering', beginRestore],
  ['Recovering', endFormer],
  ['Recovering', beginRecovery],
  ['Recovering', recover],
  [undefined, form],
  ['Recovering', correctImages],
  ['Recovering', waitForQuorum],
  ['Recovering', makePods],
]

/** The rules that need a quorum and its leader. */
const CHANGES: readonly Rule<Led>[] = [
  ['Recovering', replaceCorrupt],
  ['Recovering', removeDead],
  ['Scaling', promote],
  ['Scaling', shrink],
  ['Recovering', awaitMembers],
  ['Scaling', grow],
  ['Recovering', freeSpace],
  ['Maintaining', defragment],
  ['Upgrading', upgrade],
  ['Maintaining', switchAuth],
  ['Maintaining', rotate],
  [undefined, refuseVersion],
]

/**
 * The delay in seconds before a change that etcd temporarily refuses is requested again. etcd refuses most changes
 * until its members have been connected for five seconds, and a part of this time has passed at the first request.
 */
const LATER_S = 1

function stepOf(cluster: Cluster): Step | undefined {
  const { members, leader, refused } = cluster
  const step = firstOf(BEGINNINGS, cluster)
  if (step !== undefined) return step
  if (members === undefined || leader === undefined) {
    return { condition: 'Recovering', reason: 'WaitingForLeader', message: 'no leader answers', after: 2 }
  }
  const change = firstOf(CHANGES, { ...cluster, members, leader })
  if (change?.effect === undefined || change.effect.kind !== refused?.kind) return change
  // A change that etcd has just refused is not requested again in this run.
  const { effect: _, ...waits } = change
  return { ...waits, message: `${change.message}; etcd refuses for now: ${refused.error}`, after: LATER_S }
}

function firstOf<C>(rules: readonly Rule<C>[], cluster: C): Step | undefined {
  for (const [condition, stepIn] of rules) {
    const step = stepIn(cluster)
    if (step !== undefined) return condition === undefined || step.isStuck ? step : { condition, ...step }
  }
  return undefined
}

/**
 * Returns the desired objects. A pod or a claim is deleted only when a quorum has confirmed that it belongs to no
 * member. The disks of a former cluster are deleted last, except those of members that were ready meanwhile.
 */
function wanted(cluster: Cluster, step: Step | undefined): KubeObject[] {
  const { object, pods, claims, members, voters } = cluster
  const { put = [], drop = [] } = step ?? {}
  const { clusterID, phase } = object.status
  const isMember = ({ metadata }: KubeObject): boolean =>
    members === undefined || members.some(({ name }) => name === metadata.name)
  const notIn = (objects: readonly KubeObject[]) => (one: KubeObject) => named(objects, one.metadata.name) === undefined
  const returned = returnedOf(cluster)
  const keptClaims = claims.filter(
    (claim) => phase !== 'Running' || isMember(claim) || returned.includes(claim.metadata.name),
  )
  const newPods = hasClaims(object) ? put.filter(notIn(pods)) : []
  const newClaims = newPods.filter(notIn(keptClaims)).map(({ metadata }) => claimFor(object, metadata.name))
  const keptPods = pods
    .filter((pod) => (clusterID === undefined || isMember(pod)) && !drop.includes(pod.metadata.name))
    .filter(notIn(put))
  return [...partsOf(object, voters.length), ...keptClaims, ...newClaims, ...keptPods, ...put]
}

type Status = Partial<Cluster['object']['status']>

/** The steps for which the function publishes an Event while they are made. */
const GRAVE = new Set(['ReplacingDeadMember', 'CorruptMember', 'NoSpace'])

/**
 * Returns the Events of a run, as the difference between the stored status and the new one. So an Event reports an
 * observed change, and is repeated only if a process dies before the status is written.
 */
function eventsOf(
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

/**
 * Returns a step if etcd demands a user and this function has none: the snapshot contains users, or the certificate has
 * another CN.
 */
function demandUser({ denial }: Cluster): Step | undefined {
  if (denial === undefined) return undefined
  const message =
    `etcd answers "${denial}": it demands users, and takes the CN of the certificate in the operator's Secret for the user. ` +
    `Set TLS in the spec, with an operator's certificate of CN=${ROOT}`
  return refuse('UserDemanded', message)
}

/** Enables or disables authentication. The user of this function becomes root before etcd demands users. */
function switchAuth({ object, secrets, leader, isAuthEnabled }: Led): Step | undefined {
  const wanted = object.spec.auth?.enabled
  if (wanted === undefined) return undefined
  const user = wanted ? userIn(clientTls(object, secrets)?.cert ?? '') : ROOT
  if (user !== ROOT) {
    const message =
      `the certificate in the operator's Secret has CN=${user ?? ''}, which is not a user of etcd that may change members: ` +
      `give it CN=${ROOT}, and auth is enabled`
    return { reason: 'OperatorNotRoot', message, isStuck: true }
  }
  if (isAuthEnabled === wanted) return undefined
  const step = wanted
    ? { reason: 'EnablingAuth', message: `the certificate of CN=${ROOT} becomes that of the user ${ROOT}` }
    : { reason: 'DisablingAuth', message: 'etcd demands no users any more' }
  if (isAuthEnabled === undefined)
    return { ...step, message: 'etcd does not report whether it requires users', after: 5 }
  return { ...step, effect: { kind: wanted ? 'enableAuth' : 'disableAuth', via: leader.name } }
}
