import type { Causes, Lane } from './record.ts'

/** A delay that begins when the run ends, and does not depend on changes of the wall clock. */
interface Delay {
  afterMs: number
}

/** When a key runs again: at a time of the wall clock, or after a delay. */
export type Due = Date | Delay

/** How a run ended. */
export type Finish<When = Due> =
  | { kind: 'done' }
  /** The key runs again at that time, even if nothing changes. */
  | { kind: 'requeue'; at: When }
  /**
   * isCounted false: `attempt` stays as it is, because the key did not cause the failure. isTimer: the time is one that the
   * function has asked for.
   */
  | { kind: 'error'; message: string; retryAt: When; isCounted?: boolean; isTimer?: boolean }
  /** The key does not run again until it is enqueued. */
  | { kind: 'terminal'; message: string }

/**
 * The key did not run: it is queued again at once, unchanged, for another worker. Return it only while the worker
 * drains, because the same worker would otherwise take the key again and again.
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
  /** The number of failed runs before this one. Runs that were cut short do not count. Advisory: use it for backoff only. */
  readonly attempt: number
  /** True: the lease before this one ended without the end of its run. The run may have crashed its process, or may not have begun. */
  readonly cutShort: boolean
  /**
   * True: two such leases in a row, the second one after its run had begun, and no run of this key has succeeded since. The handler must limit the harm of
   * another crash.
   */
  readonly suspect: boolean
  /** True: a timer that came due caused this run. */
  readonly fired: boolean
  /**
   * Why the key runs, as far as it is known: what queued the key, and the changes that reached the run while it lasted.
   * Changes that found the key queued are not in it.
   */
  readonly causes: Causes
  /** When the token was stored, by the local wall clock. */
  readonly enqueuedAt: Date
  /** The end of the lease as it stands now, by the local wall clock. */
  readonly until: Date
  /** Aborted with a LeaseLostError when another process may own the key, or when shutdown takes the key back. */
  readonly signal: AbortSignal
  /** Call before every write. Returns how long the lease still lasts, in milliseconds. Throws LeaseLostError if it is over. */
  hold(): number
  /**
   * Call when the run has changed something that its next run will find, or has shown that it does not crash its
   * process. If runs of the key before this one were cut short, they no longer count: the key does not wait longer if this run is cut short too. A suspect stays one.
   */
  progressed(): void
  /** Aborted when this process receives a change after the last beginPass(): state that was read since is stale. */
  readonly stale: AbortSignal
  /**
   * Call before reading state. The call makes the run accept changes while it lasts: when `stale` is aborted, read
   * again (another pass) instead of ending. Changes that no pass has seen are queued. Resolves to the source of the
   * changes since the previous pass: this process, or a token, which may come from another process.
   */
  beginPass(): Promise<'announced here' | 'announced by a token'>
}

/** Thrown when another process may run the key by now: write nothing more. */
export class LeaseLostError extends Error {
  override readonly name = 'LeaseLostError'
}

/**
 * A rate that all processes keep together: in any W seconds, at most perSecond × W + burst runs begin. Reconcilers with
 * a rate of the same name share it.
 */
export interface RunRate {
  name: string
  /** The Reconcilers that it limits. */
  limits: readonly string[]
  perSecond: number
  /** Default: the runs of a second, at least 2. */
  burst?: number | undefined
}

export interface ServeOptions {
  reconciler: string
  /** The number of keys held at once, of both lanes together. */
  slots: number
  /** Runs a key. If it throws, the run ends in an error with this backoff. */
  handler: (lease: Lease) => Promise<Finish | HandBack>
  /** The backoff for runs that throw or crash their process, and so return no time of their own. */
  backoff?: BackoffTerms
  /** Rates that all processes keep together. Left out: no request is made for them. */
  rates?: readonly RunRate[]
  /** fenced: the finish was not stored, because the lease was lost. The key is queued again. */
  onFinished?: (lease: Lease, result: 'finished' | 'fenced') => void
}

export interface Worker {
  /** The number of keys that this worker holds. */
  readonly running: number
  /**
   * Stops taking keys, and gives runs `graceMs` milliseconds to end. A run that continues loses its lease, and its key
   * is queued again for another worker. If called again, the shorter time counts. Resolves at most 4 s after that time,
   * whatever NATS does.
   */
  drain(graceMs: number): Promise<void>
}

/** How a change was accepted. */
export interface Announced {
  /** True: a run under way has the change, and `safe` may take as long as that run. */
  noted: boolean
  /** Resolves when the change is safe: a run that has seen it has ended, or is certain whichever process dies. */
  safe: Promise<Safety>
}

/** What makes a change safe: a run that has ended, the record of a run that begins here, or a token. */
export type Safety = 'run' | 'record' | 'token'

/** Callbacks for metrics. They are called on the hot path: they must be quick and must not throw. */
export interface QueueObserver {
  onEnqueue?(reconciler: string, result: 'queued' | 'coalesced'): void
  onServe?(reconciler: string, slots: number): void
  /** lateMs: for a timer, the time from its due time until its key was queued. */
  onTake?(reconciler: string, queuedMs: number, lateMs?: number): void
  onFinish?(reconciler: string, kind: (Finish | HandBack)['kind'], workMs: number): void
  onFenced?(reconciler: string): void
  /** Called when a key waits, because at least two of its runs in a row have ended their process. */
  onLost?(reconciler: string): void
  /** Called when the janitor has replaced a token that would never be delivered, or a timer that would never fire. */
  onRevive?(reconciler: string): void
}

/**
 * An entry that the stream holds for one key. A key that runs or waits may have a second entry, queued, with its place
 * in its lane and among its namespace's keys there (1 is the next one). In a long lane, namespaces are served in turn.
 * A running entry has the process that runs it in `by`. The reason of an entry that a user parked is Withdrawn, not
 * Terminal.
 */
export type Entry = {
  reconciler: string
  key: string
  lane: Lane
  attempt: number
  error?: string
  /** queued: why. running: why it runs, or if it is dirty, why it must run once more. Left out: not known. */
  causes?: Causes
  /** queued, running: the lease before it ended without the end of its run. */
  cutShort?: true
} & (
  | { state: 'queued'; since: Date; position: number; positionInNamespace: number }
  | {
      state: 'running'
      since: Date
      owner: string
      by?: string
      leaseUntil: Date
      dirty: boolean
    }
  | { state: 'waiting'; since: Date; until: Date; reason: 'Requeue' | 'Error' | 'CutShort' }
  | { state: 'parked'; since: Date; reason: 'Terminal' | 'Withdrawn' }
)

/** The number of keys in each state. A key that runs or waits may be counted as queued as well. */
export type Depth = Record<Entry['state'], number>

export interface Backlog {
  /** The number of queued keys by lane. */
  lanes: Record<Lane, number>
  /** When the key that has waited longest was queued. */
  oldest: Date | undefined
}

/** A key of one Reconciler. */
export interface KeyOf {
  reconciler: string
  key: string
}

export interface BackoffTerms {
  initialSeconds: number
  maxSeconds: number
  /** The largest share of the delay that is added or subtracted at random, from 0 to 1. */
  jitter: number
}

export const DEFAULT_BACKOFF: BackoffTerms = { initialSeconds: 0.25, maxSeconds: 1000, jitter: 0.1 }

/**
 * Returns the delay in milliseconds after a failed run, when `attempt` failed runs preceded it. `random` returns 0 ≤ x
 * < 1.
 */
export function backoffMs(attempt: number, terms: BackoffTerms, random: () => number): number {
  const doubled = terms.initialSeconds * 2 ** Math.min(attempt, 64)
  const spread = 1 + terms.jitter * (2 * random() - 1)
  return Math.round(1000 * Math.min(doubled, terms.maxSeconds) * spread)
}
