/** Lower goes first: what makes things exist, what removes them, what only tells of them. */
export const PRIORITY = { create: 0, delete: 1, status: 2, event: 3 } as const
export type Priority = (typeof PRIORITY)[keyof typeof PRIORITY]

/** A request that was not wanted any more before its turn came: it was not sent. */
export const DROPPED: unique symbol = Symbol('dropped')

export interface GateOptions {
  signal?: AbortSignal
  /** Aborted: the request leaves the line at once, and is dropped. */
  unwanted?: AbortSignal | undefined
}

/**
 * The API requests in flight of all reconcilers together. A request of a lower priority waits for at most one request
 * of each other key that is held, because a key whose status waits sends nothing else meanwhile: no starvation.
 */
export class Gate {
  readonly #limit: number
  readonly #lines: (() => void)[][] = [[], [], [], []]
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
    { signal, unwanted }: GateOptions = {},
  ): Promise<T | typeof DROPPED> {
    signal?.throwIfAborted()
    if (unwanted?.aborted) return DROPPED
    if ((await this.#turn(priority, signal, unwanted)) === DROPPED) return DROPPED
    try {
      return await request()
    } finally {
      this.#inFlight--
      this.#admit()
    }
  }

  #turn(priority: Priority, signal?: AbortSignal, unwanted?: AbortSignal): Promise<typeof DROPPED | void> {
    return new Promise((resolve, reject) => {
      const line = this.#lines[priority] ?? []
      const settle = () => {
        signal?.removeEventListener('abort', refuse)
        unwanted?.removeEventListener('abort', drop)
      }
      const leave = () => {
        settle()
        line.splice(line.indexOf(start), 1)
      }
      const start = () => (settle(), this.#inFlight++, resolve())
      const refuse = () => (leave(), reject(signal?.reason as Error))
      const drop = () => (leave(), resolve(DROPPED))
      line.push(start)
      signal?.addEventListener('abort', refuse)
      unwanted?.addEventListener('abort', drop)
      this.#admit()
    })
  }

  #admit(): void {
    while (this.#inFlight < this.#limit) {
      const start = this.#lines.find((line) => line.length > 0)?.shift()
      if (start === undefined) return
      start()
    }
  }
}
