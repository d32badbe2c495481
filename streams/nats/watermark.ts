import { setTimeout as sleep } from 'node:timers/promises'
import { nuid } from 'nats'
import { type JetStream, ofLeader } from './client.ts'
import { orUndefined } from './declare.ts'
import { ERR, isWrongSequence } from './errors.ts'

/** Expiry of a mark: no cursor refers to a mark that is 30 days old. */
const KEPT = '720h'
/** The pause between marks, so that one process makes at most twenty a second. */
const PAUSE_MS = 50

/**
 * Marks points in the history of a stream on which other data depend, and shows whether the stream still has them.
 *
 * Each process writes a subject of its own, and only behind its own last mark. So a stream that was set back, and has
 * grown since, never has a later mark of a process whose last mark it has lost. The stream's last sequence alone would
 * not show the loss.
 */
export class Watermark {
  readonly #js: JetStream
  readonly #marked: MarkedStream
  readonly #listeners = new Set<() => void>()
  readonly #nonce: () => string
  #process: string
  #last = 0
  #loss = new AbortController()
  #underWay: Promise<unknown> = Promise.resolve()
  #next: Promise<string> | undefined

  /** `nonce` returns names of processes. No two calls may return the same, in any process. */
  constructor(js: JetStream, marked: MarkedStream, nonce = () => nuid.next()) {
    this.#js = js
    this.#marked = marked
    this.#nonce = nonce
    this.#process = nonce()
    // All servers may be down by now, and may have lost messages that they had not written to disk.
    js.onDisconnect(() => this.#lose())
    js.onReconnect(() => this.#tell())
  }

  /** Aborted as soon as messages that were confirmed before may be lost. From then on, the property is a new signal. */
  get lostSignal(): AbortSignal {
    return this.#loss.signal
  }

  /** Calls the listener when NATS answers again after `lostSignal` was aborted. */
  onLoss(listener: () => void): void {
    this.#listeners.add(listener)
  }

  /**
   * Makes a mark behind every message that was confirmed before this call, and returns it. A mark that is under way may
   * stand before some of them, so the next mark serves all calls until it begins.
   */
  raise(): Promise<string> {
    if (this.#next) return this.#next
    const next = this.#underWay.then(() => {
      this.#next = undefined
      return this.#write()
    })
    this.#next = next
    this.#underWay = next.catch(() => undefined).then(() => sleep(PAUSE_MS, undefined, { ref: false }))
    return next
  }

  /** Returns true if the stream has everything that was confirmed before the mark was made. */
  async holds(mark: string): Promise<boolean> {
    const [process = '', sequence] = mark.split('.')
    const last = await this.#js.lastOf(this.#marked.stream, this.#subjectOf(process))
    return last !== undefined && last.sequence >= Number(sequence)
  }

  async #write(): Promise<string> {
    for (;;) {
      const subject = this.#subjectOf(this.#process)
      try {
        const headers = { 'Nats-Expected-Last-Subject-Sequence': this.#last, 'Nats-TTL': KEPT }
        this.#last = (await this.#js.publish(subject, '', headers)).sequence
        return `${this.#process}.${this.#last}`
      } catch (error) {
        if (!isWrongSequence(error)) throw error
        const found = await this.#js.lastOf(this.#marked.stream, subject)
        if (found && found.sequence > this.#last) {
          // A mark of this process whose confirmation got lost.
          this.#last = found.sequence
          continue
        }
        this.#process = this.#nonce()
        this.#last = 0
        this.#lose()
        this.#tell()
      }
    }
  }

  #subjectOf(process: string): string {
    return `${this.#marked.mark}.${process}`
  }

  #lose(): void {
    const before = this.#loss
    this.#loss = new AbortController()
    before.abort()
  }

  #tell(): void {
    for (const listener of this.#listeners) listener()
  }
}

/** Thrown if a stream that this process uses was deleted or emptied, so that its messages are lost. */
export class StreamLostError extends Error {
  override readonly name = 'StreamLostError'
}

export interface MarkedStream {
  stream: string
  /** The subject of one message that exists from the beginning. If it is missing, the stream was emptied. */
  mark: string
}

/**
 * Returns a function that names the present incarnation of the servers that keep these streams. Another name than
 * before means that confirmed messages may be lost. With replicas, the incarnation is the stream itself, as long as its
 * last sequence never falls below an earlier one. A stream without replicas is as safe as the page cache of its server,
 * so each start of that server counts. The function rejects with StreamLostError if a stream was replaced since the
 * first call. `creates`: stores the first message of a stream that has none.
 */
export function incarnationOf(
  js: JetStream,
  streams: readonly MarkedStream[],
  { creates }: { creates: boolean },
): () => Promise<string> {
  const lives = streams.map((marked) => lifeOf(js, marked, creates))
  const ask = async () => (await Promise.all(lives.map((life) => life()))).join(' ')
  // Only one request runs at a time. Otherwise the older answer could arrive last, and the stream would appear to have
  // fallen behind.
  let asking: Promise<string> | undefined
  // A request that was made without a connection is never answered.
  js.onReconnect(() => {
    asking = undefined
  })
  return () => {
    if (asking) return asking
    const mine = ask().finally(() => {
      if (asking === mine) asking = undefined
    })
    asking = mine
    return mine
  }
}

function lifeOf(js: JetStream, marked: MarkedStream, creates: boolean): () => Promise<string> {
  const { stream } = marked
  let highest = 0
  let fallenBehind = 0
  let known: { created: string; first: number | undefined } | undefined
  return async () => {
    const found = await orUndefined(js.admin.streams.info(stream), ERR.streamNotFound)
    if (found === undefined || (known && known.created !== found.created))
      throw new StreamLostError(`stream ${stream} was deleted: start again, and everything is listed and runs again`)
    const { config, created, state } = ofLeader(stream, found)
    const first = await firstIn(js, marked, creates && known?.first === undefined)
    if (known?.first !== undefined && known.first !== first)
      throw new StreamLostError(`stream ${stream} was emptied: start again, and everything is listed and runs again`)
    known = { created, first }
    if (state.last_seq < highest) fallenBehind++
    highest = state.last_seq
    const keeper = config.num_replicas > 1 ? 'replicas' : (js.nc.info?.server_id ?? '')
    return [keeper, created, first, ...(fallenBehind > 0 ? [fallenBehind] : [])].join(' ')
  }
}

/** Returns the sequence of the message that exists from the beginning. */
async function firstIn(js: JetStream, { stream, mark }: MarkedStream, creates: boolean): Promise<number | undefined> {
  const found = await js.lastOf(stream, mark)
  if (found !== undefined || !creates) return found?.sequence
  try {
    return (await js.publish(mark, '', { 'Nats-Expected-Last-Subject-Sequence': 0 })).sequence
  } catch (error) {
    if (!isWrongSequence(error)) throw error
    return (await js.lastOf(stream, mark))?.sequence
  }
}
