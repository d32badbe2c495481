import { type Delivery, Puller, type StoredMessage } from '#jetstream'
import { Ahead } from './ahead.ts'
import type { Core } from './core.ts'
import { namespaceOf } from './names.ts'
import type { Lane } from './record.ts'
import type { LaneLoad } from './slots.ts'
import { Turns } from './turns.ts'

export interface LaneOptions {
  reconciler: string
  lane: Lane
  slots: number
  /** Slots that this lane may fill at present. */
  allowed: () => number
  /** Slots that are free at present. */
  free: () => number
  onMessage: (delivery: Delivery) => void
  /** It is this namespace's turn to have a slot: now, before this returns. */
  onTurn: (namespace: string) => void
}

interface QueuedKey {
  key: string
  message: StoredMessage
}

/** A line of more tokens than so many times the slots is long. */
const LONG = 4

/**
 * One lane of a Reconciler in the hands of a worker. Its consumer delivers the oldest token first: that is the line. While
 * the line is long, namespaces that wait further back are served in turn with it.
 */
export class LaneInHand implements LaneLoad {
  readonly reconciler: string
  readonly lane: Lane
  readonly puller: Puller
  busy = 0
  backlog = 0
  readonly #core: Core
  readonly #options: LaneOptions
  readonly #turns: Turns
  readonly #ahead: Ahead
  #isLong = false

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
      // The high lane is always waited for: what is kept for it then costs no further request.
      expected: () => this.lane === 'low' && this.backlog > 0,
      attentive: () => this.backlog > 0 || !this.#turns.isLineAlone,
      onEmpty: () => {
        this.backlog = 0
        this.inOrder()
      },
      onMessage: options.onMessage,
    })
  }

  /** The line has come to this key. */
  delivered(key: string, { sequence, pending }: Delivery): void {
    this.#turns.lineAt(namespaceOf(key), sequence)
    if (pending <= LONG * this.#options.slots) return this.inOrder()
    if (this.#isLong) return
    this.#isLong = true
    this.#ahead.open()
  }

  /** Leaves all keys to the line: it is short, or what waits further back cannot be read. */
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

  /** The key runs: its token stays where it is, for a later turn. `elsewhere` is its sequence if it runs in another process. */
  passOver(key: string, elsewhere?: number): void {
    const namespace = namespaceOf(key)
    if (namespace !== undefined) this.#turns.passOver(namespace, key, performance.now(), elsewhere)
  }

  /** The next key of a namespace, with its token as the stream's leader has it: it was there a moment ago. */
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

  /** How many tokens the line may have on their way; slots that are for other namespaces are filled first. */
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
