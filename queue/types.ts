import type { BackoffTerms } from './backoff.ts'
import type { Lane } from './record.ts'

/** So long after the run has ended, whatever is done to the wall clock meanwhile. */
interface Delay {
  afterMs: number
}

/** When a key runs again: at a time of the wall clock, or after a delay. */
export type Due = Date | Delay

/** How a run ended. */
export type Finish<When = Due> =
  | { kind: 'done' }
  /** Run again then, even if nothing changes. */
  | { kind: 'requeue'; at: When }
  /** Not counted: `attempt` stays as it is, because it was not the key's doing. */
  | { kind: 'error'; message: string; retryAt: When; isCounted?: boolean }
  /** Not run again until the key is enqueued. */
  | { kind: 'terminal'; message: string }

/**
 * Not run: queued again as it was, at once, for somebody else. Only for who drains the worker by then: it would take the
 * key again and again.
 */
export interface HandBack {
  kind: 'handback'
}

/** The right to run one key, renewed in the background until the handler returns. */
export interface Lease {
  readonly reconciler: string
  readonly key: string
  readonly lane: Lane
  /** Unique to this run. */
  readonly owner: string
  /** Failed runs before this one; advisory, good for backoff only. */
  readonly attempt: number
  /** Runs of this key before this one never ended: their process was lost, perhaps because of them. */
  readonly cutShort: boolean
  /** Two of them in a row, and no run of this key has succeeded since: let it do no harm. */
  readonly suspect: boolean
  /** A timer that came due caused this run. */
  readonly fired: boolean
  /**
   * The owner of the run before, if no other run of the key was in between, and no token has caused this one: its own timer
   * has, or a change that this process was told of. Undefined: that is not certain.
   */
  readonly after: string | undefined
  /** When the token was stored, by the local wall clock. */
  readonly enqueuedAt: Date
  /** End of the lease as it stands now, by the local wall clock. */
  readonly until: Date
  /** Aborted with a LeaseLostError when the key may be somebody else's, or is taken back at shutdown. */
  readonly signal: AbortSignal
  /** Call before every write: throws LeaseLostError if the lease is over by now. */
  hold(): void
  /** Aborted when this process is told of a change after the last beginPass(): what was read since is stale. */
  readonly stale: AbortSignal
  /**
   * Call before reading state. Who calls it makes the run open to changes that come while it lasts: then read again
   * (another pass) rather than end when `stale`. What no pass has seen is queued. Tells who has told of changes since the pass
   * before: this process, or a token, which may come from another one.
   */
  beginPass(): Promise<'told here' | 'told by a token'>
}

/** The key may be run by somebody else by now: write nothing more. */
export class LeaseLostError extends Error {
  override readonly name = 'LeaseLostError'
}

export interface ServeOptions {
  reconciler: string
  /** Keys held at once, of both lanes together. */
  slots: number
  /** To throw is to end in an error, with this backoff. */
  handler: (lease: Lease) => Promise<Finish | HandBack>
  /** For runs that end without a say of their own: by throwing, or by taking their process along. */
  backoff?: BackoffTerms
  /** fenced: the finish was not stored, because the lease was lost; the key has been queued again. */
  onFinished?: (lease: Lease, result: 'finished' | 'fenced') => void
  /** What the queue could not do and will do again or leave to another worker; otherwise it is only logged. */
  onError?: (error: unknown) => void
}

export interface Worker {
  /** Keys in the hands of this worker. */
  readonly running: number
  /**
   * Takes no more keys and gives runs so much time to end. What still runs then loses its lease, and its key is queued
   * again for another worker. Asked again, the shorter time counts. Over within 4 s after it, whatever NATS does.
   */
  drain(graceMs: number): Promise<void>
}

/** Where a change has gone. */
export interface Announced {
  /** With the run under way: `safe` may take as long as that run. */
  noted: boolean
  /** Resolves when the change is safe: a run that has seen it has ended, or is certain whatever dies. */
  safe: Promise<Safety>
}

/** What makes a change safe: a run that has ended, the record of a run that begins here, or a token. */
export type Safety = 'run' | 'record' | 'token'

/** For metrics. Called on the hot path: must be quick and must not throw. */
export interface QueueObserver {
  onEnqueue?(reconciler: string, result: 'queued' | 'coalesced'): void
  onServe?(reconciler: string, slots: number): void
  /** lateMs: of a timer, from when it was due until its key was queued. */
  onTake?(reconciler: string, queuedMs: number, lateMs?: number): void
  onFinish?(reconciler: string, kind: (Finish | HandBack)['kind'], workMs: number): void
  onFenced?(reconciler: string): void
  /** The janitor replaced a token that would never have been delivered, or a timer that would never have fired. */
  onRevive?(reconciler: string): void
}

/**
 * What the stream holds of one key. A key that runs or waits may have a second entry: queued, with its place in its lane
 * and among its namespace's keys there (1 is the next one). In a long lane namespaces are served in turn. A running one has the process that runs it in `by`; one that was parked by hand, not by a
 * terminal error, is Withdrawn.
 */
export type Entry = {
  reconciler: string
  key: string
  lane: Lane
  attempt: number
  error?: string
} & (
  | { state: 'queued'; since: Date; position: number; positionInNamespace: number }
  | { state: 'running'; since: Date; owner: string; by?: string; leaseUntil: Date; dirty: boolean }
  | { state: 'waiting'; since: Date; until: Date; reason: 'Requeue' | 'Error' | 'CutShort' }
  | { state: 'parked'; since: Date; reason: 'Terminal' | 'Withdrawn' }
)

/** How many keys are in each state; one that runs or waits may be queued as well. */
export type Depth = Record<Entry['state'], number>

export interface Backlog {
  /** Queued keys by lane. */
  lanes: Record<Lane, number>
  /** When the one that is queued longest was queued. */
  oldest: Date | undefined
}

/** A key of one Reconciler. */
export interface KeyOf {
  reconciler: string
  key: string
}
