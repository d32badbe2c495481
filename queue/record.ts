import type { Failures } from './failures.ts'

/** High: changes and timers. Low: initial lists and resync. */
export type Lane = 'high' | 'low'

export const LANES: readonly Lane[] = ['high', 'low']

export const otherLane = (lane: Lane): Lane => (lane === 'high' ? 'low' : 'high')

/** A message at `work.<reconciler>.<lane>.<key>`: this key needs a run. */
export interface Token extends Failures {
  lane: Lane
  /** Stream sequence. */
  sequence: number
  /** The run before it never said how it ended, or it is the retry of such a run: its process may have died of it. */
  cutShort?: boolean
}

/**
 * The message at `key.<reconciler>.<key>.<generation>`: a busy or waiting key. It is always a NATS schedule onto a token of
 * `lane`, so that the server itself queues the key when `at` has come. All times are the server's, epoch milliseconds.
 *
 * The token that a running record stands for may still be unacknowledged, and so may every token of the same lane
 * that marked it. Whatever ends such a record publishes onto that lane and thereby replaces them: a late
 * acknowledgement then removes nothing. For this reason a running record never changes its lane.
 */
export interface KeyRecord extends Failures {
  state: 'running' | 'waiting' | 'parked'
  sequence: number
  /** Unique per write; the last token of the subject. */
  generation: string
  /** Unique per delivery that was taken. */
  owner: string
  lane: Lane
  /** running: the process that runs it, for people. */
  by?: string
  /** running: end of the lease. waiting: due. parked: a hundred years ahead. */
  at: number
  /** waiting: asleep in this slot. The server has to be told before it fires. */
  slot?: string
  /** When this state began; a renewal does not change it. */
  since: number
  /** running: a token of this lane was dropped for it, so one more run is owed. */
  dirty: boolean
  /** running: a token of the other lane was delivered meanwhile and is still unacknowledged. */
  otherLaneWaits: boolean
  /** running: CutShort or none. waiting: why. parked: Terminal, or Withdrawn by hand. */
  reason?: 'Requeue' | 'Error' | 'CutShort' | 'Terminal' | 'Withdrawn'
  error?: string
}

export type NewRecord = Omit<KeyRecord, 'sequence'>

/** The last sequence that must still stand: of the token's own subject, or of all generations of the key's record. */
export interface Expected {
  of: 'token' | 'record'
  sequence: number
}

/** One message to store. `cancels` removes that generation of the record in the same step. */
export type Publish =
  | ({ role: 'token'; lane: Lane; error?: string; expected: Expected; cancels?: string } & Failures)
  | { role: 'record'; record: NewRecord; expected: Expected; cancels?: string }
  | { role: 'done'; expected: Expected; cancels: string }

/** What a machine asks the shell to do. */
export type Io =
  | { do: 'publish'; message: Publish }
  /** The last generation of the key's record, through the stream's leader. */
  | { do: 'readRecord' }
  /** Acknowledge the delivered token; confirmed: wait until the server says that it has applied it. */
  | { do: 'acknowledge'; confirmed: boolean }
  /** Does the leader still hold the delivered token, by its sequence? */
  | { do: 'readToken' }
  /** Take a token out of the stream if it is still that very one. */
  | { do: 'removeToken'; sequence: number }

export type Answer =
  | { kind: 'stored'; sequence: number }
  /** The expected sequence did not hold: nothing was stored. */
  | { kind: 'conflict' }
  | { kind: 'record'; record: KeyRecord | undefined }
  | { kind: 'acknowledged' }
  | { kind: 'token'; present: boolean }
  | { kind: 'removed' }
  /** Refused for the moment: nothing happened. */
  | { kind: 'busy' }
  /** No answer: it may have taken effect, or may yet. */
  | { kind: 'unknown' }
