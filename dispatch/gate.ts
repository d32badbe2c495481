/** Lower goes first: what makes things exist, what removes them, what only tells of them. */
export const PRIORITY = { create: 0, delete: 1, status: 2, event: 3 } as const
export type Priority = (typeof PRIORITY)[keyof typeof PRIORITY]

/** A request that reached the head of the line and was not wanted any more: it was not sent. */
export const DROPPED: unique symbol = Symbol('dropped')

interface Waiting {
  start: () => void
  refuse: (reason: unknown) => void
  wanted: () => boolean
  drop: () => void
}

export interface GateOptions {
  signal?: AbortSignal
  /** Asked once, when the request reaches the head of the line. */
  wanted?: () => boolean
}

/**
 * The API requests in flight of all reconcilers together. A request of a lower priority waits for at most one request
 * of each other key that is held, because a key whose status waits sends nothing else meanwhile: no starvation.
 */
export class Gate {
  readonly #limit: number
  readonly #lines: Waiting[][] = [[], [], [], []]
  #inFlight = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  get inFlight(): number {
    return this.#inFlight
  }

  get waiting(): number {
    return this.#lines.reduce((sum, line) => sum + line.length, 0)
  }

  /** Rejects with the signal's reason when that is aborted before the request began. */
  async run<T>(
    priority: Priority,
    request: () => Promise<T>,
    { signal, wanted = () => true }: GateOptions = {},
  ): Promise<T | typeof DROPPED> {
    signal?.throwIfAborted()
    const turn = await this.#turn(priority, wanted, signal)
    if (turn === DROPPED) return DROPPED
    try {
      return await request()
    } finally {
      this.#inFlight--
      this.#admit()
    }
  }

  #turn(priority: Priority, wanted: () => boolean, signal: AbortSignal | undefined): Promise<typeof DROPPED | void> {
    return new Promise((resolve, reject) => {
      const line = this.#lines[priority] ?? []
      const leave = () => {
        line.splice(line.indexOf(waiting), 1)
        reject(signal?.reason as Error)
      }
      const done = () => signal?.removeEventListener('abort', leave)
      const waiting: Waiting = {
        wanted,
        start: () => (done(), resolve()),
        drop: () => (done(), resolve(DROPPED)),
        refuse: (reason) => (done(), reject(reason)),
      }
      line.push(waiting)
      signal?.addEventListener('abort', leave, { once: true })
      this.#admit()
    })
  }

  #admit(): void {
    while (this.#inFlight < this.#limit) {
      const next = this.#lines.find((line) => line.length > 0)?.shift()
      if (next === undefined) return
      this.#admitOne(next)
    }
  }

  #admitOne(next: Waiting): void {
    try {
      if (!next.wanted()) return next.drop()
    } catch (error) {
      return next.refuse(error)
    }
    this.#inFlight++
    next.start()
  }
}
