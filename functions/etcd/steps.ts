import { demandUser, switchAuth } from './auth.ts'
import type { Cluster } from './cluster.ts'
import { demandSecrets, form, waitForQuorum } from './formation.ts'
import { defragment, freeSpace, replaceCorrupt } from './maintenance.ts'
import { beginRecovery, recover } from './recovery.ts'
import { awaitMembers, makePods, removeDead } from './replacement.ts'
import { beginRestore, endFormer } from './restoration.ts'
import { prepareTls, rotate } from './rotation.ts'
import { grow, promote, shrink } from './scaling.ts'
import type { Step } from './step.ts'
import { refuseVersion, upgrade } from './upgrade.ts'

/** The first that has something to do is what is done. A later one may rely on what those before have found in order. */
const STEPS: readonly ((cluster: Cluster) => Step | undefined)[] = [
  demandSecrets,
  prepareTls,
  demandUser,
  beginRestore,
  endFormer,
  beginRecovery,
  recover,
  form,
  waitForQuorum,
  replaceCorrupt,
  makePods,
  removeDead,
  promote,
  grow,
  shrink,
  freeSpace,
  defragment,
  upgrade,
  awaitMembers,
  switchAuth,
  rotate,
  refuseVersion,
]

/**
 * When etcd is asked again for a change that it refuses for the time being, in seconds. It refuses most of them until its
 * members have been connected for five seconds, and part of these are over when it is asked for the first time.
 */
const LATER_S = 1

export function stepOf(cluster: Cluster): Step | undefined {
  for (const rule of STEPS) {
    const step = rule(cluster)
    if (step !== undefined) return unlessRefused(step, cluster)
  }
  return undefined
}

/** What etcd has refused a moment ago is not asked for again in this run. */
function unlessRefused(step: Step, { refused }: Cluster): Step {
  if (refused === undefined || step.effect === undefined || refused.kind !== step.effect.kind) return step
  const { effect: _, ...waits } = step
  return { ...waits, message: `${step.message}; etcd refuses for now: ${refused.error}`, after: LATER_S }
}
