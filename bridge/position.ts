import type { Cursor } from '#events'

/** What a position says of the streams that it rests on. */
export interface StreamState {
  incarnation: string | undefined
  /** Aborted: what was confirmed under it may be lost, so no cursor may name the position. */
  certain: AbortSignal
}

/** A point of a watch up to which everything was stored, and enqueued for the Reconcilers named. */
export interface Position extends StreamState, Pick<Cursor, 'resourceVersion' | 'covers'> {}

export interface WrittenPosition extends Omit<Cursor, 'at'> {
  /** In EVENTS. */
  sequence: number
}
