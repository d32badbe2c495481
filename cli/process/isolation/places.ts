import type { RunContext } from '#contracts'
import { FunctionError } from '#reconcile'

/** The processes of calls that are apart at the same time. */
const PLACES = 4
/**
 * The longest wait for a place, if another call of the function waits for longer. Meanwhile a call keeps its key, a slot of
 * its Reconciler, and what its run has read.
 */
export const LONGEST_WAIT_MS = 5000
/** The key runs again after this time, or up to twice as long. */
const SET_BACK_SECONDS = 20

/** In this process beside the other calls, or in a process of its own. */
export type Place = 'here' | 'apart'

/** How a call apart has ended: by an answer or an error, by the end of its process or of its time, or by its signal. */
export type Ending = 'back' | 'lost' | 'unknown'

/** What calls of one function have shown since the start of this process. */
export class Behaviour {
  /** One of its calls is apart. */
  isApart = false
  /** A call has come back: any call, or one that was apart. */
  works = false
  worksApart = false
  /** A call that was apart has not come back: it has ended its process, or its time has ended. */
  isLost = false
  /** The number of the place that it got last. */
  turn = 0
}

interface Waiting {
  of: Behaviour
  isSuspect: boolean
  begin: (place: Place) => void
}

/**
 * Decides where calls are made, so that a function that ends or blocks processes delays only its own calls:
 *
 * - A suspect is apart. A function has one call apart at a time. A place that becomes free goes to the function that has
 *   had none for the longest time. One place is only for functions that are known to come back: the others may hold
 *   theirs until their time-outs.
 * - Many suspects of one function most likely are none: their process was killed with hundreds of runs. So they run here,
 *   beside the one that is apart, as soon as one has come back from there, and as long as each of them has.
 * - If a call apart has not come back, and no other call of the function has, those that are not suspected are apart too.
 */
export class Places {
  readonly #waiting = new Set<Waiting>()
  #busy = 0
  #turns = 0

  /** Returns where the call is made now. Undefined: it waits. */
  take(of: Behaviour, isSuspect = false): Place | undefined {
    if (!isSuspect && (of.works || !of.isLost)) return 'here'
    if (of.isApart) return isSuspect && of.worksApart && !of.isLost ? 'here' : undefined
    if (this.#busy >= (of.works && !of.isLost ? PLACES : PLACES - 1)) return undefined
    of.isApart = true
    of.turn = ++this.#turns
    this.#busy++
    return 'apart'
  }

  /**
   * Resolves when the call gets a place. The wait is not a part of its time. The call of a function that waits for the
   * longest time waits until then. If others wait too long, they reject with an error that sets the key back in the queue,
   * and does not count as a failure.
   */
  wait(of: Behaviour, { signal, suspect = false, untimed }: RunContext): Promise<Place> {
    const { promise, resolve, reject } = Promise.withResolvers<Place>()
    const waiting: Waiting = { of, isSuspect: suspect, begin: resolve }
    const giveUp = (reason: Error) => {
      this.#waiting.delete(waiting)
      reject(reason)
    }
    const isFirst = () => [...this.#waiting].find((one) => one.of === of) === waiting
    const timer = setTimeout(() => isFirst() || giveUp(noPlace()), LONGEST_WAIT_MS)
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

  /** Notes that a call apart has ended. */
  free(of: Behaviour, ending: Ending): void {
    of.isApart = false
    this.#busy--
    if (ending === 'lost') of.isLost = true
    if (ending === 'back') of.works = of.worksApart = true
    this.#offer()
  }

  /** Notes that a call here has come back. */
  cameBack(of: Behaviour): void {
    of.works = true
    this.#offer()
  }

  #offer(): void {
    for (const waiting of [...this.#waiting].sort((a, b) => a.of.turn - b.of.turn)) {
      const place = this.take(waiting.of, waiting.isSuspect)
      if (place === undefined) continue
      this.#waiting.delete(waiting)
      waiting.begin(place)
    }
  }
}

const noPlace = (): Error =>
  new FunctionError(
    'the function is not called yet: its runs have ended or blocked their process, so it runs in one of its own, and none is free',
    { isAway: true, afterSeconds: SET_BACK_SECONDS * (1 + Math.random()) },
  )
