import type { EtcdTls } from '#etcd'
import { type Store, StoreError } from '#stores'
import { type Checked, checked } from './checked.ts'
import { blobs, type ChosenMember, mostAdvanced } from './members.ts'
import type { BackupReport } from './report.ts'
import { periodicKey, surplus } from './retention.ts'

export interface BackupJob {
  /** URLs of members. */
  endpoints: readonly string[]
  tls?: EtcdTls | undefined
  store: Store
  /** Of the object; of periodic backups what their keys begin with. */
  key: string
  /** Left out: one object, which replaces one that has this key. */
  periodic?: Periodic | undefined
  /** Whose backup it is, in the metadata: the deletion of old ones looks at it. */
  owner: string
  now: Date
  /** Of the whole run, in milliseconds. */
  timeoutMs: number
  signal: AbortSignal
}

interface Periodic {
  /** How many to keep. Undefined: all. */
  most: number | undefined
}

const OWNER = 'fairlead-backup'

/**
 * Streams a snapshot of the most advanced member to the store. It is published only if all of it has arrived, by its own
 * digest. Then, and only then, old ones are deleted.
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

/** The backup is there already: a failure here is reported beside its success. */
async function deleteOld({ store, key, owner }: BackupJob, most: number, newest: string) {
  const deleted: string[] = []
  try {
    const keys: string[] = []
    for await (const object of store.list(key)) keys.push(object.key)
    for (const old of surplus(keys, key, most, newest)) {
      // Another EtcdBackup may have the same path: its backups are not ours to delete.
      if ((await store.head(old))?.metadata[OWNER] !== owner) continue
      await store.delete(old)
      deleted.push(old)
    }
    return { deleted }
  } catch (error) {
    if (!(error instanceof StoreError)) throw error
    return { deleted, retentionError: error.message }
  }
}
