import { unlessAborted } from './retry.ts'

/** Wakes a loop that waits for work. A poke while the loop works is kept for its next wait, so none is lost. */
export class Wake {
  #isPoked = false
  #end: (() => void) | undefined

  /** Whether the loop waits. */
  get isAwaited(): boolean {
    return this.#end !== undefined
  }

  /** Notes that there is work. */
  poke(): void {
    this.#isPoked = true
    this.#end?.()
  }

  /**
   * Resolves at the first poke since the last wait, after this time, or as soon as the signal is aborted. Only one caller
   * may wait.
   */
  next(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      let timer: NodeJS.Timeout | undefined
      const end = () => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', end)
        this.#end = undefined
        this.#isPoked = false
        resolve()
      }
      if (signal?.aborted) return resolve()
      if (this.#isPoked) return end()
      this.#end = end
      signal?.addEventListener('abort', end, { once: true })
      if (Number.isFinite(ms)) timer = setTimeout(end, ms)
    })
  }
}

/** Runs tasks one after the other, in order. A task that fails does not stop those behind it. */
export class Serial {
  #last: Promise<unknown> = Promise.resolve()

  run<T>(task: () => T | Promise<T>): Promise<T> {
    const result = this.#last.then(task)
    this.#last = result.catch(() => undefined)
    return result
  }

  /** Resolves when every task that was added before this call has ended. */
  async idle(): Promise<void> {
    await this.#last
  }
}

/** Runs tasks of one key one after the other, in order. Those of other keys run at the same time. */
export class KeyedSerial {
  readonly #tails = new Map<string, Promise<unknown>>()

  /** Begins a task at once if no other task of the key is under way. Rejects if the signal is aborted before it begins. */
  run<T>(key: string, task: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const before = this.#tails.get(key)
    const result = before === undefined ? task() : unlessAborted(before, signal).then(task)
    const forget = () => {
      if (this.#tails.get(key) === tail) this.#tails.delete(key)
    }
    // A task that is given up before it begins does not let the next one overtake.
    const ended = before === undefined ? result : result.catch(() => before)
    const tail = ended.then(forget, forget)
    this.#tails.set(key, tail)
    return result
  }

  /** Resolves when every task that was added before this call has ended. */
  async idle(): Promise<void> {
    await Promise.all(this.#tails.values())
  }
}

/**
 * Rounds of one action. A caller needs a round that begins after its call, so all callers during a round share the next
 * one, which is the action of the last caller.
 */
export class Rounds<T = void> {
  #act: () => Promise<T>
  #current: Promise<T> | undefined
  #next: Promise<T> | undefined

  constructor(act: () => Promise<T>) {
    this.#act = act
  }

  get isIdle(): boolean {
    return this.#current === undefined && this.#next === undefined
  }

  run(act = this.#act): Promise<T> {
    this.#act = act
    if (this.#current === undefined) return this.#start()
    this.#next ??= this.#current
      .catch(() => undefined)
      .then(() => {
        this.#next = undefined
        return this.#start()
      })
    return this.#next
  }

  #start(): Promise<T> {
    const round = this.#act().finally(() => {
      if (this.#current === round) this.#current = undefined
    })
    this.#current = round
    return round
  }
}
