/** What one queue may hold of the keys of a process. */
export interface SlotShare {
  /** The number of keys that this queue may hold now. */
  readonly limit: number
  /** The number that it could hold if no other queue held any. */
  readonly most: number
  /** Notes how many keys the queue holds, and whether others wait for a slot. */
  note(held: number, isWaiting: boolean): void
  /** Calls the listener when there may be more slots, while keys wait. */
  onMore(listener: () => void): void
}

/** All slots of a process with one queue. */
export const fixedSlots = (slots: number): SlotShare => ({
  limit: slots,
  most: slots,
  note: () => undefined,
  onMore: () => undefined,
})

/**
 * The keys that a process holds at once, of several queues: one for each cluster. Half of the slots are reserved, the same
 * number for each cluster, so none waits for runs of another one that hang. The other half is lent to those that need more:
 * to one cluster alone while no other waits, otherwise in equal parts, so that one has half of the slots at most.
 */
export class SharedSlots {
  readonly #total: number
  readonly #queues = new Set<QueueSlots>()
  #clusters = 1

  constructor(total: number) {
    this.#total = total
  }

  /** The number of clusters for which slots are reserved. */
  set clusters(count: number) {
    this.#clusters = Math.max(1, count)
    this.changed()
  }

  /** Returns the share of one queue. It ends when it is disposed. */
  join(): SlotShare & Disposable {
    const queue = new QueueSlots(this)
    this.#queues.add(queue)
    return queue
  }

  leave(queue: QueueSlots): void {
    this.#queues.delete(queue)
    this.changed()
  }

  get total(): number {
    return this.#total
  }

  limitOf(queue: QueueSlots): number {
    const reserved = Math.max(1, Math.floor(this.#total / (2 * this.#clusters)))
    const lendable = Math.max(0, this.#total - reserved * this.#clusters)
    const others = [...this.#queues].filter((other) => other !== queue)
    const lent = others.reduce((sum, { held }) => sum + Math.max(0, held - reserved), 0)
    const needy = others.filter(({ held, isWaiting }) => isWaiting || held > reserved).length + 1
    const isContested = others.some(({ isWaiting }) => isWaiting)
    const most = isContested ? Math.floor(lendable / needy) : lendable
    return reserved + Math.max(0, Math.min(lendable - lent, most))
  }

  changed(by?: QueueSlots): void {
    for (const queue of this.#queues) if (queue !== by && queue.isWaiting) queue.more()
  }
}

class QueueSlots implements SlotShare, Disposable {
  readonly #shared: SharedSlots
  #more: () => void = () => undefined
  held = 0
  isWaiting = false

  constructor(shared: SharedSlots) {
    this.#shared = shared
  }

  get limit(): number {
    return this.#shared.limitOf(this)
  }

  get most(): number {
    return this.#shared.total
  }

  note(held: number, isWaiting: boolean): void {
    if (held === this.held && isWaiting === this.isWaiting) return
    const mayFree = held < this.held || (this.isWaiting && !isWaiting)
    this.held = held
    this.isWaiting = isWaiting
    if (mayFree) this.#shared.changed(this)
  }

  onMore(listener: () => void): void {
    this.#more = listener
  }

  more(): void {
    this.#more()
  }

  [Symbol.dispose](): void {
    this.#shared.leave(this)
  }
}
