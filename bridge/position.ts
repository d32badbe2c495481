import type { Cursor } from '#events'

/** The state of the streams that a position depends on. */
export interface StreamState {
  incarnation: string | undefined
  /** Aborted when confirmed messages may be lost. Then no cursor may name the position. */
  certain: AbortSignal
}

/** A point of a watch. All changes before it are stored, and enqueued for the Reconcilers in `covers`. */
export interface Position extends StreamState, Pick<Cursor, 'resourceVersion' | 'covers'> {}

export interface WrittenPosition extends Omit<Cursor, 'at'> {
  /** The sequence in EVENTS. */
  sequence: number
}
