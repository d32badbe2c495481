import { RetryAfterError } from '#contracts'
import type { Failure } from './status.ts'

/** The limit of what one run reads, and of what its function returns, in bytes of JSON. */
export const MAX_STATE_BYTES = 16 * 2 ** 20
/** Counted for each object in addition, as for each object that is read. */
const OBJECT_BYTES = 1024
/** The limit is a setting of the process, so the object is tried again after a restart with a higher one. */
const ANSWER_RETRY_S = 300

/** The objects of one resource that a run reads. */
export interface Read {
  /** `configmaps.v1` */
  resource: string
  count: number
  /** The size as JSON. */
  bytes: number
}

/** The process does not have enough memory for the objects of the run. The primary object shows the error. */
export class TooMuchStateError extends Error implements Failure {
  override readonly name = 'TooMuchStateError'
  readonly reason = 'TooMuchState'
  constructor(read: readonly Read[], maxBytes: number) {
    const largest = read.filter(({ bytes }) => bytes * 100 > maxBytes).toSorted((a, b) => b.bytes - a.bytes)
    const found = largest.map(({ resource, count, bytes }) => `${count} ${resource} (${inMib(bytes)})`).join(', ')
    super(
      `the function is not called, because the objects that it would be given are larger than ${inMib(maxBytes)} ` +
        `together: ${found} were read before the limit was reached. Reduce the objects that spec.owns and spec.related ` +
        `of the Reconciler select, or raise FAIRLEAD_MAX_STATE_MIB`,
    )
  }
}

const inMib = (bytes: number): string => `${Number((bytes / 2 ** 20).toFixed(1))} MiB`

/**
 * Throws if a run could not read what its function wants to write: the next run of the object would not call the
 * function. So nothing of such an outcome is written.
 */
export function demandReadable(objects: number, jsonBytes: number, maxBytes: number): void {
  const bytes = jsonBytes + objects * OBJECT_BYTES
  if (bytes <= maxBytes) return
  const message =
    `nothing is written, because the function returned ${inMib(bytes)} in ${objects} objects (1 KiB is added for each), ` +
    `and a run reads ${inMib(maxBytes)} at most. Return fewer or smaller objects, or raise FAIRLEAD_MAX_STATE_MIB`
  throw new RetryAfterError(message, { afterSeconds: ANSWER_RETRY_S, reason: 'AnswerTooLarge' })
}
