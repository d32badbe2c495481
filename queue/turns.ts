/** Where a namespace's next token is: that of a key, or the first one from a sequence on. */
export type TurnPlace = { key: string } | { from: number }

interface Waiting {
  known: Set<string>
  /** There are more keys than are known, at this sequence or later. */
  more?: number
  /** The first of them is being looked for. */
  searching: boolean
  /** From one of them to the next, in sequences, as far as the last search tells. */
  gap: number
}

interface PassedOver {
  namespace: string
  key: string
  until: number
  /** Those from this sequence on were left to another worker. */
  left: number | undefined
}

/** Kubernetes itself is tested with as many. Keys of further ones wait in the line. */
export const MAX_NAMESPACES = 10_000
export const MAX_KNOWN = 32
const MAX_PASSED_OVER = 1000
/** So long a token whose key runs is left alone. */
const PASS_OVER_MS = 1000
/** Fewer keys than this are left to another worker that takes them too, if they are as far apart as the last two. */
const MAX_LEFT = 64

/**
 * Whose turn it is in one lane. The line is what the lane's consumer delivers: the oldest token, whatever its namespace.
 * Each namespace that is known to wait further back has one turn for each turn of the line. Nothing here does IO.
 */
export class Turns {
  /** In the order of their turns. */
  readonly #waiting = new Map<string, Waiting>()
  readonly #passedOver: PassedOver[] = []
  readonly #random: () => number
  #line = 0
  /** The namespace that the line served last: it has its turns there. */
  #head: string | undefined
  #sinceLine = 0

  /** `random` gives 0 ≤ x < 1. */
  constructor(random: () => number) {
    this.#random = random
  }

  /** There is nothing to decide while all keys wait in the line. */
  get isLineAlone(): boolean {
    return this.#waiting.size === 0 && this.#passedOver.length === 0
  }

  /** The line has come to this token. */
  lineAt(namespace: string | undefined, sequence: number): void {
    this.#head = namespace
    this.#line = Math.max(this.#line, sequence)
  }

  /** The line has not come to this token. */
  isAhead(sequence: number): boolean {
    return sequence > this.#line
  }

  /** A key waits. */
  note(namespace: string, key: string): void {
    const waiting = this.#waiting.get(namespace)
    if (waiting === undefined) {
      if (this.#waiting.size < MAX_NAMESPACES)
        this.#waiting.set(namespace, { known: new Set([key]), searching: false, gap: 1 })
    } else if (waiting.known.size < MAX_KNOWN && waiting.more === undefined) waiting.known.add(key)
    else waiting.more ??= 1
  }

  /**
   * It runs: its token cannot be taken before that run has ended. `elsewhere` is the sequence of a token whose key
   * another worker has. If a search found it, that worker takes the keys of this namespace in the same order: they would
   * meet at each key, so the search goes on further back, and returns later.
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

  /** The namespace whose turn it is; undefined: the line's. */
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
   * The place of the namespace's next token; undefined: none is known. A search ends with found(). Any of the known keys
   * may be next: workers that know the same ones would otherwise all try the same one.
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

  /** What a search from a sequence on has come to. */
  found(namespace: string, from: number, sequence: number | undefined): void {
    const waiting = this.#waiting.get(namespace)
    if (waiting === undefined) return
    waiting.searching = false
    if (sequence !== undefined) waiting.gap = sequence + 1 - from
    // Otherwise the next search begins elsewhere: its place was changed meanwhile.
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
    // A search may have gone past it.
    if (this.#waiting.has(namespace)) this.#waiting.get(namespace)?.known.add(key)
    else this.note(namespace, key)
    const waiting = this.#waiting.get(namespace)
    if (waiting && left !== undefined) waiting.more = Math.min(waiting.more ?? left, left)
  }

  #dropIfEmpty(namespace: string, { known, more }: Waiting): void {
    if (known.size === 0 && more === undefined) this.#waiting.delete(namespace)
  }
}
