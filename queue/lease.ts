import type { KeyRecord, NewRecord } from './record.ts'

/** What all transitions of one queue share. */
export interface Terms {
  leaseMs: number
  /** The stream has replicas, or may get them now: a confirmed acknowledgement does not yet mean that the token is gone. */
  readonly replicated: boolean
}

/** A key in the hands of this process, as its record was last known. */
export interface HeldKey {
  record: KeyRecord
  /** Generations that this owner has written or tried to write. */
  writes: number
  /** The run whose waiting record it has taken over for a reason that only this process knows. */
  after?: string
}

/** The error of the clocks that a lease bears. */
export const clockTolerance = ({ leaseMs }: Terms): number => leaseMs / 20

/** From here on the holder writes nothing more: before the server's watchdog, whatever the clocks' error. */
export const leaseEnd = (record: Pick<KeyRecord, 'at'>, terms: Terms): number => record.at - clockTolerance(terms)

/** Too little is left to begin a run. */
export const nearlyOver = (record: Pick<KeyRecord, 'at'>, { leaseMs }: Terms, now: number): boolean =>
  now > record.at - leaseMs / 5

/** A fresh name for each write of an owner: what fires or is cancelled is exactly one write. The letter tells the state. */
export const generationOf = (state: KeyRecord['state'], writer: string, write: number, slot = ''): string =>
  `${state.charAt(0)}${slot}-${writer}-${write}`

export const isRunOf = (record: KeyRecord, owner: string): boolean =>
  record.state === 'running' && record.owner === owner

/** The record without what the next write replaces. */
export function withoutSequence(record: KeyRecord): NewRecord {
  const copy: NewRecord & { sequence?: number } = { ...record }
  delete copy.sequence
  delete copy.slot
  return copy
}
