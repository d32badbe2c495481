import type { RunContext } from '#contracts'
import { FunctionError, NOT_CALLED } from '#reconcile'

/** The processes of calls that are apart at the same time. */
const PLACES = 4
/** The longest wait for a place. Meanwhile a call keeps its key, a slot of its Reconciler, and what its run has read. */
export const LONGEST_WAIT_MS = 5000
/** The key runs again after this time, or up to twice as long. */
const SET_BACK_SECONDS = 20
/** The function of a call that has waited in vain keeps its turn until the key has run again, with time to read. */
export const TURN_MS = 2 * SET_BACK_SECONDS * 1000 + 10_000
/** An object whose call was lost, and that was not called again for longer, does not count: it may be gone. */
export const LOST_MS = 3_600_000

/** In this process beside the other calls, or in a process of its own. */
export type Place = 'here' | 'apart'

/** How a call apart has ended: by an answer or an error, by the end of its process or of its time, or by its signal. */
export type Ending = 'back' | 'lost' | 'unknown'

/** What calls of one function have shown since the start of this process. */
export class Behaviour {
  /** The object of its call that is apart. */
  apart: string | undefined
  /** A call has come back: any call, or one that was apart. */
  works = false
  worksApart = false
  /** The number of the place that it got last. */
  turn = 0
  /** When its turn ends that it has kept, and when the last call of each object was lost: by the clock of this process. */
  keepsUntil = 0
  readonly #lost = new Map<string, number>()

  /**
   * Calls that were apart have not come back: they have ended their process, or their time has ended. An object whose call
   * comes back is not lost any more.
   */
  get isLost(): boolean {
    for (const [object, at] of this.#lost) if (performance.now() - at > LOST_MS) this.#lost.delete(object)
    return this.#lost.size > 0
  }

  get isApart(): boolean {
    return this.apart !== undefined
  }

  /** The object whose call was lost last. */
  get lastLost(): string | undefined {
    return this.isLost ? [...this.#lost.keys()].at(-1) : undefined
  }

  /** Its calls come back, as far as it is known. */
  get isReliable(): boolean {
    return this.works && !this.isLost
  }

  hasLost(object: string): boolean {
    return this.#lost.has(object)
  }

  ended(object: string, ending: Ending): void {
    if (ending !== 'unknown') this.#lost.delete(object)
    if (ending === 'lost') this.#lost.set(object, performance.now())
    if (ending !== 'back') return
    this.works = this.worksApart = true
  }
}

interface Waiting {
  of: Behaviour
  object: string
  isSuspect: boolean
  begin: (place: Place) => void
}

/**
 * Decides where calls are made, so that a function that ends or blocks processes delays only its own calls:
 *
 * - A suspect is apart. A function has one call apart at a time. A place that becomes free goes to the function that has
 *   had none for the longest time. One place is only for functions that are known to come back: the others may hold
 *   theirs until their time-outs.
 * - Many suspects of one function most likely are none: their process was killed with hundreds of runs. Those that have
 *   waited too long run here, beside the one that is apart, if one has come back from there, and as long as each of them has.
 *   Each of a few has its turn before: one of them may be what has ended the process, and the others were beside it.
 * - If a call apart has not come back, and no other call of the function has, those that are not suspected are apart too.
 *   The object of that call is a suspect, until a call of it has come back.
 * - A call does not wait long, because it may have the only slot of its Reconciler. Its function keeps its turn: a place that
 *   becomes free is kept for it until the key runs again.
 */
export class Places {
  readonly #waiting = new Set<Waiting>()
  readonly #keepers = new Set<Behaviour>()
  #busy = 0
  #turns = 0

  /** Returns where the call is made now. Undefined: it waits. */
  take(of: Behaviour, object: string, isSuspect = false): Place | undefined {
    if (!isSuspect && (of.works || !of.isLost)) return 'here'
    if (of.isApart) return undefined
    if (this.#busy + this.#keptFrom(of) >= (of.isReliable ? PLACES : PLACES - 1)) return undefined
    of.apart = object
    this.#keepers.delete(of)
    of.turn = ++this.#turns
    this.#busy++
    return 'apart'
  }

  /**
   * Resolves when the call gets a place. The wait is not a part of its time. If it is too long, rejects with an error that
   * sets the key back in the queue, and does not count as a failure.
   */
  wait(of: Behaviour, object: string, { signal, suspect = false, untimed }: RunContext): Promise<Place> {
    const { promise, resolve, reject } = Promise.withResolvers<Place>()
    const waiting: Waiting = { of, object, isSuspect: suspect, begin: resolve }
    const giveUp = (reason: Error) => {
      this.#waiting.delete(waiting)
      reject(reason)
    }
    const timer = setTimeout(() => {
      if (suspect && of.isApart && of.worksApart && !of.isLost) return this.#begin(waiting, 'here')
      this.#keepTurn(of)
      giveUp(noPlace(of))
    }, LONGEST_WAIT_MS)
    const abort = () => giveUp(signal.reason as Error)
    signal.addEventListener('abort', abort, { once: true })
    this.#waiting.add(waiting)
    if (signal.aborted) abort()
    const placed = promise.finally(() => {
      clearTimeout(timer)
      signal.removeEventListener('abort', abort)
    })
    return untimed?.(placed) ?? placed
  }

  /** Notes that the call apart has ended, which was about this object. */
  free(of: Behaviour, object: string, ending: Ending): void {
    of.apart = undefined
    of.ended(object, ending)
    this.#busy--
    this.#offer()
  }

  /** Notes that a call here has come back. */
  cameBack(of: Behaviour): void {
    of.works = true
    this.#offer()
  }

  /** A function with a call apart has had its turn: the call that waits follows it, as one of any other function does. */
  #keepTurn(of: Behaviour): void {
    if (of.isApart) return
    of.keepsUntil = performance.now() + TURN_MS
    this.#keepers.add(of)
    setTimeout(() => this.#offer(), TURN_MS + 1).unref()
  }

  /** The number of places that are kept from this function, for those whose turn is before. The last place is not. */
  #keptFrom(of: Behaviour): number {
    for (const other of this.#keepers) if (other.keepsUntil < performance.now()) this.#keepers.delete(other)
    const isBefore = (other: Behaviour) => other.turn < of.turn && (other.isReliable || !of.isReliable)
    return [...this.#keepers].filter((other) => other !== of && isBefore(other)).length
  }

  #offer(): void {
    for (const waiting of [...this.#waiting].sort((a, b) => a.of.turn - b.of.turn)) {
      const place = this.take(waiting.of, waiting.object, waiting.isSuspect)
      if (place !== undefined) this.#begin(waiting, place)
    }
  }

  #begin(waiting: Waiting, place: Place): void {
    this.#waiting.delete(waiting)
    waiting.begin(place)
  }
}

function noPlace({ apart, lastLost }: Behaviour): Error {
  const cause =
    lastLost === undefined
      ? 'runs of it have ended or blocked their process'
      : `its run for ${lastLost} has ended or blocked its process`
  const wait = apart === undefined ? 'none is free' : `that is busy with ${apart}`
  return new FunctionError(`${NOT_CALLED}${cause}, so it runs in one of its own, and ${wait}`, {
    isAway: true,
    afterSeconds: SET_BACK_SECONDS * (1 + Math.random()),
  })
}
