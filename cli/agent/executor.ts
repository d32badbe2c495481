import { randomUUID } from 'node:crypto'
import type { Msg } from 'nats'
import { z } from 'zod'
import type { DeclaredReconciler } from '#bridge'
import type { RunLog, Runnable } from '#contracts'
import { APPLY_TYPE, ApiConnectionError, type KubeClient } from '#kube'
import type { JetStream } from '#nats'
import { endedWithin, pause } from '#primitives'
import {
  type AgentAnswer,
  type AgentCancel,
  type AgentRequest,
  type AgentSession,
  agentSubjects,
  packed,
  parted,
  unpacked,
} from '#process/agent-wire'
import { askedBy, isDeclared, isForItself } from './rights.ts'

export interface ExecutorDeps {
  js: JetStream
  /** The prefix of the cluster's subjects. */
  prefix: string | undefined
  /** Its account may impersonate the accounts of the functions. */
  kube: Pick<KubeClient, 'answerTo'>
  /** Undefined until they have been listed. */
  reconcilers: () => readonly DeclaredReconciler[] | undefined
  log: RunLog
  clock?: () => number
}

const request = z.strictObject({
  id: z.string().min(1).max(100),
  token: z.string(),
  until: z.number(),
  method: z.enum(['GET', 'POST', 'PATCH', 'DELETE']),
  target: z.string().max(4096),
  as: z.string().max(512).optional(),
  contentType: z.enum(['application/json', 'application/merge-patch+json', APPLY_TYPE]).optional(),
  traceparent: z
    .string()
    .regex(/^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/)
    .optional(),
}) satisfies z.ZodType<AgentRequest>

type Request = z.output<typeof request>

const cancel = z.strictObject({
  token: z.string(),
  cancel: z.string().min(1).max(100),
  until: z.number(),
}) satisfies z.ZodType<AgentCancel>

/** No request may be executed later than this after it was sent, so its id is not kept longer. */
const LONGEST_MS = 300_000
/** More than the API server takes. */
const LARGEST_REQUEST_BYTES = 4 * 2 ** 20
/** More than the API server answers about one object. */
const LARGEST_BYTES = 16 * 2 ** 20
/** A Reconciler may reach the hub a moment before its watch reaches this agent. */
const DECLARED_WITHIN_MS = 2000
const LOOK_EVERY_MS = 100
/** How the API server reports that it is ready, as a dispatcher asks for it. */
const READY = '/readyz?exclude=kms-providers'

/** Thrown for a request that may not be sent any more. */
class TooLateError extends Error {}

/**
 * Sends the requests of a dispatcher to the API server of its own cluster, as the account of a function. It trusts nothing that
 * the dispatcher says: the Reconcilers of its own cluster decide what it sends.
 */
export class Executor implements Runnable {
  readonly #deps: ExecutorDeps
  readonly #clock: () => number
  readonly #agent = randomUUID()
  readonly #token = randomUUID()
  readonly #subjects: ReturnType<typeof agentSubjects>
  /** When the requests that were taken are over, by id, in the order of their arrival. */
  readonly #taken = new Map<string, number>()
  readonly #stops = new Map<string, AbortController>()
  readonly #underWay = new Set<Promise<void>>()

  constructor(deps: ExecutorDeps) {
    this.#deps = deps
    this.#clock = deps.clock ?? unsleepingClock()
    this.#subjects = agentSubjects(deps.prefix)
  }

  /** Takes requests when the Reconcilers are known, until the signal. Rejects if its user of NATS may not subscribe to them. */
  async run(signal: AbortSignal, graceMs: number): Promise<void> {
    const { js, log, reconcilers } = this.#deps
    const { sessions, requestsTo } = this.#subjects
    while (!signal.aborted && reconcilers() === undefined) await pause(LOOK_EVERY_MS, signal)
    const ended = Promise.withResolvers<void>()
    const receiving = (subject: string, take: (message: Msg) => void) =>
      js.nc.subscribe(subject, { callback: (error, message) => (error ? ended.reject(error) : take(message)) })
    const requested = receiving(requestsTo(this.#agent), (message) => this.#receive(message))
    const asked = receiving(sessions, (message) => this.#tell(message))
    signal.addEventListener('abort', () => ended.resolve(), { once: true })
    if (signal.aborted) ended.resolve()
    try {
      await Promise.race([js.nc.flush(), ended.promise])
      log.info({ agent: this.#agent, subject: sessions }, 'taking requests')
      await ended.promise
    } finally {
      // Dispatchers find another agent. Those that wait for an answer see that this one is still there.
      asked.unsubscribe()
      await endedWithin(graceMs, this.#idle())
      await endedWithin(graceMs, requested.drain())
      await endedWithin(graceMs, this.#idle())
    }
  }

  async #idle(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.all(this.#underWay)
  }

  #receive(message: Msg): void {
    if (message.data.length === 0) return this.#tell(message)
    const working = this.#answer(message)
      .catch((error: unknown) => this.#deps.log.warn({ err: error }, 'a request is dropped'))
      .finally(() => this.#underWay.delete(working))
    this.#underWay.add(working)
  }

  #tell({ reply }: Msg): void {
    const session: AgentSession = { agent: this.#agent, token: this.#token, clock: this.#clock() }
    if (this.#isAnswerable(reply)) this.#deps.js.nc.publish(reply, JSON.stringify(session))
  }

  /** Answers go to inboxes only: this process may write events, and the sender chooses the subject. */
  #isAnswerable(reply: string | undefined): reply is string {
    return reply?.startsWith(`${this.#subjects.answers}.`) === true
  }

  async #answer({ data, reply }: Msg): Promise<void> {
    if (!this.#isAnswerable(reply)) throw new Error('its answer would not go to a dispatcher')
    const { head, body } = await unpacked(data, LARGEST_REQUEST_BYTES)
    const { data: asked, error } = request.safeParse(head)
    if ((head as Partial<AgentRequest>).token !== this.#token)
      throw new Error('it is not from a dispatcher of this cluster')
    const { data: over } = cancel.safeParse(head)
    if (over !== undefined) return this.#cancel(over)
    if (error !== undefined) return this.#send(reply, ...refused(`it is not valid: ${z.prettifyError(error)}`))
    // The first one has the answer.
    if (this.#isTaken(asked)) throw new Error(`request ${asked.id} was received twice`)
    await this.#send(reply, ...(await this.#executed(asked, body)))
  }

  /** The run of the request has ended, so another one may have begun. The request itself may come after this. */
  #cancel({ cancel: id, until }: z.output<typeof cancel>): void {
    this.#isTaken({ id, until })
    this.#stops.get(id)?.abort(new TooLateError('the dispatcher does not wait for the request any more'))
  }

  #isTaken({ id, until }: Pick<Request, 'id' | 'until'>): boolean {
    const now = this.#clock()
    for (const [old, over] of this.#taken) {
      if (over > now) break
      this.#taken.delete(old)
    }
    const isTaken = this.#taken.has(id)
    this.#taken.set(id, Math.min(until, now + LONGEST_MS))
    return isTaken
  }

  async #executed(asked: Request, body: string): Promise<[AgentAnswer, string?]> {
    const { id, method, as, contentType, traceparent, until } = asked
    const stop = new AbortController()
    this.#stops.set(id, stop)
    const mayStart = () => {
      const leftMs = until - this.#clock()
      if (leftMs <= 0 || leftMs > LONGEST_MS)
        throw new TooLateError('the request has arrived too late, and is not sent')
      return leftMs
    }
    try {
      mayStart()
      const allowed = await this.#allowed(asked)
      if (typeof allowed === 'string')
        return refused(`the agent of the cluster does not send ${method} ${asked.target}: ${allowed}`)
      const headers = { ...(as !== undefined && { 'impersonate-user': as }), ...(traceparent && { traceparent }) }
      const text = method === 'GET' ? undefined : body
      // Requests of functions that hang may hold all other connections.
      const alone = as === undefined
      const limits = { mayStart, signal: stop.signal, alone, maxBytes: LARGEST_BYTES }
      const answer = await this.#deps.kube.answerTo({ method, ...allowed, headers, contentType, text, ...limits })
      return [{ code: answer.code, retryAfter: answer.retryAfterSeconds }, answer.body]
    } catch (error) {
      const { message } = error as Error
      const isUnsent = error instanceof TooLateError || (error instanceof ApiConnectionError && !error.wasSent)
      return [isUnsent ? { unsent: message } : { unanswered: message }]
    } finally {
      this.#stops.delete(id)
    }
  }

  /** Returns what may be sent, or why nothing may be. */
  async #allowed({ method, target, as }: Request): Promise<{ path: string; query?: Record<string, string> } | string> {
    if (as === undefined && method === 'GET' && target === READY) return { path: target }
    const asked = askedBy(method, target)
    if (typeof asked === 'string') return asked
    if (as === undefined)
      return isForItself(asked) ? asked : 'no account of a function is named: a Reconciler needs a serviceAccount here'
    const { reconcilers } = this.#deps
    for (const until = performance.now() + DECLARED_WITHIN_MS; ; await pause(LOOK_EVERY_MS)) {
      if (isDeclared(reconcilers() ?? [], as, asked)) return asked
      if (performance.now() > until) return `no Reconciler in the cluster declares it for ${as}`
    }
  }

  async #send(reply: string, head: AgentAnswer, body = ''): Promise<void> {
    const { nc } = this.#deps.js
    for (const part of parted(await packed(head, body), nc.info?.max_payload ?? 2 ** 20)) nc.publish(reply, part)
  }
}

/** Answers as the API server would, so that the run shows it on its object. */
const refused = (message: string): [AgentAnswer, string] => [
  { code: 403 },
  JSON.stringify({ apiVersion: 'v1', kind: 'Status', code: 403, reason: 'Forbidden', message }),
]

/** A step of the wall clock of this size is the sleep of the machine, or a change of the clock. */
const STEP_MS = 1000

/** Returns a clock that never goes back, and counts the time for which the machine sleeps. It may run ahead. */
function unsleepingClock(): () => number {
  let base = Date.now() - performance.now()
  return () => {
    const behind = Date.now() - performance.now() - base
    if (behind > STEP_MS) base += behind
    return performance.now() + base
  }
}
