/** Where a namespace's next token is: the token of a key, or the first token from a sequence on. */
export type TurnPlace = { key: string } | { from: number }

interface Waiting {
  known: Set<string>
  /** There are more keys than are known, at this sequence or later. */
  more?: number
  /** True: a search for the first of them is under way. */
  searching: boolean
  /** The distance between two of these keys in sequences, as the last search found it. */
  gap: number
}

interface PassedOver {
  namespace: string
  key: string
  until: number
  /** The sequence from which on the namespace's keys were left to another worker. */
  left: number | undefined
}

/** The number of namespaces that Kubernetes itself is tested with. Keys of further namespaces wait in the line. */
export const MAX_NAMESPACES = 10_000
export const MAX_KNOWN = 32
const MAX_PASSED_OVER = 1000
/** How long a token whose key runs is left alone. */
const PASS_OVER_MS = 1000
/**
 * The largest number of keys that are left to another worker that serves the same namespace, if the keys are as far
 * apart as the last two.
 */
const MAX_LEFT = 64

/**
 * The order in which namespaces are served in one lane. The line is the order in which the lane's consumer delivers:
 * the oldest token first, whatever its namespace. Each namespace that is known to wait further back has one turn for
 * each turn of the line. Nothing here does IO.
 */
export class Turns {
  /** The waiting namespaces, in the order of their turns. */
  readonly #waiting = new Map<string, Waiting>()
  readonly #passedOver: PassedOver[] = []
  readonly #random: () => number
  #line = 0
  /** The namespace that the line served last. It has its turns in the line. */
  #head: string | undefined
  #sinceLine = 0

  /** `random` returns 0 ≤ x < 1. */
  constructor(random: () => number) {
    this.#random = random
  }

  /** Whether all keys wait in the line, so that there is nothing to decide. */
  get isLineAlone(): boolean {
    return this.#waiting.size === 0 && this.#passedOver.length === 0
  }

  /** Notes that the line has reached this token. */
  lineAt(namespace: string | undefined, sequence: number): void {
    this.#head = namespace
    this.#line = Math.max(this.#line, sequence)
  }

  /** Whether the line has not yet reached this token. */
  isAhead(sequence: number): boolean {
    return sequence > this.#line
  }

  /** Notes that a key waits. */
  note(namespace: string, key: string): void {
    const waiting = this.#waiting.get(namespace)
    if (waiting === undefined) {
      if (this.#waiting.size < MAX_NAMESPACES)
        this.#waiting.set(namespace, { known: new Set([key]), searching: false, gap: 1 })
    } else if (waiting.known.size < MAX_KNOWN && waiting.more === undefined) waiting.known.add(key)
    else waiting.more ??= 1
  }

  /**
   * Skips a key that runs: its token cannot be taken before that run has ended. `elsewhere` is the sequence of a token
   * whose key another worker has. If a search found that token, the other worker takes the keys of this namespace in
   * the same order and the two would collide at each key. So the search continues further back, and returns later.
   */
  passOver(namespace: string, key: string, now: number, elsewhere?: number): void {
    if (this.#passedOver.length >= MAX_PASSED_OVER) return
    const waiting = this.#waiting.get(namespace)
    const meets = elsewhere !== undefined && waiting?.more !== undefined && waiting.more > elsewhere
    const left = meets ? elsewhere + 1 : undefined
    this.#passedOver.push({ namespace, key, until: now + PASS_OVER_MS, left })
    if (!meets) return
    const { more = 0, gap } = waiting
    waiting.more = Math.max(more, elsewhere + 1 + Math.floor(this.#random() * MAX_LEFT) * gap)
  }

  /** Returns the namespace that has its turn. Undefined: it is the turn of the line. */
  next(now: number): string | undefined {
    this.#restore(now)
    const others = this.#waiting.size - Number(this.#head !== undefined && this.#waiting.has(this.#head))
    if (this.#sinceLine < others)
      for (const [namespace, waiting] of this.#waiting) {
        if (namespace === this.#head || waiting.searching) continue
        this.#waiting.delete(namespace)
        this.#waiting.set(namespace, waiting)
        this.#sinceLine++
        return namespace
      }
    this.#sinceLine = 0
    return undefined
  }

  /**
   * Returns the place of the namespace's next token. Undefined: none is known. A search ends with found(). The next key
   * is chosen at random among the known ones, because workers that know the same keys would otherwise all try the same
   * key.
   */
  take(namespace: string): TurnPlace | undefined {
    const waiting = this.#waiting.get(namespace)
    if (waiting === undefined || waiting.searching) return undefined
    const key = [...waiting.known][Math.floor(this.#random() * waiting.known.size)]
    if (key === undefined && waiting.more !== undefined) {
      waiting.searching = true
      waiting.more = Math.max(waiting.more, this.#line + 1)
      return { from: waiting.more }
    }
    if (key !== undefined) waiting.known.delete(key)
    this.#dropIfEmpty(namespace, waiting)
    return key === undefined ? undefined : { key }
  }

  /** Stores the result of a search from a sequence on. */
  found(namespace: string, from: number, sequence: number | undefined): void {
    const waiting = this.#waiting.get(namespace)
    if (waiting === undefined) return
    waiting.searching = false
    if (sequence !== undefined) waiting.gap = sequence + 1 - from
    // If the place was changed during the search, the next search begins at the changed place.
    if (waiting.more === from) {
      if (sequence === undefined) delete waiting.more
      else waiting.more = sequence + 1
    }
    this.#dropIfEmpty(namespace, waiting)
  }

  clear(): void {
    this.#waiting.clear()
    this.#passedOver.length = 0
    this.#sinceLine = 0
  }

  #restore(now: number): void {
    for (let [first] = this.#passedOver; first !== undefined && first.until <= now; [first] = this.#passedOver) {
      this.#passedOver.shift()
      this.#putBack(first)
    }
  }

  #putBack({ namespace, key, left }: PassedOver): void {
    // A search may have passed this token.
    if (this.#waiting.has(namespace)) this.#waiting.get(namespace)?.known.add(key)
    else this.note(namespace, key)
    const waiting = this.#waiting.get(namespace)
    if (waiting && left !== undefined) waiting.more = Math.min(waiting.more ?? left, left)
  }

  #dropIfEmpty(namespace: string, { known, more }: Waiting): void {
    if (known.size === 0 && more === undefined) this.#waiting.delete(namespace)
  }
}
