import { type KubeObject, type ReconcileOutcome, Secret } from '#sdk'
import { demandUser, switchAuth } from './auth.ts'
import { kept } from './authorities.ts'
import { type Cluster, clusterOf, type Given, type Led } from './cluster.ts'
import { eventsOf } from './events.ts'
import { demandSecrets, form, waitForQuorum } from './formation.ts'
import { defragment, freeSpace, replaceCorrupt } from './maintenance.ts'
import { withObstacles } from './obstacles.ts'
import { named, partsOf } from './parts.ts'
import { claimFor, hasClaims } from './pod.ts'
import { beginRecovery, recover, returnedOf } from './recovery.ts'
import { awaitMembers, makePods, removeDead } from './replacement.ts'
import { beginRestore, endFormer } from './restoration.ts'
import { nextTlsTime, prepareTls, renewTls, rotate } from './rotation.ts'
import { grow, promote, shrink } from './scaling.ts'
import type { EtcdEffect } from './seen.ts'
import { statusOf } from './status.ts'
import type { Step } from './step.ts'
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
