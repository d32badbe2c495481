import type { Subscription } from 'nats'
import { type Delivery, Puller, type StoredMessage } from '#nats'
import type { Core } from './core.ts'
import { namespaceOf } from './names.ts'
import type { Lane } from './record.ts'
import type { LaneLoad } from './slots.ts'
import { Turns } from './turns.ts'

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
  readonly #core: Core
  readonly #options: LaneOptions
  readonly #turns: Turns
  readonly #ahead: Ahead
  #isLong = false
  #backlog = 0

  constructor(core: Core, options: LaneOptions) {
    this.#core = core
    this.#options = options
    this.#turns = new Turns(core.random)
    this.reconciler = options.reconciler
    this.lane = options.lane
    this.#ahead = new Ahead(core, options, (key) => this.#note(key))
    this.puller = new Puller(core.js, {
      stream: core.names.stream,
      consumer: core.names.consumer(this.reconciler, this.lane),
      free: () => this.#shareOut(),
      // In the high lane, waiting requests stay open although no work is expected: slots that are kept for it then cost
      // no further request. This is not for slots that another worker of the process needs.
      expected: () => this.backlog > 0 && (this.lane === 'low' || core.slots.areScarce),
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
    const { names, log } = this.#core
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
    const { js, names } = this.#core
    for (let place = this.#turns.take(namespace); place !== undefined; place = this.#turns.take(namespace)) {
      if ('key' in place) {
        const message = await js.lastOf(names.stream, names.token(this.reconciler, this.lane, place.key))
        if (message && this.#turns.isAhead(message.sequence)) return message
      } else {
        const message = await js.firstFrom(
          names.stream,
          place.from,
          names.tokensIn(this.reconciler, this.lane, namespace),
        )
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
  readonly #core: Core
  readonly #of: { reconciler: string; lane: Lane }
  readonly #note: (key: string) => void
  #subscription: Subscription | undefined
  #stopListening: () => void = () => undefined

  constructor(core: Core, of: { reconciler: string; lane: Lane }, note: (key: string) => void) {
    this.#core = core
    this.#of = of
    this.#note = note
  }

  open(): void {
    const { js, names } = this.#core
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
    const { js, names, log } = this.#core
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
