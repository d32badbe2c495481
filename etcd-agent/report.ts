import type { Checked } from './checked.ts'

/** Of a stored snapshot: what the agent has seen. */
interface Stored extends Checked {
  /** Address of the object, such as `s3://bucket/key`. */
  path: string
  etcdRevision: number
  /** Undefined: neither the object's metadata nor its contents say it. */
  etcdVersion?: string | undefined
}

export interface BackupReport extends Stored {
  etcdVersion: string
  /** Of the snapshot, RFC 3339. */
  time: string
  /** Keys of old backups. */
  deleted: string[]
  /** Why old backups could not be deleted. The backup itself has succeeded. */
  retentionError?: string
  /** Endpoints that did not answer, and why. */
  silent?: string[]
}

export type VerifyReport = Stored

export interface RestoreReport extends Checked {
  path: string
  dataDir: string
  /** The directory was restored by an earlier run with the same token. */
  wasThere: boolean
}

interface FailureReport {
  error: string
}

export type Report = BackupReport | VerifyReport | RestoreReport | FailureReport

/** Kubernetes keeps no more of a termination message. */
export const MAX_REPORT_BYTES = 4096

/** One line of JSON that a termination message can hold: what is too long in it is cut. */
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
