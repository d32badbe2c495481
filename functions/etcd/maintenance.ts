import { type Cluster, isHealthy, type Member, votes } from './cluster.ts'
import { moveLeader, removal, said } from './replacement.ts'
import type { Step } from './step.ts'

const MIB = 1024 * 1024
/** So much of a file that is free is worth the time in which a member does not answer. */
const FREE_BYTES = 200 * MIB
/** Of the quota, of which an alarm is taken back, or free space looked for. */
const FULL = 0.9
/** Of etcd before 3.6, which does not tell it. */
const USUAL_QUOTA = 2048 * MIB

const alarmsOf = ({ answers }: Cluster, kind: 'NOSPACE' | 'CORRUPT'): string[] => [
  ...new Set(answers.flatMap(({ alarms }) => alarms.filter(({ alarm }) => alarm === kind).map(({ id }) => id))),
]

/** Only etcd knows which member differs from the others; that one is replaced, and the alarm is taken back. */
export function replaceCorrupt(cluster: Cluster): Step | undefined {
  const { leader, members = [] } = cluster
  const [id] = alarmsOf(cluster, 'CORRUPT')
  if (id === undefined) return undefined
  const reason = 'CorruptMember'
  const member = members.find((one) => one.id === id)
  if (member !== undefined)
    return removal(cluster, member, 'Recovering', reason, `member ${member.name} differs from the others`)
  if (id === '0' || leader === undefined) {
    const message =
      'members differ, and etcd cannot tell which of them is right: compare their data, or restore a backup'
    return { reason, message, isStuck: true }
  }
  const effect = { kind: 'disarm', via: leader.name, id, alarm: 'CORRUPT' } as const
  return { condition: 'Recovering', reason, message: 'the member that differed is gone', effect }
}

/** A full database refuses writes until old revisions are gone, its files are rewritten, and the alarm is taken back. */
export function freeSpace(cluster: Cluster): Step | undefined {
  const { leader, members = [], refused } = cluster
  const [id] = alarmsOf(cluster, 'NOSPACE')
  if (id === undefined) return undefined
  const condition = 'Recovering'
  const reason = 'NoSpace'
  const why = 'the database has reached its quota, and writes are refused'
  const voters = members.filter(votes)
  const unhealthy = voters.filter((one) => !isHealthy(cluster, one))
  if (leader?.answer === undefined || unhealthy.length > 0)
    return { condition, reason, message: `${why}; waits for ${said(unhealthy) || 'a leader'}`, after: 2 }
  const full = voters.filter((one) => shareOf(one, 'dbSize') >= FULL)
  if (full.length === 0) {
    const effect = { kind: 'disarm', via: leader.name, id, alarm: 'NOSPACE' } as const
    return { condition, reason, message: 'the database has space again', effect }
  }
  const helped = full.filter((one) => shareOf(one, 'dbSizeInUse') < FULL)
  if (helped.length > 0) return rewrite(cluster, helped, condition, reason, why)
  if (refused?.kind === 'compact') {
    const message = `${why}; what is left is no history: delete keys, or raise ETCD_QUOTA_BACKEND_BYTES in spec.pod.etcdEnv`
    return { reason, message, isStuck: true, after: 60 }
  }
  const effect = { kind: 'compact', via: leader.name, revision: leader.answer.revision } as const
  return { condition, reason, message: why, effect }
}

/** Rewrites files with much free space, one member at a time, in the window that the spec names. */
export function defragment(cluster: Cluster): Step | undefined {
  const { object, now, members = [] } = cluster
  const voters = members.filter(votes)
  const worth = voters.filter(({ answer }) => answer && answer.dbSize - answer.dbSizeInUse >= FREE_BYTES)
  if (worth.length === 0 || voters.some((one) => !isHealthy(cluster, one))) return undefined
  const { defragmentation } = object.spec
  if (defragmentation !== undefined && !isInWindow(now, defragmentation)) return undefined
  return rewrite(cluster, worth, 'Maintaining', 'Defragmenting', `files of ${said(worth)} have much free space`)
}

/** Hours of the day, UTC; a window may pass midnight. */
const isInWindow = (now: Date, { fromHour, hours }: { fromHour: number; hours: number }): boolean =>
  (now.getUTCHours() - fromHour + 24) % 24 < hours

/** A member does not answer meanwhile, so the leader comes last, and leads no more. */
function rewrite(
  cluster: Cluster,
  members: readonly Member[],
  condition: NonNullable<Step['condition']>,
  reason: string,
  why: string,
): Step {
  const { leader, members: all = [] } = cluster
  const next = members.find((one) => one !== leader) ?? members[0]
  if (next === leader && all.filter(votes).length > 1) return moveLeader(cluster, condition, reason, why)
  return { condition, reason, message: why, effect: { kind: 'defragment', via: next?.name ?? '' } }
}

function shareOf({ answer }: Member, size: 'dbSize' | 'dbSizeInUse'): number {
  if (answer === undefined) return 0
  return answer[size] / (answer.dbSizeQuota || USUAL_QUOTA)
}
