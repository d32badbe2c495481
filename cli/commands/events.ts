import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { namespacedName, resourceName } from '#contracts'
import {
  type CloudEvent,
  type ContentMode,
  type EventsView,
  type ObjectFilter,
  type StoredEvent,
  toHttp,
  toNats,
  viewEvents,
} from '#events'
import { filtersOf, type Selection, wants } from '#inspect'
import { encodeHeaders, type JetStream } from '#nats'
import type { Config } from '#process/config'
import { oneLine, UsageError, untilStopped } from '#process/exit'
import { createLogger } from '#process/logging'
import { openJetStream, reportConnection, streamsOf } from '#process/nats'
import { ownerOf } from '#spec'
import type { CommandContext, Format, Target } from '../options.ts'

interface SelectOptions extends Selection {
  type: string[]
  since?: Date
}

export interface GetOptions extends SelectOptions {
  output: Format
}

export interface EventsReplayOptions extends SelectOptions {
  to: Target
  mode: ContentMode
  follow?: true
}

/** Attempts within some seconds: a receiver may still be starting. */
const TRIES = 5

interface SelectedEvents {
  settings: Config
  view: EventsView
  log: Logger
  filters: ObjectFilter[]
  isWanted: (event: StoredEvent) => boolean
}

/** Connects to NATS only: commands that read events need no cluster. */
async function withEventsView(
  options: SelectOptions,
  { config }: CommandContext,
  act: (events: SelectedEvents) => Promise<void>,
) {
  const settings = await config()
  await using js = await openJetStream(settings, 'events')
  const log = await createLogger(settings)
  reportConnection(js, log)
  const view = viewEvents(js, { prefix: settings.FAIRLEAD_PREFIX, log })
  const filters = filtersOf(options, await view.resources())
  await act({ settings, view, log, filters, isWanted: wants(options.type) })
}

export const tail = ({ output, ...options }: GetOptions, context: CommandContext): Promise<void> =>
  withEventsView(options, context, async ({ view, log, filters, isWanted }) => {
    const { signal } = untilStopped()
    const start = options.since ?? (await view.end())
    log[process.stderr.isTTY ? 'info' : 'debug']({ start }, 'following; Ctrl-C ends')
    for await (const event of matching(view.follow(filters, start, signal), isWanted))
      context.print(formatted[output](event))
  })

export const get = ({ output, ...options }: GetOptions, context: CommandContext): Promise<void> =>
  withEventsView(options, context, async ({ view, filters, isWanted }) => {
    let found = 0
    for await (const event of matching(view.stored(filters, options.since), isWanted)) {
      context.print(formatted[output](event))
      found++
    }
    if (found > 0) return
    if (options.name !== undefined) throw new Error(`EVENTS has no such event of ${options.name}`)
    console.error('EVENTS has no such event')
  })

export const replay = ({ to, mode, follow, ...options }: EventsReplayOptions, context: CommandContext): Promise<void> =>
  withEventsView(options, context, async ({ settings, view, filters, isWanted }) => {
    const { signal } = untilStopped()
    await using sink = await openSink(to, mode, settings, TRIES)
    let sent = 0
    const events = follow ? view.follow(filters, options.since, signal) : view.stored(filters, options.since)
    for await (const { event } of matching(events, isWanted)) {
      await sink.send(event, signal)
      sent++
    }
    context.print(`${sent} events sent to ${sink.name}`)
  })

async function* matching(
  events: AsyncIterable<StoredEvent>,
  isWanted: (event: StoredEvent) => boolean,
): AsyncGenerator<StoredEvent> {
  for await (const event of events) if (isWanted(event)) yield event
}

/** Formats one event as one line: for people, for scripts, or as a CloudEvent in structured mode. */
const formatted: Record<Format, (event: StoredEvent) => string> = {
  text: ({ event, verb, key, resourceVersion, ...stored }) =>
    [
      event.time,
      verb.padEnd(8),
      resourceName(key.ref),
      oneLine(namespacedName(key)),
      `version ${resourceVersion}`,
      ...notesOn({ event, verb, key, resourceVersion, ...stored }).map((note) => oneLine(note)),
    ].join('  '),
  json: ({ event, verb, key, owner, origin, sequence, resourceVersion, uid, referenceOnly, object }) =>
    JSON.stringify({
      time: event.time,
      verb,
      resource: resourceName(key.ref),
      namespace: key.namespace,
      name: key.name,
      uid,
      resourceVersion,
      owner: owner && `${owner.resource}/${owner.name}`,
      writtenBy: origin,
      sequence,
      referenceOnly,
      object,
    }),
  event: ({ event }) => JSON.stringify(event),
}

function notesOn({ object, origin, referenceOnly }: StoredEvent): string[] {
  const owner = ownerOf(object)
  const { phase } = (object.status ?? {}) as { phase?: unknown }
  return [
    ...(typeof phase === 'string' ? [phase] : []),
    ...(owner === undefined ? [] : [`of ${owner.kind} ${owner.name}`]),
    ...(object.metadata.deletionTimestamp === undefined ? [] : ['being deleted']),
    ...(origin === undefined ? [] : [`written by ${origin.split('/')[0]}`]),
    ...(referenceOnly ? ['reference only'] : []),
  ]
}

/** A receiver of single events. */
export interface Sink {
  /** The name of the receiver in messages. */
  name: string
  /**
   * Returns a description of the answer. Rejects if the receiver does not accept the event, after retries of temporary
   * errors.
   */
  send(event: CloudEvent, signal: AbortSignal): Promise<string>
}

/** The receiver has rejected the event. */
class NotTakenError extends Error {
  override readonly name = 'NotTakenError'
}

const TIMEOUT_MS = 60_000
const FIRST_PAUSE_MS = 250
const LONGEST_PAUSE_MS = 30_000
/** Statuses after which the same event may be accepted later (CloudEvents webhook, Knative data plane). */
const PASSING = new Set([404, 408, 409, 425, 429])

/** Opens a sink, with a connection of its own if it needs one. */
export async function openSink(
  to: Target,
  mode: ContentMode,
  config: Config,
  tries: number,
): Promise<Sink & AsyncDisposable> {
  if (to.kind === 'http') return { ...httpSink(to.url, mode, tries), [Symbol.asyncDispose]: async () => {} }
  const js = await openJetStream(config, 'publish')
  return {
    ...natsSink(js, to.subject, mode, streamsOf(config, ['EVENTS', 'WORK', 'DEAD'])),
    [Symbol.asyncDispose]: () => js.close(),
  }
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

/** Returns the cause of a failed fetch, since its message contains no reason. */
function reasonOf(error: unknown): string {
  const { cause } = error as { cause?: unknown }
  if (cause instanceof AggregateError) return reasonOf(cause.errors[0])
  return cause instanceof Error ? cause.message : (error as Error).message
}

/** Returns the stream that stores the subject; undefined if there is none. Rejects without an answer. */
const streamOf = async (js: JetStream, subject: string): Promise<string | undefined> =>
  (await js.admin.streams.names(subject).next())[0]

/** Stores events if a stream has the subject; otherwise publishes them to subscribers. */
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
