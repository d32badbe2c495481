import type { Checked } from './checked.ts'

/** The properties of a stored snapshot, as the agent has read them. */
interface Stored extends Checked {
  /** The address of the object, such as `s3://bucket/key`. */
  path: string
  etcdRevision: number
  /** Undefined: neither the object's metadata nor its contents have a version. */
  etcdVersion?: string
}

export interface BackupReport extends Stored {
  etcdVersion: string
  /** When the snapshot was taken, in RFC 3339. */
  time: string
  /** The keys of deleted old backups. */
  deleted: string[]
  /** The addresses of backups with times after this one. They do not count as backups to keep, and are not deleted. */
  ahead?: string[]
  /**
   * Backups of owners that differ only in their UID, or have none. They do not count as backups to keep, and are not
   * deleted. `first` is an address.
   */
  namesakes?: { first: string; count: number }
  /** Why old backups could not be deleted. The backup itself has succeeded. */
  retentionError?: string
  /** The endpoints that did not answer, with the reasons. */
  silent?: string[]
}

export type VerifyReport = Stored

export interface RestoreReport extends Checked {
  path: string
  dataDir: string
  /** True: an earlier run with the same token restored the directory. */
  wasThere: boolean
}

interface FailureReport {
  error: string
}

export type Report = BackupReport | VerifyReport | RestoreReport | FailureReport

/** The longest termination message that Kubernetes keeps, in bytes. */
export const MAX_REPORT_BYTES = 4096

/** Returns one line of JSON that fits into a termination message. Texts that are too long are cut. */
export function reportText(report: Report): string {
  let shown: Report = report
  for (let limit = 2048; ; limit = Math.floor(limit / 2)) {
    const text = JSON.stringify(shown)
    if (Buffer.byteLength(text) <= MAX_REPORT_BYTES || limit === 0) return text
    shown = cut(report, limit) as Report
  }
}

function cut(value: unknown, limit: number): unknown {
  if (typeof value === 'string') return value.length <= limit ? value : `${value.slice(0, limit)}…`
  if (Array.isArray(value)) return value.slice(0, Math.ceil(limit / 128)).map((item) => cut(item, limit))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, cut(item, limit)]))
}
