/** A part of a budget that is in use. Disposing it gives back all of its bytes. */
export interface Grant extends Disposable {
  readonly bytes: number
  /**
   * Returns false if too few bytes are free, or if another reader waits. It does not wait, because waiting while it
   * holds a grant could deadlock.
   */
  grow(bytes: number): boolean
  /** Gives back everything above this size. */
  shrink(bytes: number): void
}

interface Waiting {
  bytes: number
  start: (grant: Grant) => void
}

/**
 * Bytes that several readers share. They are granted in the order of the requests. A reader that holds no grant while it
 * waits cannot be part of a deadlock.
 */
export class Budget {
  readonly capacity: number
  #free: number
  readonly #line: Waiting[] = []

  constructor(capacity: number) {
    this.capacity = capacity
    this.#free = capacity
  }

  get free(): number {
    return this.#free
  }

  get waiting(): number {
    return this.#line.length
  }

  /**
   * Rejects with the signal's reason if the signal is aborted first. A request for more than the capacity gets the
   * capacity.
   */
  acquire(bytes: number, signal?: AbortSignal): Promise<Grant> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason as Error)
      const refuse = () => {
        this.#line.splice(this.#line.indexOf(waiting), 1)
        reject(signal?.reason as Error)
        this.#admit()
      }
      const start = (grant: Grant) => {
        signal?.removeEventListener('abort', refuse)
        resolve(grant)
      }
      const waiting: Waiting = { bytes: Math.min(bytes, this.capacity), start }
      signal?.addEventListener('abort', refuse, { once: true })
      this.#line.push(waiting)
      this.#admit()
    })
  }

  #admit(): void {
    for (let next = this.#line[0]; next !== undefined && next.bytes <= this.#free; next = this.#line[0]) {
      this.#line.shift()
      this.#free -= next.bytes
      next.start(this.#grant(next.bytes))
    }
  }

  #grant(granted: number): Grant {
    let held = granted
    const shrink = (bytes: number) => {
      if (bytes >= held) return
      this.#free += held - bytes
      held = bytes
      this.#admit()
    }
    return {
      get bytes() {
        return held
      },
      grow: (bytes) => {
        const more = bytes - held
        if (more <= 0) return true
        if (more > this.#free || this.#line.length > 0) return false
        this.#free -= more
        held = bytes
        return true
      },
      shrink,
      [Symbol.dispose]: () => shrink(0),
    }
  }
}
