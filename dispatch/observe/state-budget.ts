import { resourceName } from '#contracts'
import { type Allowance, FIRST_READ_BYTES, parseObjectSubject } from '#events'
import { Budget, type Grant } from '#primitives'
import { type Read, TooMuchStateError } from '#reconcile'

/** A run counts as large when it reads more than this part of the limit. */
const SMALL_SHARE = 1 / 8
/** Room for a first page, and for the first page of a second read if the objects of the first were few and small. */
const FIRST_BYTES = FIRST_READ_BYTES + 64 * 1024

/** Counts the bytes that a run reads. */
export interface StateMeter extends Allowance {
  /** Called for each object that the API server has returned. */
  add(resource: string, bytes: number): void
}

interface BudgetedRun {
  suspect: boolean
  signal: AbortSignal
}

/**
 * Limits the objects that all runs of one process hold at once to six times the limit of one run. Small runs, large
 * runs and suspects have a third each, so large runs and suspects do not delay the others.
 */
export class StateBudget {
  readonly maxBytes: number
  readonly small: Budget
  readonly large: Budget
  readonly suspects: Budget

  /** `share`: the part of the six times, from 0.5, where each third has room for one large run, to 1. */
  constructor(maxBytes: number, share = 1) {
    const third = Math.max(maxBytes, 2 * maxBytes * share)
    this.maxBytes = maxBytes
    this.small = new Budget(third)
    this.large = new Budget(third)
    this.suspects = new Budget(third)
  }

  ofRun(run: BudgetedRun): RunState {
    return new RunState(this, run)
  }
}

/**
 * The share of one run. A run that turns out to be large gives its share back, waits for the limit of one run, and
 * reads again. If it kept its share while it waits, runs could wait for each other for ever.
 */
export class RunState implements Disposable {
  readonly #budget: StateBudget
  readonly #run: BudgetedRun
  #grant: Grant | undefined

  constructor(budget: StateBudget, run: BudgetedRun) {
    this.#budget = budget
    this.#run = run
  }

  /** Reads, and replaces the earlier objects of the run. Throws TooMuchStateError above the limit of one run. */
  async read<T>(observe: (meter: StateMeter) => Promise<T>): Promise<T> {
    const { small, large, suspects, maxBytes } = this.#budget
    if (this.#run.suspect) return this.#readWithin(suspects, maxBytes, maxBytes, observe)
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
    observe: (meter: StateMeter) => Promise<T>,
  ): Promise<T> {
    this.#grant?.[Symbol.dispose]()
    const grant = await budget.acquire(bytes, this.#run.signal)
    this.#grant = grant
    const meter = new GrantMeter(grant, { mostBytes, maxBytes: this.#budget.maxBytes })
    try {
      return await observe(meter)
    } finally {
      grant.shrink(meter.end())
    }
  }
}

/** Thrown when a small run has more to read than it may hold. */
class OutgrownError extends Error {}

interface Limits {
  /** The size up to which the grant grows. */
  mostBytes: number
  /** The limit of one run. */
  maxBytes: number
}

class GrantMeter implements StateMeter {
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

  /** Ends the counting. Answers after a failed read are not counted. */
  end(): number {
    this.#ended = true
    return this.#bytes
  }

  /** Grows the grant. A grant with the limit of one run does not grow, although the page in progress exceeds it. */
  #hold(bytes: number): void {
    const { mostBytes, maxBytes } = this.#limits
    if (this.#ended || bytes <= this.#grant.bytes || mostBytes === maxBytes) return
    if (bytes > mostBytes || !this.#grant.grow(bytes)) throw new OutgrownError()
  }
}
