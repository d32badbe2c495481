import { type Command, InvalidArgumentError, Option } from 'commander'
import type { Logger } from 'pino'
import { type ContentMode, type EventsView, type StoredEvent, viewEvents } from '#events'
import { openJetStream } from '../connections.ts'
import { FORMATS, type Format, formatted } from '../events/format.ts'
import { filtersOf, momentFrom, verbsFrom, wants } from '../events/selection.ts'
import { openSink, type Target, targetFrom } from '../events/sink.ts'
import { createLogger } from '../logging.ts'
import type { Surroundings } from '../options.ts'
import { untilStopped } from '../signals.ts'

interface SelectOptions {
  namespace?: string
  type: string[]
  since?: Date
}

/** Some seconds altogether: a receiver may be starting. */
const TRIES = 5

const HELP = `
KIND is a resource that a bridge watches: pods, pod, Pod, ats.cnat.programming-kubernetes.info, or several with
commas between. EVENTS keeps the last event of each object, and deletions for an hour; docs/events.md says more.`

export function eventsCommands(program: Command, { config, print }: Pick<Surroundings, 'config' | 'print'>): void {
  const events = program.command('events').description('the changes of the cluster, as CloudEvents in NATS')
  const selecting = (command: Command) =>
    command
      .argument('[kind]', 'only of these resources', (text: string) => text.split(','))
      .argument('[name]', 'only of this object')
      .option('-n, --namespace <name>', 'only of this namespace')
      .option('--type <verbs>', 'of added, modified, deleted, moved; with commas between', verbsFrom, [] as string[])
      .option('--since <time>', 'stored then or later: 10m, 2h, or a time', (text) => momentFrom(text))
      .addHelpText('after', HELP)
  const format = () => new Option('-o, --output <format>', 'one event a line').choices(FORMATS).default('text')

  const looking =
    <Options extends SelectOptions>(
      act: (look: Look, options: Options) => Promise<void>,
    ): ((kinds: string[] | undefined, name: string | undefined, options: Options) => Promise<void>) =>
    async (kinds = [], name, options) => {
      // NATS alone: who only looks needs no cluster.
      const settings = config()
      await using js = await openJetStream(settings, 'events')
      const log = createLogger(settings)
      const server = js.nc.getServer()
      js.onDisconnect(() => log.warn({ server }, 'NATS is gone; what it has is shown when it is back'))
      const view = viewEvents(js, { prefix: settings.FAIRLEAD_PREFIX, log })
      const { namespace, type } = options
      const filters = filtersOf({ kinds, name, namespace }, await view.resources())
      await act({ view, log, filters, name, isWanted: wants(type) }, options)
    }

  selecting(events.command('tail'))
    .description('changes as they come')
    .addOption(format())
    .action(
      looking(async ({ view, log, filters, isWanted }, { since, output }: SelectOptions & { output: Format }) => {
        const { signal } = untilStopped()
        const start = since ?? (await view.end())
        log[process.stderr.isTTY ? 'info' : 'debug']({ start }, 'following; Ctrl-C ends')
        for await (const event of view.follow(filters, start, signal))
          if (isWanted(event)) print(formatted[output](event))
      }),
    )
  selecting(events.command('get'))
    .description('the last event of each object')
    .addOption(format())
    .addHelpText(
      'after',
      '\nWhere nothing is found, that is said on standard error; the exit code is 1 if a name was given, else 0.',
    )
    .action(looking(get))
  selecting(events.command('replay'))
    .description('send the last event of each object somewhere, oldest first')
    .requiredOption('--to <target>', 'http://…, https://… or nats:SUBJECT', target)
    .addOption(modeOption())
    .option('--follow', 'then every later one, as it comes')
    .action(looking(replay))

  async function get(look: Look, { since, output }: SelectOptions & { output: Format }): Promise<void> {
    const { view, filters, name, isWanted } = look
    let found = 0
    for await (const event of matching(view.stored(filters, since), isWanted)) {
      print(formatted[output](event))
      found++
    }
    if (found > 0) return
    if (name !== undefined) throw new Error(`EVENTS has no such event of ${name}`)
    console.error('EVENTS has no such event')
  }

  async function replay(look: Look, options: SelectOptions & { to: Target; mode: ContentMode; follow?: true }) {
    const { view, filters, isWanted } = look
    const { since, to, mode, follow } = options
    const { signal } = untilStopped()
    await using sink = await openSink(to, mode, config(), TRIES)
    let sent = 0
    const events = follow ? view.follow(filters, since, signal) : view.stored(filters, since)
    for await (const { event } of matching(events, isWanted)) {
      await sink.send(event, signal)
      sent++
    }
    print(`${sent} events sent to ${sink.name}`)
  }
}

interface Look {
  view: EventsView
  log: Logger
  filters: Parameters<EventsView['stored']>[0]
  name: string | undefined
  isWanted: (event: StoredEvent) => boolean
}

async function* matching(
  events: AsyncIterable<StoredEvent>,
  isWanted: (event: StoredEvent) => boolean,
): AsyncGenerator<StoredEvent> {
  for await (const event of events) if (isWanted(event)) yield event
}

export const modeOption = () =>
  new Option('--mode <mode>', 'attributes in headers, or everything in the body')
    .choices(['binary', 'structured'])
    .default('binary')

export function target(text: string): Target {
  const found = targetFrom(text)
  if (found) return found
  throw new InvalidArgumentError('give http://…, https://… or nats:SUBJECT.')
}
