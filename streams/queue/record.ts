/** high: changes and timers. low: initial lists and resync. */
export type Lane = 'high' | 'low'

export const LANES: readonly Lane[] = ['high', 'low']

export const otherLane = (lane: Lane): Lane => (lane === 'high' ? 'low' : 'high')

/** A message at `work.<reconciler>.<lane>.<key>`: this key needs a run. */
export interface Token extends Failures {
  lane: Lane
  /** Stream sequence. */
  sequence: number
  /**
   * True: the lease before it ended without a run that stored its end, or the token is the retry of such a run. The run
   * may have crashed its process, or may not have begun.
   */
  cutShort?: boolean
  /** Why the key was queued, as the process that stored the token knew it. Changes that found the token are not in it. */
  causes?: Causes
}

/**
 * The message at `key.<reconciler>.<key>.<generation>`: a busy or waiting key. It is always a NATS schedule onto a
 * token of `lane`, so that the server itself queues the key at the time `at`. All times are the server's, in epoch
 * milliseconds.
 *
 * The token that a running record stands for may still be unacknowledged, and so may every token of the same lane that
 * made it dirty. Each write that ends such a record publishes onto that lane and thereby replaces those tokens, so a late
 * acknowledgement removes nothing. For this reason a running record never changes its lane.
 */
export interface KeyRecord extends Failures {
  state: 'running' | 'waiting' | 'parked'
  sequence: number
  /** Unique per write; the last part of the subject. */
  generation: string
  /** Unique per delivery that was taken. */
  owner: string
  lane: Lane
  /** running: the name of the process that runs it, for users. */
  by?: string
  /** running: end of the lease. waiting: due time. parked: a hundred years ahead. */
  at: number
  /** When this state began. A renewal does not change it. */
  since: number
  /** running: a token of this lane was dropped because of the record, so the key must run once more. */
  dirty: boolean
  /** running: a token of the other lane was delivered meanwhile and is still unacknowledged. */
  otherLaneWaits: boolean
  /**
   * running, true: the function was called, or is about to be. A run of a key that was cut short before notes this before it
   * begins, others with their first renewal.
   */
  begun?: boolean
  /** running: CutShort or none. waiting: the reason for the wait. parked: Terminal, or Withdrawn by a user. */
  reason?: 'Requeue' | 'Error' | 'CutShort' | 'Terminal' | 'Withdrawn'
  error?: string
  /** running: why the key runs, or once it is dirty, why it must run once more. Left out: not known. */
  causes?: Causes
}

export type NewRecord = Omit<KeyRecord, 'sequence'>

/** The last sequence that must still stand: of the token's own subject, or of all generations of the key's record. */
export interface Expected {
  of: 'token' | 'record'
  sequence: number
}

/** One message to store. `cancels` removes that generation of the record in the same step. */
export type Publish =
  | ({
      role: 'token'
      lane: Lane
      cutShort?: boolean
      error?: string
      causes?: Causes
      expected: Expected
      cancels?: string
    } & Failures)
  | { role: 'record'; record: NewRecord; expected: Expected; cancels?: string }
  | { role: 'done'; expected: Expected; cancels: string }

/** The IO that a machine requests from the shell. */
export type Io =
  | { do: 'publish'; message: Publish }
  /** Reads the last generation of the key's record through the stream's leader. */
  | { do: 'readRecord' }
  /**
   * Acknowledges the delivered token. confirmed: waits until the server confirms that it has applied the
   * acknowledgement.
   */
  | { do: 'acknowledge'; confirmed: boolean }
  /** Asks the leader whether it still holds the delivered token, by its sequence. */
  | { do: 'readToken' }
  /** Removes a token from the stream if its sequence still matches. */
  | { do: 'removeToken'; sequence: number }

export type Answer =
  | { kind: 'stored'; sequence: number }
  /** The expected sequence did not match, and nothing was stored. */
  | { kind: 'conflict' }
  | { kind: 'record'; record: KeyRecord | undefined }
  | { kind: 'acknowledged' }
  /** present: it is stored, or its leader has not stored it yet. */
  | { kind: 'token'; present: boolean }
  | { kind: 'removed' }
  /** The server refused for the moment, and nothing happened. */
  | { kind: 'busy' }
  /** No answer: the request may have taken effect, or may still take effect. */
  | { kind: 'unknown' }

/**
 * What is known of the runs of a key since its last successful run. Advisory: a timer that fires may overwrite a token
 * with higher counts.
 */
export interface Failures {
  /** Failed runs. */
  attempt: number
  /**
   * Runs in a row that were cut short: their process died or lost their lease before they ended, and before they had
   * changed anything. Left out: none.
   */
  cuts?: number
  /** Runs that were cut short since a run has ended, also those that had changed something. Left out: none. */
  losses?: number
  /** True: a lease of the key ended, then another one during its run. Perhaps both runs crashed their process. */
  suspect?: boolean
}

/** Whether a lease of the key has ended before without the end of a run, since a run of the key has ended. */
export const wasCut = ({ cutShort, cuts = 0, suspect }: Failures & { cutShort?: boolean }): boolean =>
  cutShort === true || cuts > 0 || suspect === true

/**
 * Returns what the end of a lease adds. The first such lease adds nothing: the key is repeated at once, because another
 * key of the same process may have ended it, or the run may not have begun. The next one counts, if its run had begun.
 */
export function afterLease(known: Failures & { cutShort?: boolean }, begun = false): Partial<Failures> {
  const { cuts = 0, losses = 0 } = known
  return begun && wasCut(known) ? { cuts: cuts + 1, losses: losses + 1, suspect: true } : {}
}

export function worst(...known: readonly Failures[]): Failures {
  const cuts = Math.max(0, ...known.map((failures) => failures.cuts ?? 0))
  const losses = Math.max(0, ...known.map((failures) => failures.losses ?? 0))
  return {
    attempt: Math.max(0, ...known.map(({ attempt }) => attempt)),
    ...(cuts > 0 && { cuts }),
    ...(losses > 0 && { losses }),
    ...(known.some(({ suspect }) => suspect) && { suspect: true }),
  }
}

/** Why a key was queued, in words such as `modified ConfigMap.v1 shop/settings@123` or `resync`. */
export type Causes = readonly string[]

/** Returns the cause of a key that a program has queued. `words`: why, as the program says it. */
export const triggerCause = (words: string): string => (words === '' ? 'trigger' : `trigger: ${words}`)

/** Whether a program has queued the key. It needs a run that begins later: the present one may find nothing changed. */
export const isTriggered = (causes: Causes = []): boolean => causes.some((cause) => /^trigger(: |$)/.test(cause))

/** The number of causes that are kept of one run. */
const MOST_CAUSES = 4
/** Stands for further causes. */
const OTHERS = 'others'

/** Returns the field with all of these causes. Without a cause there is no field. */
export function withCauses(...known: readonly (Causes | undefined)[]): { causes?: Causes } {
  const [first, ...more] = known.filter((causes) => causes !== undefined && causes.length > 0)
  if (first === undefined || more.length === 0) return first === undefined ? {} : { causes: first }
  const all = new Set([first, ...more].flatMap((causes) => causes ?? []))
  const named = [...all].filter((cause) => cause !== OTHERS)
  const isCut = all.has(OTHERS) || named.length > MOST_CAUSES
  return { causes: isCut ? [...named.slice(0, MOST_CAUSES), OTHERS] : named }
}
