import { setTimeout as sleep } from 'node:timers/promises'
import { type CloudEvent, type ContentMode, toHttp, toNats } from '#events'
import type { Config } from '#host/config'
import { UsageError } from '#host/exit'
import { openJetStream } from '#host/nats'
import { encodeHeaders, type JetStream } from '#jetstream'
import type { Target } from './options.ts'

/** Where single events are sent to. */
export interface Sink {
  /** For messages. */
  name: string
  /** Says what the answer was. Rejects when it was not taken, after repeating what may pass. */
  send(event: CloudEvent, signal: AbortSignal): Promise<string>
}

/** Somebody got an event and did not take it. */
class NotTakenError extends Error {
  override readonly name = 'NotTakenError'
}

const TIMEOUT_MS = 60_000
const FIRST_PAUSE_MS = 250
const LONGEST_PAUSE_MS = 30_000
/** CloudEvents webhook and Knative data plane: the same may be taken later. */
const PASSING = new Set([404, 408, 409, 425, 429])

/** With a connection of its own, where it needs one. */
export async function openSink(
  to: Target,
  mode: ContentMode,
  config: Config,
  tries: number,
): Promise<Sink & AsyncDisposable> {
  if (to.kind === 'http') return { ...httpSink(to.url, mode, tries), [Symbol.asyncDispose]: async () => {} }
  const js = await openJetStream(config, 'publish')
  return { ...natsSink(js, to.subject, mode, ownStreams(config)), [Symbol.asyncDispose]: () => js.close() }
}

function httpSink(url: string, mode: ContentMode, tries: number): Sink {
  return {
    name: url,
    async send(event, signal) {
      const { headers, body } = toHttp(event, mode)
      for (let attempt = 1; ; attempt++) {
        const answer = await posted(url, headers, body, signal)
        if (answer.taken) return answer.said
        if (!answer.passing || attempt === tries)
          throw new NotTakenError(`${url} did not take event ${event.id}: ${answer.said}`)
        await sleep(answer.pauseMs ?? Math.min(FIRST_PAUSE_MS * 2 ** attempt, LONGEST_PAUSE_MS), undefined, { signal })
      }
    },
  }
}

interface Answer {
  taken: boolean
  passing: boolean
  said: string
  pauseMs?: number
}

async function posted(
  url: string,
  headers: Record<string, string>,
  body: Uint8Array,
  signal: AbortSignal,
): Promise<Answer> {
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers,
      body: Buffer.from(body),
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    })
    const text = (await response.text()).trim()
    const said = [response.status, response.statusText, text].filter((part) => part !== '').join(' ')
    const after = Number(response.headers.get('retry-after') ?? Number.NaN)
    return {
      taken: response.ok,
      passing: response.status >= 500 || PASSING.has(response.status),
      said,
      ...(Number.isFinite(after) && { pauseMs: Math.min(after * 1000, LONGEST_PAUSE_MS) }),
    }
  } catch (error) {
    signal.throwIfAborted()
    return { taken: false, passing: true, said: reasonOf(error) }
  }
}

/** fetch says only that it failed; why is its cause. */
function reasonOf(error: unknown): string {
  const { cause } = error as { cause?: unknown }
  if (cause instanceof AggregateError) return reasonOf(cause.errors[0])
  return cause instanceof Error ? cause.message : (error as Error).message
}

const ownStreams = ({ FAIRLEAD_PREFIX: prefix }: Config): string[] =>
  ['EVENTS', 'WORK', 'DEAD'].map((name) => (prefix === undefined ? name : `${prefix}_${name}`))

/** Undefined: no stream takes it. Rejects where nobody could say. */
const streamOf = async (js: JetStream, subject: string): Promise<string | undefined> =>
  (await js.admin.streams.names(subject).next())[0]

/** Stored, where a stream takes the subject; else published to whoever listens. */
function natsSink(js: JetStream, subject: string, mode: ContentMode, own: readonly string[]): Sink {
  let asked: Promise<string | undefined> | undefined
  return {
    name: `nats:${subject}`,
    async send(event) {
      const { headers, data } = toNats(event, mode)
      asked ??= streamOf(js, subject).catch((error: unknown) => {
        asked = undefined
        throw error
      })
      const stream = await asked
      if (stream !== undefined && own.includes(stream))
        throw new UsageError(`${subject} is a subject of Fairlead's own stream ${stream}: name another one`)
      if (stream === undefined) {
        js.nc.publish(subject, data, { headers: encodeHeaders(headers) })
        await js.flush()
        return 'published to whoever listens: no stream takes the subject'
      }
      const { sequence, duplicate } = await js.publish(subject, data, { ...headers, 'Nats-Msg-Id': event.id })
      return duplicate ? `already in stream ${stream}` : `stored in stream ${stream} as ${sequence}`
    },
  }
}
