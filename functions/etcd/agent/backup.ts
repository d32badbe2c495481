import type { EtcdTls } from '../client/index.ts'
import { type Store, StoreError } from '../stores/index.ts'
import { type Checked, checked } from './checked.ts'
import { blobs, type ChosenMember, mostAdvanced } from './members.ts'
import type { BackupReport } from './report.ts'

export interface BackupJob {
  /** The URLs of members. */
  endpoints: readonly string[]
  tls?: EtcdTls
  store: Store
  /** The key of the object. For periodic backups, the beginning of their keys. */
  key: string
  /** Left out: one object, which replaces an object with this key. */
  periodic?: Periodic
  /**
   * The owner of the backup, stored in its metadata: for an EtcdBackup, NAMESPACE/NAME/UID. Only backups with the same
   * owner are deleted as old ones.
   */
  owner: string
  now: Date
  /** The time-out of the whole run, in milliseconds. */
  timeoutMs: number
  signal: AbortSignal
}

interface Periodic {
  /** The number of backups to keep. Undefined: all. */
  most: number | undefined
}

const OWNER = 'fairlead-backup'

/**
 * Streams a snapshot of the most advanced member to the store. The object is published only if it has arrived in full,
 * as its own digest shows. Old backups are deleted only after that.
 */
export async function backup(job: BackupJob): Promise<BackupReport> {
  const chosen = await mostAdvanced(job.endpoints, job.tls, job.signal)
  const { version, revision, silent } = chosen
  try {
    const key = job.periodic === undefined ? job.key : periodicKey(job.key, revision, job.now)
    const stored = await store(job, chosen, key)
    const most = job.periodic?.most
    return {
      path: job.store.address(key),
      etcdVersion: version,
      etcdRevision: revision,
      time: job.now.toISOString(),
      ...stored,
      ...(most === undefined ? { deleted: [] } : await deleteOld(job, most, key)),
      ...(silent.length > 0 && { silent }),
    }
  } finally {
    chosen.etcd.close()
  }
}

async function store(
  job: BackupJob,
  { endpoint, etcd, version, revision }: ChosenMember,
  key: string,
): Promise<Checked> {
  const { timeoutMs, signal } = job
  let found: Checked | undefined
  const pieces = blobs(etcd.snapshot({ timeoutMs, signal }))
  const snapshot = checked(pieces, `the snapshot of ${endpoint}`, (checked) => (found = checked))
  const metadata = { [OWNER]: job.owner, 'etcd-version': version, 'etcd-revision': String(revision) }
  await job.store.put(key, snapshot, { metadata, ifAbsent: job.periodic !== undefined, signal })
  if (found === undefined) throw new Error(`${job.store.address(key)} was stored before the end of the snapshot`)
  return found
}

/**
 * Deletes old backups. The new backup is stored already, so a failure here, or a stop, is reported beside its success.
 */
async function deleteOld(job: BackupJob, most: number, newest: string) {
  const { store, signal } = job
  const deleted: string[] = []
  const { promise: stopped, reject } = Promise.withResolvers<never>()
  const stop = () => reject(new StoreError('unavailable', 'stopped before all old backups were deleted'))
  signal.addEventListener('abort', stop, { once: true })
  if (signal.aborted) stop()
  try {
    const { ahead, namesakes } = await Promise.race([stopped, deleteSurplus(job, most, newest, deleted)])
    const [first] = namesakes
    return {
      deleted,
      ...(ahead.length > 0 && { ahead: ahead.map((one) => store.address(one)) }),
      ...(first !== undefined && { namesakes: { first: store.address(first), count: namesakes.length } }),
    }
  } catch (error) {
    if (!(error instanceof StoreError)) throw error
    return { deleted: [...deleted], retentionError: error.message }
  } finally {
    signal.removeEventListener('abort', stop)
  }
}

/** The number of backups whose owners are read at once. */
const READS_AT_ONCE = 16

async function deleteSurplus(
  { store, key, owner, signal }: BackupJob,
  most: number,
  newest: string,
  deleted: string[],
): Promise<{ ahead: string[]; namesakes: string[] }> {
  const keys: string[] = []
  for await (const object of store.list(key)) keys.push(object.key)
  const { old, ahead } = surplus(keys, key, most, newest)
  if (old.length === 0) return { ahead, namesakes: [] }
  // Another EtcdBackup may have the same path. Its backups do not count, and must not be deleted.
  const own: string[] = []
  const namesakes: string[] = []
  const periodic = keys.filter((one) => stamped(one, key) !== undefined)
  while (periodic.length > 0) {
    signal.throwIfAborted()
    const some = periodic.splice(0, READS_AT_ONCE)
    const owners = await Promise.all(some.map(async (one) => (await store.head(one))?.metadata[OWNER]))
    own.push(...some.filter((_, at) => owners[at] === owner))
    namesakes.push(...some.filter((_, at) => owners[at] !== owner && nameOf(owners[at]) === nameOf(owner)))
  }
  for (const one of surplus(own, key, most, newest).old) {
    signal.throwIfAborted()
    await store.delete(one)
    deleted.push(one)
  }
  return { ahead, namesakes }
}

/**
 * Returns the namespace and name of an owner, without its UID: an EtcdBackup of another Kubernetes cluster may have the
 * same. Backups of former versions have no UID, so they may be of any cluster.
 */
const nameOf = (owner = ''): string => owner.split('/').slice(0, 2).join('/')

const STAMP = /^_v(\d{1,19})_(\d{4}-\d{2}-\d{2}-\d{2}:\d{2}:\d{2})$/

/** Returns `PATH_v12_2026-11-22-18:00:00`, in UTC, as the v1beta2 operator names its periodic backups. */
export function periodicKey(path: string, revision: number, time: Date): string {
  const stamp = time.toISOString().slice(0, 19).replace('T', '-')
  return `${path}_v${revision}_${stamp}`
}

interface Surplus {
  /** The keys that exceed the limit, the oldest first. */
  old: string[]
  /** The keys whose times are after the time of the newest backup: the clock of a node was wrong, or is wrong now. */
  ahead: string[]
}

/**
 * Returns the keys that exceed the limit. Only periodic backups of this path count, ordered by time, then by revision as
 * a number. `newest` counts, and is never among the results. A backup with a time after it neither counts nor is old, so
 * it pushes out no other. The revision alone does not show the age, because it may be lower after a restore.
 */
export function surplus(keys: readonly string[], path: string, most: number, newest: string): Surplus {
  const ours = keys.flatMap((key) => stamped(key, path) ?? [])
  const now = stamped(newest, path)?.time ?? ''
  const counted = ours.filter(({ key, time }) => key !== newest && time <= now)
  counted.sort((one, other) => one.time.localeCompare(other.time) || Number(one.revision - other.revision))
  const old = counted.slice(0, Math.max(0, counted.length - (most - 1)))
  return { old: old.map(({ key }) => key), ahead: ours.flatMap(({ key, time }) => (time > now ? key : [])) }
}

function stamped(key: string, path: string): { key: string; revision: bigint; time: string } | undefined {
  if (!key.startsWith(path)) return undefined
  const [, revision, time] = STAMP.exec(key.slice(path.length)) ?? []
  return revision === undefined || time === undefined ? undefined : { key, revision: BigInt(revision), time }
}
