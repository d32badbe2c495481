import { type KubeObject, type ReconcileOutcome, Secret } from '#sdk'
import { demandUser, switchAuth } from './auth.ts'
import { kept } from './authorities.ts'
import { type Cluster, clusterOf, type Given, type Led } from './cluster.ts'
import { eventsOf } from './events.ts'
import { demandSecrets, form, waitForQuorum } from './formation.ts'
import { defragment, freeSpace, replaceCorrupt } from './maintenance.ts'
import { named, partsOf } from './parts.ts'
import { claimFor, hasClaims } from './pod.ts'
import { beginRecovery, recover } from './recovery.ts'
import { awaitMembers, makePods, removeDead } from './replacement.ts'
import { beginRestore, endFormer } from './restoration.ts'
import { nextTlsTime, prepareTls, renewTls, rotate } from './rotation.ts'
import { grow, promote, shrink } from './scaling.ts'
import type { EtcdEffect } from './seen.ts'
import { statusOf } from './status.ts'
import type { Step } from './step.ts'
import { refuseVersion, upgrade } from './upgrade.ts'

export type Decision = ReconcileOutcome<ReturnType<typeof statusOf>['status'], EtcdEffect>

/** One step: what Kubernetes is to hold, and at most one change of etcd. The same state gives the same step. */
export function decide(run: Given): Decision {
  const cluster = clusterOf(run)
  const { object } = cluster
  const step = object.spec.paused ? undefined : stepOf(cluster)
  const status = statusOf(cluster, step)
  const told = { ...status, events: eventsOf(cluster, status, step) }
  if (object.spec.paused || step?.touchesNothing === true) return told
  const at = nextTlsTime(cluster)
  // A state that is recorded in this step changes Secrets in the next one.
  const secrets = step?.tls === undefined && cluster.tls ? cluster.tls.secrets : kept(run.owned(Secret))
  return {
    apply: [...wanted(cluster, step), ...secrets],
    ...told,
    ...(step?.effect && { effect: step.effect }),
    ...(step?.after !== undefined && { requeueAfter: step.after }),
    ...(at && { requeueAt: at }),
  }
}

/** A rule, and the condition that is True while it has something to do. */
type Rule<C> = readonly [condition: Step['condition'], stepIn: (cluster: C) => Step | undefined]

/** The first that has something to do is what is done. A later one may rely on what those before have found in order. */
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

/** What a quorum and its leader are needed for. */
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
 * When etcd is asked again for a change that it refuses for the time being, in seconds. It refuses most of them until its
 * members have been connected for five seconds, and part of these are over when it is asked for the first time.
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
  // What etcd has refused a moment ago is not asked for again in this run.
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
 * A pod or a claim goes only when a quorum has confirmed that it is no member's. What a cluster of before has left on disks
 * goes last.
 */
function wanted(cluster: Cluster, step: Step | undefined): KubeObject[] {
  const { object, pods, claims, members, voters } = cluster
  const { put = [], drop = [] } = step ?? {}
  const { clusterID, phase } = object.status
  const isMember = ({ metadata }: KubeObject): boolean =>
    members === undefined || members.some(({ name }) => name === metadata.name)
  const notIn = (objects: readonly KubeObject[]) => (one: KubeObject) => named(objects, one.metadata.name) === undefined
  const keptClaims = claims.filter((claim) => phase !== 'Running' || isMember(claim))
  const newPods = hasClaims(object) ? put.filter(notIn(pods)) : []
  const newClaims = newPods.filter(notIn(keptClaims)).map(({ metadata }) => claimFor(object, metadata.name))
  const keptPods = pods
    .filter((pod) => (clusterID === undefined || isMember(pod)) && !drop.includes(pod.metadata.name))
    .filter(notIn(put))
  return [...partsOf(object, voters.length), ...keptClaims, ...newClaims, ...keptPods, ...put]
}
