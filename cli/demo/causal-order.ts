const DELAY_MS = 200
/** The time to wait for a cause. A cause outside of the demo is never reported. */
const CAUSE_TIMEOUT_MS = 2000

export interface Moment {
  /** Milliseconds since the epoch. */
  at: number
  what: string
  detail: string
  /** The moment that caused this one; undefined if there is none, or if it was not reported. */
  cause: Moment | undefined
}

/** A moment as it is reported. `cause` is the `id` of another moment. */
export interface NamedMoment extends Omit<Moment, 'cause'> {
  id?: string | undefined
  cause?: string | undefined
}

interface PendingMoment extends Moment {
  cause: PendingMoment | undefined
  toldAt: number
  /** The id of a cause that has not been reported yet. */
  awaits: string | undefined
}

/** Orders moments by their causes. Each moment is delayed a while, and longer when its cause is not reported yet. */
export class CausalOrder {
  readonly #now: () => number
  readonly #named = new Map<string, PendingMoment>()
  #held: PendingMoment[] = []

  constructor(now: () => number) {
    this.#now = now
  }

  add({ id, cause, ...named }: NamedMoment): void {
    const known = cause === undefined ? undefined : this.#named.get(cause)
    const moment = { ...named, cause: known, toldAt: this.#now(), awaits: known ? undefined : cause }
    if (id !== undefined) this.#explain(id, moment)
    this.#held.push(moment)
  }

  /** Returns the moments that need no further delay, in order. */
  takeDue(): Moment[] {
    const now = this.#now()
    const ordered = inOrder(this.#held)
    const first = ordered.findIndex((moment) => this.#isAwaiting(moment) || now - moment.toldAt < DELAY_MS)
    this.#held = first === -1 ? [] : ordered.slice(first)
    return first === -1 ? ordered : ordered.slice(0, first)
  }

  /** True if no moment waits for its cause. */
  get isExplained(): boolean {
    return !this.#held.some((moment) => this.#isAwaiting(moment))
  }

  takeAll(): Moment[] {
    const all = inOrder(this.#held)
    this.#held = []
    return all
  }

  #isAwaiting({ awaits, toldAt }: PendingMoment): boolean {
    return awaits !== undefined && this.#now() - toldAt < CAUSE_TIMEOUT_MS
  }

  /** Moves a moment that was reported before its cause after that cause. */
  #explain(id: string, cause: PendingMoment): void {
    this.#named.set(id, cause)
    for (const moment of this.#held) {
      if (moment.awaits !== id) continue
      moment.cause = cause
      moment.awaits = undefined
      cause.at = Math.min(cause.at, moment.at)
    }
  }
}

/** Orders by time, with every moment after its cause. */
function inOrder(moments: readonly PendingMoment[]): PendingMoment[] {
  const left = new Set(moments)
  const placed: PendingMoment[] = []
  const place = (moment: PendingMoment | undefined): void => {
    if (moment === undefined || !left.delete(moment)) return
    place(moment.cause)
    placed.push(moment)
  }
  for (const moment of moments.toSorted((one, other) => one.at - other.at)) place(moment)
  return placed
}
