import type { EventStore, Observed, ObserveQuery, View } from '#events'

/**
 * The object and the owned objects as a run or the run before it has observed them. A view is used if this process
 * caused the new observation by a change that it has put into EVENTS. A change of another process comes with a token, and
 * is read from EVENTS. A timer comes without the tokens of changes, which may wait in a long lane. So for the run of a timer,
 * EVENTS is asked whether it has anything newer than the view.
 */
export class RunView {
  #view: View | undefined
  /** Whether EVENTS may have newer messages without a token that was delivered here. */
  #isInDoubt: boolean

  constructor(view?: View, { isInDoubt = false }: { isInDoubt?: boolean } = {}) {
    this.#view = view
    this.#isInDoubt = isInDoubt
  }

  async observe(events: Pick<EventStore, 'observe'>, query: ObserveQuery): Promise<Observed> {
    const shown = this.#isInDoubt ? undefined : this.#view?.observed(query.allowance)
    if (shown) return shown
    const known = this.release()
    this.#isInDoubt = false
    try {
      const { view, ...found } = await events.observe({ ...query, withView: true, known })
      this.#view = view
      return found
    } finally {
      if (known !== this.#view) known?.close()
    }
  }

  /** Ends the view. The next observation reads EVENTS. */
  end(): void {
    this.#view?.close()
    this.#view = undefined
  }

  /** Transfers the view to the caller. */
  release(): View | undefined {
    const view = this.#view
    this.#view = undefined
    return view
  }
}

/** The number of views of one reconciler: at most 8 MiB of JSON. */
const KEPT = 500
const LARGEST_BYTES = 16 * 1024
/** The view of a key whose timer is later than this is not kept. */
const HORIZON_MS = 10 * 60_000

interface Kept {
  /** The owner of the lease of the run that has observed it. */
  owner: string
  view: View
  /** The time of the timer in epoch milliseconds. */
  dueAt: number
}

/** The views of keys that wait for a timer, until their next run in this process. */
export class KeptViews {
  readonly #kept = new Map<string, Kept>()

  keep(key: string, owner: string, view: View, { dueAt, now }: { dueAt: number; now: number }): void {
    if (this.#kept.size >= KEPT) this.#drop((kept) => kept.dueAt < now)
    const isTooMuch = this.#kept.size >= KEPT || view.bytes > LARGEST_BYTES || dueAt - now > HORIZON_MS
    if (isTooMuch) return view.close()
    this.#kept.set(key, { owner, view, dueAt })
  }

  /** Returns the view of the key's last run, if that run had this owner. */
  take(key: string, owner: string | undefined): View | undefined {
    const kept = this.#kept.get(key)
    if (kept === undefined) return undefined
    this.#kept.delete(key)
    if (kept.owner === owner) return kept.view
    kept.view.close()
    return undefined
  }

  clear(): void {
    this.#drop(() => true)
  }

  #drop(isOver: (kept: Kept) => boolean): void {
    for (const [key, kept] of this.#kept) {
      if (!isOver(kept)) continue
      kept.view.close()
      this.#kept.delete(key)
    }
  }
}
