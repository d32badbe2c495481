import type { Logger } from 'pino'
import { type ContentMode, type EventsView, type ObjectFilter, type StoredEvent, viewEvents } from '#events'
import type { Config } from '#host/config'
import { untilStopped } from '#host/exit'
import { createLogger } from '#host/logging'
import { openJetStream, reportConnection } from '#host/nats'
import { filtersOf, type Selection, wants } from '#inspect'
import { formatted } from '../events/format.ts'
import type { Format, Target } from '../events/options.ts'
import { openSink } from '../events/sink.ts'
import type { CommandContext } from '../options.ts'

interface SelectOptions extends Selection {
  type: string[]
  since?: Date
}

export interface GetOptions extends SelectOptions {
  output: Format
}

export interface ReplayOptions extends SelectOptions {
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

export const replay = ({ to, mode, follow, ...options }: ReplayOptions, context: CommandContext): Promise<void> =>
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
