import type { EventStore, Observed, ObserveQuery, View } from '#events'

/**
 * What a run knows of its object and the objects that it owns from its observation before, or from that of the run before it.
 * It serves where this process itself has caused the observation: by a change that it has put into EVENTS, or by a timer. A
 * change that another process has put there comes with a token, and is read.
 */
export class RunView {
  #view: View | undefined

  constructor(view?: View) {
    this.#view = view
  }

  async observe(events: Pick<EventStore, 'observe'>, query: ObserveQuery): Promise<Observed> {
    const known = this.#view?.observed(query.allowance)
    if (known) return known
    this.end()
    const { view, ...found } = await events.observe({ ...query, withView: true })
    this.#view = view
    return found
  }

  /** EVENTS is read the next time. */
  end(): void {
    this.#view?.close()
    this.#view = undefined
  }

  /** Gives the view to whoever keeps it. */
  release(): View | undefined {
    const view = this.#view
    this.#view = undefined
    return view
  }
}

/** Of one reconciler: at most 8 MiB of JSON. */
const KEPT = 500
const LARGEST_BYTES = 16 * 1024
/** What is due later is read again. */
const HORIZON_MS = 10 * 60_000

interface Kept {
  /** The run that has seen it. */
  owner: string
  view: View
  /** Epoch milliseconds. */
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

  /** The view of the key's last run, if that was the one with this owner. */
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
