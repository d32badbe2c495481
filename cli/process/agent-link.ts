import { randomUUID } from 'node:crypto'
import { Readable } from 'node:stream'
import type { Msg } from 'nats'
import { z } from 'zod'
import {
  ApiConnectionError,
  createKubeClientOver,
  deadlineError,
  type HttpAnswer,
  type KubeClient,
  type RequestReport,
  type Transport,
} from '#kube'
import { type JetStream, UnknownOutcomeError } from '#nats'
import { pause, unlessAborted } from '#primitives'
import {
  type AgentAnswer,
  type AgentRequest,
  type AgentSession,
  agentSubjects,
  isLastPart,
  isNobody,
  joined,
  MOST_BYTES,
  packed,
  unpacked,
} from './agent-wire.ts'
import type { Config } from './config.ts'
import { USER_AGENT } from './kube.ts'
import { openJetStream } from './nats.ts'

/** Connects to the API server of a cluster through its agents. */
export async function openAgentKube(config: Config, onRequest?: (request: RequestReport) => void): Promise<KubeClient> {
  const subjects = agentSubjects(config.FAIRLEAD_PREFIX)
  // Nobody who does not receive these answers can send one.
  const js = await openJetStream(config, 'dispatch', { inboxPrefix: `${subjects.answers}.${randomUUID()}` })
  return createKubeClientOver(new AgentLink(js, config.cluster ?? '', subjects), {
    userAgent: USER_AGENT,
    onRequest,
    origin: `the agent of cluster ${config.cluster}`,
  })
}

type Call = Parameters<Transport['send']>[0]

const session = z.object({ agent: z.uuid(), token: z.uuid(), clock: z.number() }) satisfies z.ZodType<AgentSession>

const answer = z.union([
  z.object({ code: z.int().min(200).max(599), retryAfter: z.number().min(0).optional() }),
  z.object({ unsent: z.string() }),
  z.object({ unanswered: z.string() }),
]) satisfies z.ZodType<AgentAnswer>

interface KnownSession extends AgentSession {
  /** A moment at which the agent's clock was `clock` or later. */
  heardAt: number
}

/** A session is asked for again after this time. Clocks drift apart by less than a millisecond in it. */
const FRESH_MS = 2000
const ASK_MS = 2000
const LOOK_EVERY_MS = 1000
/** Room for the subjects of a message beside its body. */
const HEADROOM_BYTES = 1024

/**
 * Sends requests to one of the agents of a cluster, over NATS. Each names the moment of that agent's own clock at which it is
 * too late. So it does not matter how long a request was on its way, and no two clocks have to agree.
 */
class AgentLink implements Transport {
  readonly host: string
  readonly #js: JetStream
  readonly #name: string
  readonly #subjects: ReturnType<typeof agentSubjects>
  #known: KnownSession | undefined
  #asking: Promise<KnownSession> | undefined

  constructor(js: JetStream, name: string, subjects: ReturnType<typeof agentSubjects>) {
    this.host = `agent.${name}`
    this.#js = js
    this.#name = name
    this.#subjects = subjects
  }

  async send<T>(call: Call, use: (answer: HttpAnswer) => Promise<T>): Promise<T> {
    call.signal?.throwIfAborted()
    const over = new AbortController()
    const { title, timeoutMs, signal } = call
    const timer = setTimeout(() => over.abort(deadlineError(title, this.host, timeoutMs, true)), timeoutMs)
    const ended = signal === undefined ? over.signal : AbortSignal.any([over.signal, signal])
    try {
      return await use(answerOf(await unlessAborted(this.#answerTo(call, ended), ended)))
    } finally {
      clearTimeout(timer)
      over.abort()
    }
  }

  close(): Promise<void> {
    return this.#js.close()
  }

  async #answerTo(call: Call, ended: AbortSignal): Promise<{ code: number; retryAfter?: number; body: string }> {
    for (let isAgain = false; ; isAgain = true) {
      const session = await this.#session(call)
      const head = requestOf(call, session)
      const request = await packed(head, call.payload ?? '')
      const most = (this.#js.nc.info?.max_payload ?? 2 ** 20) - HEADROOM_BYTES
      if (request.length > most)
        return tooLarge(`it has ${request.length} bytes, and NATS takes ${most}: raise max_payload of nats-server`)
      let parts: Msg[]
      try {
        const asked = this.#js.ask(this.#subjects.requestsTo(session.agent), request, endOf(ended), call.timeoutMs)
        parts = await Promise.race([asked, this.#gone(session.agent, ended)])
      } catch (error) {
        if (isNobody(error)) {
          if (this.#known === session) this.#known = undefined
          if (isAgain) throw this.#error(call, 'its agent has just ended', false)
          continue
        }
        await this.#cancel(session, head).catch(() => undefined)
        throw error instanceof UnknownOutcomeError ? this.#error(call, error.message, true) : error
      }
      return this.#answerIn(call, parts)
    }
  }

  async #answerIn(call: Call, parts: readonly Msg[]): Promise<{ code: number; retryAfter?: number; body: string }> {
    const { head, body } = await unpacked(joined(parts.map(({ data }) => data))).catch((error: Error) => {
      throw this.#error(call, `its agent sends no answer but something else (${error.message})`, true)
    })
    const { data } = answer.safeParse(head)
    if (data === undefined) throw this.#error(call, 'its agent sends no answer but something else', true)
    if ('code' in data) return { ...data, body }
    throw 'unsent' in data ? this.#error(call, data.unsent, false) : this.#error(call, data.unanswered, true)
  }

  /** Nobody waits for the request any more: its run ends, and another one may begin before the request is too late. */
  async #cancel({ agent, token }: AgentSession, { id, until }: AgentRequest): Promise<void> {
    const { nc } = this.#js
    nc.publish(this.#subjects.requestsTo(agent), await packed({ token, cancel: id, until }, ''), {
      reply: this.#js.newInbox(),
    })
  }

  /** Rejects when the agent is gone, which may have sent the request before. */
  async #gone(agent: string, ended: AbortSignal): Promise<never> {
    for (;;) {
      await pause(LOOK_EVERY_MS, ended)
      ended.throwIfAborted()
      try {
        await this.#ask(this.#subjects.requestsTo(agent))
      } catch (error) {
        if (isNobody(error)) throw new UnknownOutcomeError('the agent ended before it answered')
      }
    }
  }

  /** All agents are asked: the first answer is that of one that is not frozen. */
  async #session(call: Call): Promise<KnownSession> {
    const known = this.#known
    if (known !== undefined && performance.now() - known.heardAt < FRESH_MS) return known
    try {
      this.#asking ??= this.#ask(this.#subjects.sessions).finally(() => (this.#asking = undefined))
      return (this.#known = await this.#asking)
    } catch (error) {
      const why = isNobody(error) ? 'has no agent: run fairlead agent there' : 'does not answer through its agents'
      throw this.#error(call, `cluster ${this.#name} ${why} (${(error as Error).message})`, false)
    }
  }

  async #ask(subject: string): Promise<KnownSession> {
    const [told] = await this.#js.ask(subject, '', () => true, ASK_MS)
    return { ...session.parse(JSON.parse(told?.string() ?? '')), heardAt: performance.now() }
  }

  #error({ title }: Call, why: string, wasSent: boolean): ApiConnectionError {
    return new ApiConnectionError(`${title}: ${why}`, { server: this.host, wasSent })
  }
}

function requestOf(call: Call, { agent: _agent, token, clock, heardAt }: KnownSession): AgentRequest {
  // First the time, then how long the lease lasts: a pause between the two makes the request too late, and never too early.
  const now = performance.now()
  const withinMs = Math.min(call.mayStart?.() ?? call.timeoutMs, call.timeoutMs)
  const text = (name: string) => call.headers[name]?.toString()
  return {
    id: randomUUID(),
    token,
    until: clock + (now - heardAt) + withinMs,
    method: call.method,
    target: call.target,
    as: text('impersonate-user'),
    contentType: text('content-type'),
    traceparent: text('traceparent'),
  }
}

function answerOf({ code, retryAfter, body }: { code: number; retryAfter?: number; body: string }): HttpAnswer {
  const headers = retryAfter === undefined ? {} : { 'retry-after': String(retryAfter) }
  return Object.assign(Readable.from([Buffer.from(body)]), { statusCode: code, headers })
}

const tooLarge = (message: string) => ({
  code: 413,
  body: JSON.stringify({ apiVersion: 'v1', kind: 'Status', code: 413, reason: 'RequestEntityTooLarge', message }),
})

/** Returns whether an answer has ended: with its last part, or because it is longer or later than anybody waits for. */
const endOf = (ended: AbortSignal) => {
  let bytes = 0
  return ({ data }: Msg): boolean => (bytes += data.length) > MOST_BYTES || ended.aborted || isLastPart(data)
}
