import { RetryAfterError } from '#contracts'

/** The limit of what one run reads, and of what its function returns, in bytes of JSON. */
export const MAX_STATE_BYTES = 16 * 2 ** 20
/** Counted for each object in addition, as for each object that is read. */
const OBJECT_BYTES = 1024
/** The limit is a setting of the process, so the object is tried again after a restart with a higher one. */
const ANSWER_RETRY_S = 300

export const inMib = (bytes: number): string => `${Number((bytes / 2 ** 20).toFixed(1))} MiB`

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
