import { inMib } from './readable.ts'
import type { Failure } from './status.ts'

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
