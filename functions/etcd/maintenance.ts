import type { Cluster, Led, Member } from './cluster.ts'
import { moveLeader, removal } from './replacement.ts'
import type { Alarm } from './seen.ts'
import { type Step, said } from './step.ts'

const MIB = 1024 * 1024
/** The free space in a file that justifies a defragmentation, during which a member does not answer. */
const FREE_BYTES = 200 * MIB
/** The fraction of the quota from which on a database counts as full. Below it, the alarm is disarmed. */
const FULL = 0.9
/** The default quota, for etcd before 3.6, which does not report it. */
const USUAL_QUOTA = 2048 * MIB

/** Returns the ID of the member that has raised the alarm. */
const raiserOf = ({ answers }: Cluster, kind: Alarm['alarm']): string | undefined =>
  answers.flatMap(({ alarms }) => alarms).find(({ alarm }) => alarm === kind)?.id

/** Replaces the corrupt member and disarms the alarm. Only etcd knows which member differs from the others. */
export function replaceCorrupt(cluster: Led): Step | undefined {
  const id = raiserOf(cluster, 'CORRUPT')
  if (id === undefined) return undefined
  const reason = 'CorruptMember'
  const member = cluster.members.find((one) => one.id === id)
  if (member !== undefined)
    return removal(cluster, member, { reason, message: `member ${member.name} differs from the others` })
  if (id === '0') {
    const message =
      'members differ, and etcd does not know which of them is right: compare their data, or restore a backup'
    return { reason, message, isStuck: true }
  }
  const effect = { kind: 'disarm', via: cluster.leader.name, id, alarm: 'CORRUPT' } as const
  return { reason, message: 'the member that differed is gone', effect }
}

/**
 * Frees space. A full database refuses writes until old revisions are compacted, its files are defragmented, and the
 * alarm is disarmed.
 */
export function freeSpace(cluster: Led): Step | undefined {
  const { leader, voters, refused } = cluster
  const { name: via } = leader
  const id = raiserOf(cluster, 'NOSPACE')
  if (id === undefined) return undefined
  const step = { reason: 'NoSpace', message: 'the database has reached its quota, and writes are refused' }
  const full = voters.filter((one) => shareOf(one, 'dbSize') >= FULL)
  if (full.length === 0)
    return { ...step, message: 'the database has space again', effect: { kind: 'disarm', via, id, alarm: 'NOSPACE' } }
  const helped = full.filter((one) => shareOf(one, 'dbSizeInUse') < FULL)
  if (helped.length > 0) return rewrite(cluster, helped, step)
  if (refused?.kind !== 'compact')
    return { ...step, effect: { kind: 'compact', via, revision: leader.answer.revision } }
  const ways = 'compaction cannot free more: delete keys, or raise ETCD_QUOTA_BACKEND_BYTES in spec.pod.etcdEnv'
  return { ...step, message: `${step.message}; ${ways}`, isStuck: true, after: 60 }
}

/** Defragments files with much free space, one member at a time, in the window in the spec. */
export function defragment(cluster: Led): Step | undefined {
  const { object, now, voters } = cluster
  const worth = voters.filter(({ answer }) => answer && answer.dbSize - answer.dbSizeInUse >= FREE_BYTES)
  if (worth.length === 0) return undefined
  const { fromHour, hours } = object.spec.defragmentation ?? { fromHour: 0, hours: 24 }
  // The hours are hours of the day in UTC. A window may pass midnight.
  if ((now.getUTCHours() - fromHour + 24) % 24 >= hours) return undefined
  return rewrite(cluster, worth, { reason: 'Defragmenting', message: `files of ${said(worth)} have much free space` })
}

/**
 * Defragments the next member. A member does not answer meanwhile, so the leader is last, after it has handed over its
 * leadership.
 */
function rewrite(cluster: Led, members: readonly Member[], step: Step): Step {
  const { leader, voters } = cluster
  const next = members.find((one) => one !== leader) ?? leader
  if (next === leader && voters.length > 1) return moveLeader(cluster, step)
  return { ...step, effect: { kind: 'defragment', via: next.name } }
}

const shareOf = ({ answer }: Member, size: 'dbSize' | 'dbSizeInUse'): number =>
  answer === undefined ? 0 : answer[size] / (answer.dbSizeQuota || USUAL_QUOTA)
