import { execFile } from 'node:child_process'
import { createWriteStream } from 'node:fs'
import { mkdir, open, readdir, readFile, rename, rm, statfs, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import type { Checked } from './checked.ts'
import { SnapshotError } from './checked.ts'
import type { RestoreReport } from './report.ts'
import type { SnapshotSource } from './source.ts'

export interface RestoreJob {
  source: SnapshotSource
  /** The SHA-256 of the snapshot, if it is known. A snapshot with another digest is not restored. */
  sha256?: string
  /** The data directory. It must be missing or empty, or come from an earlier run with this token. */
  dataDir: string
  member: SeedMember
  /** Added to the revision, so that watches of older revisions end. */
  bumpRevision: number
  /** The program that makes a data directory from a snapshot. */
  etcdutl: string
  signal: AbortSignal
}

/** The one member that the restored cluster begins with. */
interface SeedMember {
  name: string
  peerUrl: string
  /**
   * The token of the cluster. It must differ from the former one, so that members of the former cluster are refused.
   */
  token: string
}

const MARK = 'fairlead-restored.json'
const run = promisify(execFile)

/**
 * Makes the data directory of the first member of a new cluster from a snapshot. Does nothing if a run with this token
 * has made it, and refuses to change any other directory. The directory appears at once, by a rename: a run that is
 * killed leaves a folder beside it, which the next run removes.
 */
export async function restore(job: RestoreJob): Promise<RestoreReport> {
  const { dataDir, member } = job
  const before = await readMark(dataDir)
  if (before?.token === member.token) return { path: before.path, dataDir, wasThere: true, ...before.checked }
  if (before !== undefined || !(await isAbsent(dataDir)))
    throw new Error(`${dataDir} has data of another cluster: a restore never replaces data. Use an empty volume`)

  const staging = join(dirname(dataDir), `.${basename(dataDir)}.restore`)
  await rm(staging, { recursive: true, force: true })
  await mkdir(staging, { recursive: true, mode: 0o700 })
  await using snapshot = await job.source(job.signal)
  const { path, size } = snapshot
  if (size !== undefined) await requireRoom(staging, size)

  const file = join(staging, 'snapshot.db')
  const found = await snapshot.read((bytes) =>
    pipeline(Readable.from(bytes), createWriteStream(file, { mode: 0o600, flush: true }), { signal: job.signal }),
  )
  if (job.sha256 !== undefined && found.sha256 !== job.sha256)
    throw new SnapshotError(
      `${path} has the SHA-256 ${found.sha256}, and ${job.sha256} was verified: it was replaced meanwhile`,
    )
  const restored = join(staging, 'data')
  await makeDirectory(job, file, restored)
  await rm(file)
  const mark: Mark = { token: member.token, path, checked: found }
  await writeFile(join(restored, MARK), JSON.stringify(mark), { mode: 0o600, flush: true })
  await flush(restored)
  await rename(restored, dataDir)
  await flush(dirname(dataDir))
  await rm(staging, { recursive: true, force: true })
  return { path, dataDir, wasThere: false, ...found }
}

interface Mark {
  token: string
  path: string
  checked: Checked
}

async function readMark(dataDir: string): Promise<Mark | undefined> {
  const text = await readFile(join(dataDir, MARK), 'utf8').catch(() => undefined)
  return text === undefined ? undefined : (JSON.parse(text) as Mark)
}

/** Whether the folder is missing or empty. An empty one may exist, because rename() replaces it. */
async function isAbsent(folder: string): Promise<boolean> {
  try {
    return (await readdir(folder)).length === 0
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return true
    throw error
  }
}

/** Throws if there is no room for the snapshot and the directory at the same time. */
async function requireRoom(folder: string, size: number): Promise<void> {
  const { bavail, bsize } = await statfs(folder)
  const [free, needed] = [bavail * bsize, 2 * size]
  if (free < needed)
    throw new Error(
      `${folder} has ${mebibytes(free)} MiB free, and a restore needs ${mebibytes(needed)} MiB: give it a larger volume`,
    )
}

const mebibytes = (bytes: number): number => Math.ceil(bytes / 1_048_576)

async function makeDirectory(
  { member, bumpRevision, etcdutl, signal }: RestoreJob,
  file: string,
  dataDir: string,
): Promise<void> {
  const { name, peerUrl, token } = member
  const words = [
    'snapshot',
    'restore',
    file,
    '--data-dir',
    dataDir,
    '--name',
    name,
    '--initial-cluster',
    `${name}=${peerUrl}`,
  ]
  const bump = bumpRevision > 0 ? ['--bump-revision', String(bumpRevision), '--mark-compacted'] : []
  const identity = ['--initial-cluster-token', token, '--initial-advertise-peer-urls', peerUrl]
  try {
    await run(etcdutl, [...words, ...identity, ...bump], { signal })
  } catch (cause) {
    signal.throwIfAborted()
    throw new Error(`etcdutl could not restore the snapshot: ${reasonOf(cause)}`, { cause })
  }
}

/** Returns the error of etcdutl, which writes its log and then its error to standard error. */
function reasonOf(cause: unknown): string {
  const { code, stderr = '', message = '' } = cause as { code?: unknown; stderr?: string; message?: string }
  if (code === 'ENOENT') return 'there is no such program: give its path with --etcdutl'
  return stderr.trim().split('\n').at(-1) || message
}

async function flush(folder: string): Promise<void> {
  const handle = await open(folder)
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
