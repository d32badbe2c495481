import type { Msg, NatsConnection, PublishOptions } from 'nats'
import { ConnectionClosedError, UnknownOutcomeError } from './errors.ts'
import { encodeHeaders, type Headers } from './messages.ts'

interface Pending {
  subject: string
  timeoutMs: number
  /** Moves forward with each answer. */
  deadline: number
  /** Returns true for the last answer. */
  answer: (message: Msg) => boolean
  fail: (error: Error) => void
}

const SWEEP_MS = 100
/** The beginning of each subject of JetStream's API, in the account that has the streams. */
const API = '$JS.API'

/**
 * Sends requests over one inbox subscription, without a timer or subscription for each request: the client's request()
 * costs two to three times as much per call. Unanswered requests fail at once as unknown when the connection drops.
 */
export class RequestMux {
  readonly #nc: NatsConnection
  readonly #outbox: Outbox
  readonly #prefix: string
  readonly #api: string
  readonly #pending = new Map<string, Pending>()
  #next = 0
  #sweeper: NodeJS.Timeout | undefined

  constructor(nc: NatsConnection, outbox: Outbox, inbox: string, api = API) {
    this.#api = api
    this.#prefix = `${inbox}.`
    this.#nc = nc
    this.#outbox = outbox
    nc.subscribe(`${this.#prefix}*`, { callback: (error, message) => (error ? undefined : this.#dispatch(message)) })
  }

  /** Sends a request with one answer. */
  request(
    subject: string,
    payload: Uint8Array | string,
    headers: Headers | undefined,
    timeoutMs: number,
  ): Promise<Msg> {
    return new Promise((resolve, reject) => {
      const answer = (message: Msg) => {
        resolve(message)
        return true
      }
      this.#send(subject, payload, headers, timeoutMs, { answer, fail: reject })
    })
  }

  /**
   * Collects answers until `last` returns true for the end marker, which is the last element. The time-out is for each
   * next answer, not for all of them.
   */
  requestMany(
    subject: string,
    payload: Uint8Array | string,
    last: (message: Msg) => boolean,
    timeoutMs: number,
  ): Promise<Msg[]> {
    return new Promise((resolve, reject) => {
      const answers: Msg[] = []
      const answer = (message: Msg) => {
        answers.push(message)
        if (!last(message)) return false
        resolve(answers)
        return true
      }
      this.#send(subject, payload, undefined, timeoutMs, { answer, fail: reject })
    })
  }

  /** Fails all unanswered requests. Called when the connection drops. */
  abandon(reason: string): void {
    for (const [id, pending] of this.#pending) {
      this.#pending.delete(id)
      pending.fail(new UnknownOutcomeError(`no answer on ${pending.subject}: ${reason}`))
    }
  }

  #send(
    subject: string,
    payload: Uint8Array | string,
    headers: Headers | undefined,
    timeoutMs: number,
    waiter: Pick<Pending, 'answer' | 'fail'>,
  ): void {
    if (this.#nc.isClosed()) return waiter.fail(new ConnectionClosedError('the NATS connection is closed'))
    const id = (this.#next++).toString(36)
    this.#pending.set(id, { subject, timeoutMs, deadline: performance.now() + timeoutMs, ...waiter })
    this.#sweeper ??= setInterval(() => this.#sweep(), SWEEP_MS)
    const failed = (error: Error) => {
      this.#pending.delete(id)
      waiter.fail(error)
    }
    try {
      const reply = this.#prefix + id
      const asked = this.#api !== API && subject.startsWith(API) ? this.#api + subject.slice(API.length) : subject
      this.#outbox.send(asked, payload, headers ? { reply, headers: encodeHeaders(headers) } : { reply }, failed)
    } catch (error) {
      failed(error as Error)
    }
  }

  #dispatch(message: Msg): void {
    const id = message.subject.slice(this.#prefix.length)
    const pending = this.#pending.get(id)
    if (pending === undefined) return
    if (pending.answer(message)) this.#pending.delete(id)
    else pending.deadline = performance.now() + pending.timeoutMs
  }

  #sweep(): void {
    const now = performance.now()
    for (const [id, pending] of this.#pending) {
      if (pending.deadline > now) continue
      this.#pending.delete(id)
      pending.fail(new UnknownOutcomeError(`no answer on ${pending.subject} in time`))
    }
    if (this.#pending.size > 0) return
    clearInterval(this.#sweeper)
    this.#sweeper = undefined
  }
}

interface Outgoing {
  subject: string
  payload: Uint8Array | string
  options: PublishOptions | undefined
  failed: (error: Error) => void
}

/**
 * Collects messages that are published during one turn of the event loop, and gives them to the client at its end, so
 * that they leave in one write to the socket. Under load, a write costs more than the rest of a publish (tens of
 * microseconds). The order is kept.
 */
export class Outbox {
  readonly #nc: NatsConnection
  #waiting: Outgoing[] = []
  #tasks: (() => void)[] = []
  #scheduled = false

  constructor(nc: NatsConnection) {
    this.#nc = nc
  }

  /** Publishes a message. `failed` is called if the client did not accept it, so that nothing was sent. */
  send(
    subject: string,
    payload: Uint8Array | string,
    options?: PublishOptions,
    failed: (error: Error) => void = () => {},
  ): void {
    this.#waiting.push({ subject, payload, options, failed })
    this.#schedule()
  }

  /** Runs the task at the end of this turn. Its messages are sent together with all others of the turn. */
  atEndOfTurn(task: () => void): void {
    this.#tasks.push(task)
    this.#schedule()
  }

  flush(): void {
    const tasks = this.#tasks
    this.#tasks = []
    for (const task of tasks) task()
    const waiting = this.#waiting
    this.#waiting = []
    for (const { subject, payload, options, failed } of waiting) {
      try {
        this.#nc.publish(subject, payload, options)
      } catch (error) {
        failed(error as Error)
      }
    }
  }

  #schedule(): void {
    if (this.#scheduled) return
    this.#scheduled = true
    setImmediate(() => {
      this.flush()
      this.#scheduled = false
      // A task may have planned another one.
      if (this.#tasks.length > 0) this.#schedule()
    })
  }
}

/** A timer that all periodic checks share. It runs while there are listeners. */
export class Ticker {
  readonly #everyMs: number
  readonly #listeners = new Set<() => void>()
  #timer: NodeJS.Timeout | undefined

  constructor(everyMs: number) {
    this.#everyMs = everyMs
  }

  /** Calls the listener at each tick. Returns a function that removes the listener. */
  on(listener: () => void): () => void {
    this.#listeners.add(listener)
    this.#timer ??= setInterval(() => this.#tick(), this.#everyMs)
    return () => this.#off(listener)
  }

  #tick(): void {
    for (const listener of this.#listeners) listener()
  }

  #off(listener: () => void): void {
    this.#listeners.delete(listener)
    if (this.#listeners.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }
}
