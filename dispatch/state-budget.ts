import { resourceName } from '#contracts'
import { type Allowance, Budget, FIRST_READ_BYTES, type Grant, parseObjectSubject } from '#events'
import { type Read, TooMuchStateError } from './too-much-state.ts'

/** What one run may read, as JSON. */
export const MAX_STATE_BYTES = 16 * 2 ** 20
/** A run that has read more than this part of it shares with the large ones. */
const SMALL_SHARE = 1 / 8
/** The first page of a second read fits, too, where both have only a few small objects. */
const FIRST_BYTES = FIRST_READ_BYTES + 64 * 1024

/** Counts what a run reads. */
export interface Holdings extends Allowance {
  /** Of what the API server has answered. */
  add(resource: string, bytes: number): void
}

/** Of the run that asks: what it reads is kept until it ends. */
interface Asking {
  suspect: boolean
  signal: AbortSignal
}

/**
 * What the runs of one process hold of objects at once: six times what one of them may read. Small runs, large runs and
 * suspects have a third each, so neither large ones nor suspects make the others wait.
 */
export class StateBudget {
  readonly maxBytes: number
  readonly small: Budget
  readonly large: Budget
  readonly suspects: Budget

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes
    this.small = new Budget(2 * maxBytes)
    this.large = new Budget(2 * maxBytes)
    this.suspects = new Budget(2 * maxBytes)
  }

  ofRun(asking: Asking): RunState {
    return new RunState(this, asking)
  }
}

/**
 * What one run holds. It never waits for more while it holds something: a run that turns out to be large gives back all,
 * waits for as much as a run may read, and reads again.
 */
export class RunState implements Disposable {
  readonly #budget: StateBudget
  readonly #asking: Asking
  #grant: Grant | undefined

  constructor(budget: StateBudget, asking: Asking) {
    this.#budget = budget
    this.#asking = asking
  }

  /** What was read before counts no longer. Throws TooMuchStateError when it is more than a run may read. */
  async read<T>(observe: (holdings: Holdings) => Promise<T>): Promise<T> {
    const { small, large, suspects, maxBytes } = this.#budget
    if (this.#asking.suspect) return this.#readWithin(suspects, maxBytes, maxBytes, observe)
    try {
      return await this.#readWithin(small, FIRST_BYTES, Math.max(FIRST_BYTES, maxBytes * SMALL_SHARE), observe)
    } catch (error) {
      if (!(error instanceof OutgrownError)) throw error
      return this.#readWithin(large, maxBytes, maxBytes, observe)
    }
  }

  [Symbol.dispose](): void {
    this.#grant?.[Symbol.dispose]()
  }

  async #readWithin<T>(
    budget: Budget,
    bytes: number,
    mostBytes: number,
    observe: (holdings: Holdings) => Promise<T>,
  ): Promise<T> {
    this.#grant?.[Symbol.dispose]()
    const grant = await budget.acquire(bytes, this.#asking.signal)
    this.#grant = grant
    const meter = new Meter(grant, { mostBytes, maxBytes: this.#budget.maxBytes })
    try {
      return await observe(meter)
    } finally {
      grant.shrink(meter.end())
    }
  }
}

/** There is more to read than a small run may hold. */
class OutgrownError extends Error {}

interface Limits {
  /** Of the grant. */
  mostBytes: number
  /** Of a run. */
  maxBytes: number
}

class Meter implements Holdings {
  readonly #grant: Grant
  readonly #limits: Limits
  readonly #read = new Map<string, Read>()
  #bytes = 0
  #ended = false

  constructor(grant: Grant, limits: Limits) {
    this.#grant = grant
    this.#limits = limits
  }

  demand(bytes: number): void {
    this.#hold(this.#bytes + bytes)
  }

  note(subject: string, bytes: number): void {
    this.add(resourceName(parseObjectSubject(subject).ref), bytes)
  }

  add(resource: string, bytes: number): void {
    const { count, bytes: before } = this.#read.get(resource) ?? { count: 0, bytes: 0 }
    this.#read.set(resource, { resource, count: count + 1, bytes: before + bytes })
    this.#bytes += bytes
    const { maxBytes } = this.#limits
    if (this.#bytes > maxBytes) throw new TooMuchStateError([...this.#read.values()], maxBytes)
    this.#hold(this.#bytes)
  }

  /** Requests of a read that has failed may still be answered. */
  end(): number {
    this.#ended = true
    return this.#bytes
  }

  /** A grant for all that a run may read need not grow: the page under way is beside it. */
  #hold(bytes: number): void {
    const { mostBytes, maxBytes } = this.#limits
    if (this.#ended || bytes <= this.#grant.bytes || mostBytes === maxBytes) return
    if (bytes > mostBytes || !this.#grant.grow(bytes)) throw new OutgrownError()
  }
}
