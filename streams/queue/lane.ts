import type { Subscription } from 'nats'
import { type Delivery, Puller, type StoredMessage } from '#nats'
import type { QueueDeps } from './core.ts'
import type { Lane } from './record.ts'
import type { LaneLoad } from './slots.ts'
import { namespaceOf } from './wire.ts'

export interface LaneOptions {
  reconciler: string
  lane: Lane
  slots: number
  /** Returns the number of slots that this lane may fill at present. */
  allowed: () => number
  /** Returns the number of slots that are free at present. */
  free: () => number
  /** Called when the backlog changes, or the number of tokens that are on their way. */
  onLoad: () => void
  onMessage: (delivery: Delivery) => void
  /** Called when this namespace has its turn. The callback must occupy the slot before it returns. */
  onTurn: (namespace: string) => void
}

interface QueuedKey {
  key: string
  message: StoredMessage
}

/** A lane is long when it holds more tokens than this many times the slots. */
const LONG = 4

/**
 * One lane of a Reconciler, as one worker serves it. The lane's consumer delivers the oldest token first: this order is
 * the line. While the lane is long, namespaces that wait further back are served in turn with the line.
 */
export class LaneInHand implements LaneLoad {
  readonly reconciler: string
  readonly lane: Lane
  readonly puller: Puller
  busy = 0
  taking = 0
  readonly #deps: QueueDeps
  readonly #options: LaneOptions
  readonly #turns: Turns
  readonly #ahead: Ahead
  #isLong = false
  #backlog = 0

  constructor(deps: QueueDeps, options: LaneOptions) {
    this.#deps = deps
    this.#options = options
    this.#turns = new Turns(deps.random)
    this.reconciler = options.reconciler
    this.lane = options.lane
    this.#ahead = new Ahead(deps, options, (key) => this.#note(key))
    this.puller = new Puller(deps.js, {
      stream: deps.names.stream,
      consumer: deps.names.consumer(this.reconciler, this.lane),
      free: () => this.#shareOut(),
      // In the high lane, waiting requests stay open although no work is expected: slots that are kept for it then cost
      // no further request. This is not for slots that another worker of the process needs.
      expected: () => this.backlog > 0 && (this.lane === 'low' || deps.slots.areScarce),
      attentive: () => this.backlog > 0 || !this.#turns.isLineAlone,
      onEmpty: () => {
        this.backlog = 0
        this.inOrder()
      },
      onMessage: options.onMessage,
      onOutstanding: options.onLoad,
    })
  }

  get backlog(): number {
    return this.#backlog
  }

  /** The number of existing tokens that are on their way. */
  get promised(): number {
    return Math.min(this.#backlog, this.puller.outstanding)
  }

  set backlog(tokens: number) {
    this.#backlog = tokens
    this.#options.onLoad()
  }

  /** Notes that the consumer delivered the token of this key. */
  delivered(key: string, { sequence, pending }: Delivery): void {
    this.#turns.lineAt(namespaceOf(key), sequence)
    if (pending <= LONG * this.#options.slots) return this.inOrder()
    if (this.#isLong) return
    this.#isLong = true
    this.#ahead.open()
  }

  /** Serves all keys in the order of the line, because the lane is short or the tokens further back cannot be read. */
  inOrder(): void {
    if (!this.#isLong) return
    this.#isLong = false
    this.#ahead.close()
    this.#turns.clear()
  }

  drain(): Promise<void> {
    this.inOrder()
    return this.puller.drain()
  }

  /**
   * Skips a key that runs: its token stays in the stream for a later turn. `elsewhere` is the token's sequence if the
   * key runs in another process.
   */
  passOver(key: string, elsewhere?: number): void {
    const namespace = namespaceOf(key)
    if (namespace !== undefined) this.#turns.passOver(namespace, key, performance.now(), elsewhere)
  }

  /**
   * Returns the next key of a namespace, with its token as the stream's leader holds it. The token may have gone since.
   */
  async find(namespace: string): Promise<QueuedKey | undefined> {
    const { names, log } = this.#deps
    try {
      const message = await this.#read(namespace)
      if (message === undefined) return undefined
      const place = names.placeOf(message.subject)
      return place?.kind === 'token' ? { key: place.key, message } : undefined
    } catch (error) {
      log.debug(
        { err: error, reconciler: this.reconciler, namespace },
        'could not read ahead: keys wait in the order of the stream',
      )
      this.inOrder()
      return undefined
    }
  }

  async #read(namespace: string): Promise<StoredMessage | undefined> {
    const { js, names } = this.#deps
    for (let place = this.#turns.take(namespace); place !== undefined; place = this.#turns.take(namespace)) {
      if ('key' in place) {
        const message = await js.lastOf(names.stream, names.token(this.reconciler, this.lane, place.key))
        if (message && this.#turns.isAhead(message.sequence)) return message
      } else {
        const subject = names.tokensIn(this.reconciler, this.lane, namespace)
        const message = await js.nextFrom(names.stream, place.from, subject, 'leader')
        this.#turns.found(namespace, place.from, message?.sequence)
        return message
      }
    }
    return undefined
  }

  #note(key: string): void {
    const namespace = namespaceOf(key)
    if (namespace !== undefined) this.#turns.note(namespace, key)
  }

  /** Returns how many tokens of the line may be on their way. Slots for other namespaces are filled first. */
  #shareOut(): number {
    const { allowed, free, onTurn } = this.#options
    const most = allowed()
    if (this.#turns.isLineAlone) return most
    let line = this.puller.outstanding
    for (let room = Math.min(most, free()) - line; room > 0; room--) {
      const namespace = this.#turns.next(performance.now())
      if (namespace === undefined) line++
      else onTurn(namespace)
    }
    return line
  }
}

/**
 * The keys of one lane that wait behind those that its consumer delivers: all keys that wait now, and all keys that are
 * queued later.
 */
export class Ahead {
  readonly #deps: QueueDeps
  readonly #of: { reconciler: string; lane: Lane }
  readonly #note: (key: string) => void
  #subscription: Subscription | undefined
  #stopListening: () => void = () => undefined

  constructor(deps: QueueDeps, of: { reconciler: string; lane: Lane }, note: (key: string) => void) {
    this.#deps = deps
    this.#of = of
    this.#note = note
  }

  open(): void {
    const { js, names } = this.#deps
    const { reconciler, lane } = this.#of
    const callback = (error: unknown, { subject }: { subject: string }) => {
      if (!error) this.#note(names.keyQueued(subject))
    }
    this.#subscription = js.nc.subscribe(names.queued(reconciler, lane), { callback })
    // The server did not announce tokens that were stored while the connection was down.
    this.#stopListening = js.onReconnect(() => void this.#list())
    void this.#list()
  }

  close(): void {
    this.#stopListening()
    this.#subscription?.unsubscribe()
    this.#subscription = undefined
  }

  async #list(): Promise<void> {
    const { js, names, log } = this.#deps
    const { reconciler, lane } = this.#of
    const subscription = this.#subscription
    try {
      // From here on, the server announces new tokens.
      await js.nc.flush()
      const { state } = await js.admin.streams.info(names.stream, { subjects_filter: names.tokensOf(reconciler, lane) })
      for (const subject of Object.keys(state.subjects ?? {})) {
        if (this.#subscription !== subscription) return
        const place = names.placeOf(subject)
        if (place?.kind === 'token') this.#note(place.key)
      }
    } catch (error) {
      log.debug({ err: error, reconciler, lane }, 'could not list a long lane: only keys queued from now on have turns')
    }
  }
}

/** Where a namespace's next token is: the token of a key, or the first token from a sequence on. */
export type TurnPlace = { key: string } | { from: number }

interface Waiting {
  /** The number of keys that had been served when it came, or was served last. */
  servedAt: number
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
 * A namespace has a turn when it was not served while so many keys were, for each namespace that waits. At most one key in
 * so many is taken out of the order of the line, which costs more messages than a delivery.
 */
const SHARE = 8

/**
 * The order in which namespaces are served in one lane. The line is the order in which the lane's consumer delivers:
 * the oldest token first, whatever its namespace. A namespace that waits further back has a turn if the line does not
 * serve it. Nothing here does IO.
 */
export class Turns {
  /** The waiting namespaces. The one that was not served for the longest time is the first. */
  readonly #waiting = new Map<string, Waiting>()
  readonly #passedOver: PassedOver[] = []
  readonly #random: () => number
  #line = 0
  /** The number of keys that were served. */
  #count = 0

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
    this.#line = Math.max(this.#line, sequence)
    this.#served(namespace)
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
        this.#waiting.set(namespace, { servedAt: this.#count, known: new Set([key]), searching: false, gap: 1 })
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
    for (const [namespace, { servedAt, searching }] of this.#waiting) {
      if (this.#count - servedAt < SHARE * this.#waiting.size) return undefined
      if (searching) continue
      this.#served(namespace)
      return namespace
    }
    return undefined
  }

  #served(namespace: string | undefined): void {
    this.#count++
    const waiting = namespace === undefined ? undefined : this.#waiting.get(namespace)
    if (namespace === undefined || waiting === undefined) return
    waiting.servedAt = this.#count
    this.#waiting.delete(namespace)
    this.#waiting.set(namespace, waiting)
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
