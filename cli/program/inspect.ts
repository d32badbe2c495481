import { type Command, InvalidArgumentError, Option } from 'commander'
import type { RunResult } from '#contracts'
import type { DeadReason } from '#events'
import type { DeadFilter, UsageDimension } from '#inspect'
import { type Act, STATES, STATES_OF, type State } from '#inspect/states'
import { UsageError } from '#process/exit'
import type { AllClustersOptions, ForgetOptions } from '../commands/clusters.ts'
import type { ConsoleFlags } from '../commands/console.ts'
import type { ConsoleInClusterOptions } from '../commands/console-in-cluster.ts'
import type { DeadLsOptions } from '../commands/dead.ts'
import type { EventsReplayOptions, GetOptions } from '../commands/events.ts'
import type { ExplainOptions } from '../commands/explain.ts'
import type { GivenActOptions, RunNowOptions, ShowOptions, WatchOptions } from '../commands/queue.ts'
import type { RunsLsOptions, RunsTailOptions } from '../commands/runs.ts'
import type { UsageCommandOptions } from '../commands/usage.ts'
import {
  allClustersOption,
  type CommandContext,
  FORMATS,
  functionOption,
  modeOption,
  momentFrom,
  objectName,
  outputOption,
  runNumbers,
  target,
  verbsFrom,
  whole,
} from '../options.ts'

/** Declares the commands that show the state of objects, queue, runs and events. */
export function inspectCommands(program: Command, context: CommandContext): void {
  program.commandsGroup('Inspect:')
  explainCommand(program, context)
  consoleCommand(program, context)
  queueCommands(program, context)
  runsCommands(program, context)
  usageCommand(program, context)
  eventsCommands(program, context)
  deadCommands(program, context)
  clusterCommands(program, context)
}

/** Acts once, or for each cluster of the file. */
async function inEach(
  options: AllClustersOptions,
  context: CommandContext,
  act: (context: CommandContext) => Promise<void>,
): Promise<void> {
  if (!options.allClusters) return act(context)
  const { inClusters } = await import('../commands/clusters.ts')
  return inClusters(options, context, act)
}

function clusterCommands(program: Command, context: CommandContext): void {
  program
    .command('cluster')
    .description('Manage the streams of clusters that a file lists')
    .command('forget')
    .description('Delete the streams of a cluster that the file does not list any more; the cluster is not touched')
    .argument('<name>', 'Name of the cluster, or the prefix that it had')
    .option('--delete-streams', 'Delete them; without it, only show what would be deleted')
    .action(async (name: string, options: ForgetOptions) => {
      const { forget } = await import('../commands/clusters.ts')
      await forget(name, options, context)
    })
}

/** `fairlead explain KIND/NAME` */
function explainCommand(program: Command, context: CommandContext): void {
  program
    .command('explain')
    .description('Show why an object is in its state, and the one next step')
    .argument('<kind/name>', 'Object, as in kubectl, e.g. website/hello')
    .option('-n, --namespace <name>', 'Namespace of the object (default: default)', objectName)
    .addOption(outputOption('text', 'json'))
    .action(async (asked: string, options: ExplainOptions) => {
      const { printExplanation } = await import('../commands/explain.ts')
      await printExplanation(asked, options, context)
    })
}

/** `fairlead console` */
function consoleCommand(program: Command, context: CommandContext): void {
  program
    .command('console')
    .description('Show the queue, objects, runs and events of the cluster in a browser')
    .option('--port <n>', 'TCP port on 127.0.0.1 (default: 8484, or a free one)', whole(1, 65_535))
    .option('--no-open', 'Do not open a browser')
    .option(
      '--allow-writes',
      'Allow users to run, retry, park and purge keys, replay dead letters and publish events',
      false,
    )
    .addOption(functionOption())
    .addOption(
      new Option(
        '--in-cluster <address>',
        'Address to serve in a cluster, e.g. :8090; users sign in with a token of the API server (see FAIRLEAD_CONSOLE_HOSTS)',
      ).conflicts(['port', 'allowWrites', 'function']),
    )
    .addOption(
      new Option(
        '--listen <address>',
        'Address for /metrics, /healthz and /readyz with --in-cluster, e.g. :8080 (default: none)',
      ),
    )
    .action(async ({ inCluster, listen, ...flags }: ConsoleFlags & Partial<ConsoleInClusterOptions>) => {
      if (inCluster !== undefined) {
        const { consoleInCluster } = await import('../commands/console-in-cluster.ts')
        return consoleInCluster(await context.config(), { inCluster, listen })
      }
      const { serveConsole } = await import('../commands/console.ts')
      return serveConsole(flags, context)
    })
}

function queueCommands(program: Command, context: CommandContext): void {
  const queue = program.command('queue').description('Show and change the work queue')

  queue
    .command('ls')
    .description('List keys that are queued, running, waiting or parked')
    .argument('[reconciler]', 'Name of the Reconciler (default: all)', objectName)
    .argument('[names...]', 'Objects: NAME or NAMESPACE/NAME (default: all)')
    .addOption(namespaceOption('all'))
    .addOption(statesOption('State of the keys', STATES))
    .option('--limit <n>', 'Maximum number of keys', whole(1, 1_000_000), 1000)
    .option('-w, --watch', 'Keep watching: in place on a terminal, line by line in a pipe')
    .addOption(allClustersOption())
    .addOption(outputOption('table', 'wide', 'json'))
    .action(async (reconciler: string | undefined, names: string[], { state: states, ...rest }: GivenLsOptions) => {
      const { ls } = await import('../commands/queue.ts')
      await inEach(rest, context, (one) => ls({ ...rest, reconciler, names, states }, one))
    })

  queue
    .command('show')
    .description('Show everything that is known of one key')
    .argument('<reconciler>', 'Name of the Reconciler', objectName)
    .argument('<key>', 'Object: NAME or NAMESPACE/NAME')
    .addOption(namespaceOption('that of the key'))
    .addOption(outputOption('text', 'json'))
    .action(async (reconciler: string, key: string, options: Pick<ShowOptions, 'namespace' | 'output'>) => {
      const { show } = await import('../commands/queue.ts')
      await show({ ...options, reconciler, key }, context)
    })

  queue
    .command('run')
    .description('Run objects now, also idle ones, as if they had changed')
    .argument('<reconciler>', 'Name of the Reconciler', objectName)
    .argument('<keys...>', 'Objects: NAME or NAMESPACE/NAME')
    .addOption(namespaceOption('that of the key'))
    .addOption(outputOption('text', 'json'))
    .action(async (reconciler: string, keys: string[], options: Pick<RunNowOptions, 'namespace' | 'output'>) => {
      const { run } = await import('../commands/queue.ts')
      await run({ ...options, reconciler, keys }, context)
    })

  const acting = (act: Act, description: string): Command =>
    queue
      .command(act)
      .description(description)
      .argument('<reconciler>', 'Name of the Reconciler', objectName)
      .argument('[keys...]', 'Objects: NAME or NAMESPACE/NAME')
      .addOption(namespaceOption('that of the key; with --all, all'))
      .option('--all', `Select every key that is ${STATES_OF[act].join(' or ')}`, false)
      .addOption(statesOption('State of the keys that --all selects', STATES_OF[act]))
      .addOption(outputOption('text', 'json'))
      .action(async (reconciler: string, keys: string[], { state, ...rest }: ActFlags) => {
        if (state.length > 0 && !rest.all) throw new UsageError('--state goes with --all')
        const states = state.length > 0 ? state : STATES_OF[act]
        const { actOnSelected } = await import('../commands/queue.ts')
        await actOnSelected({ ...rest, act, reconciler, keys, states }, context)
      })

  acting('retry', 'Run waiting or parked keys now; their counts of failures stay')
  acting('park', 'Stop keys from running until they are retried or something changes')
  acting('purge', 'Delete queue entry, timer and parking of keys; they run again with the next change').option(
    '-y, --yes',
    'Do not ask for confirmation',
    false,
  )

  queue
    .command('drain')
    .description('Wait until no key of a Reconciler is queued or running; timers may still wait')
    .argument('<reconciler>', 'Name of the Reconciler', objectName)
    .option('--timeout <seconds>', 'Seconds to wait; then the exit code is 1', whole(0, 86_400), 60)
    .action(async (reconciler: string, { timeout }: { timeout: number }) => {
      const { drain } = await import('../commands/queue.ts')
      await drain({ reconciler, timeoutSeconds: timeout }, context)
    })
}

type GivenLsOptions = Omit<WatchOptions, 'reconciler' | 'names' | 'states'> & { state: State[] }
type ActFlags = Omit<GivenActOptions, 'act' | 'reconciler' | 'keys' | 'states'> & { state: State[] }

const namespaceOption = (shown: string) =>
  new Option('-n, --namespace <name>', 'Namespace of the keys').argParser(objectName).default(undefined, shown)

const statesOption = (text: string, states: readonly State[]) =>
  new Option('--state <state>', `${text}: ${states.join(', ')}; may be repeated`)
    .argParser((value: string, before: State[]) => {
      const state = states.find((one) => one === value)
      if (state === undefined) throw new InvalidArgumentError(`give one of ${states.join(', ')}.`)
      return [...before, state]
    })
    .default([] as State[], 'all')

/** The compiler requires every result as a key. */
const RESULTS: Record<RunResult, true> = {
  success: true,
  requeue_after: true,
  error: true,
  terminal: true,
  fenced: true,
}

type Flags<Options> = Omit<Options, 'results'> & { result: RunResult[] }

function runsCommands(program: Command, context: CommandContext): void {
  const group = program
    .command('runs')
    .description('Show recorded runs: why they started, what they read, returned and wrote')
  const selecting = (command: Command) =>
    command
      .argument('[reconciler]', 'Name of the Reconciler (default: all)', objectName)
      .argument('[object]', 'Object: NAME or NAMESPACE/NAME (default: all)')
      .option('-n, --namespace <name>', 'Namespace of the objects (default: all)', objectName)
      .addOption(
        new Option('--result <result>', `Result of the runs: ${Object.keys(RESULTS).join(', ')}; may be repeated`)
          .argParser(resultFrom)
          .default([] as RunResult[], 'all'),
      )
      .addOption(outputOption('table', 'wide', 'json'))

  selecting(group.command('ls'))
    .description('List recorded runs, oldest first')
    .option(
      '--since <time>',
      'Earliest end of a run: a time, or a duration before now such as 10m or 2h (default: any)',
      (text) => momentFrom(text),
    )
    .option('--limit <n>', 'Maximum number of runs, the latest ones', whole(1, 1_000_000), 100)
    .option('-w, --watch', 'Keep watching: show each run as it ends')
    .addOption(allClustersOption())
    .action(async (reconciler: string | undefined, object: string | undefined, flags: Flags<RunsLsOptions>) => {
      const { result: results, ...options } = flags
      const { ls } = await import('../commands/runs.ts')
      await inEach(flags, context, (one) => ls({ ...options, reconciler, object, results }, one))
    })

  selecting(group.command('tail'))
    .description('Show runs as they end, one per line')
    .action(async (reconciler: string | undefined, object: string | undefined, flags: Flags<RunsTailOptions>) => {
      const { result: results, ...options } = flags
      const { tail } = await import('../commands/runs.ts')
      await tail({ ...options, reconciler, object, results }, context)
    })

  group
    .command('show')
    .description('Show one run: causes, waiting time, calls, and writes with their differences')
    .argument('<run>', 'Number that ls shows', (text: string) => runNumbers(text, [])[0])
    .action(async (id: number) => {
      const { show } = await import('../commands/runs.ts')
      await show(id, context)
    })

  group
    .command('get')
    .description('Print whole records as JSON, one per line, for fairlead replay --from')
    .argument('<runs...>', 'Numbers that ls shows', runNumbers, [])
    .action(async (ids: number[]) => {
      const { get } = await import('../commands/runs.ts')
      await get(ids, context)
    })
}

function resultFrom(text: string, before: RunResult[]): RunResult[] {
  if (!Object.hasOwn(RESULTS, text)) throw new InvalidArgumentError(`give one of ${Object.keys(RESULTS).join(', ')}.`)
  return [...before, text as RunResult]
}

/** `fairlead usage` */
function usageCommand(program: Command, context: CommandContext): void {
  program
    .command('usage')
    .description('Show what functions and namespaces have used: runs, CPU time, requests, writes, stored bytes')
    .addOption(
      new Option('--since <time>', 'Beginning: a time, or a duration before now such as 12h or 30d')
        .argParser((text) => momentFrom(text))
        .default(undefined, '30d'),
    )
    .addOption(
      new Option('--by <dimensions>', `Rows, separated by commas: ${Object.keys(DIMENSIONS).join(', ')}`)
        .argParser(dimensionsFrom)
        .default(['function'], 'function'),
    )
    .addOption(outputOption('table', 'json', 'csv', 'openmetrics'))
    .action(async ({ since = momentFrom('30d'), ...options }: Partial<UsageCommandOptions> & UsageFlags) => {
      const { usage } = await import('../commands/usage.ts')
      await usage({ since, ...options }, context)
    })
}

type UsageFlags = Omit<UsageCommandOptions, 'since'>

/** The compiler requires every dimension as a key. */
const DIMENSIONS: Record<UsageDimension, true> = { function: true, namespace: true, hour: true, day: true, month: true }

function dimensionsFrom(text: string): UsageDimension[] {
  const names = text.split(',').map((name) => name.trim())
  const isKnown = names.every((name) => Object.hasOwn(DIMENSIONS, name))
  if (!isKnown) throw new InvalidArgumentError(`give some of ${Object.keys(DIMENSIONS).join(', ')}.`)
  return [...new Set(names)] as UsageDimension[]
}

const EVENTS_HELP = `
KIND is a resource that a bridge watches: pods, pod, Pod, po,
ats.cnat.programming-kubernetes.info. Only resources of Kubernetes have short
names here. EVENTS keeps the last event of each object, and a deletion for one
hour: docs/events.md`

type GetFlags = Omit<GetOptions, 'kinds' | 'name'>
type ReplayFlags = Omit<EventsReplayOptions, 'kinds' | 'name'>

function eventsCommands(program: Command, context: CommandContext): void {
  const events = program.command('events').description('Show the changes of the cluster, as CloudEvents in NATS')
  const selecting = (command: Command, since = 'any') =>
    command
      .argument('[kind]', 'Resources, separated by commas (default: all)', (text: string) => text.split(','))
      .argument('[name]', 'Name of the object (default: all)')
      .option('-n, --namespace <name>', 'Namespace of the objects (default: all)')
      .addOption(
        new Option('--type <verbs>', 'Types of events, separated by commas: added, modified, deleted, moved')
          .argParser(verbsFrom)
          .default([] as string[], 'all but moved'),
      )
      .addOption(
        new Option('--since <time>', 'Earliest time of storage: a time, or a duration before now such as 10m or 2h')
          .argParser((text) => momentFrom(text))
          .default(undefined, since),
      )
      .addHelpText('after', EVENTS_HELP)
  const format = () =>
    new Option('-o, --output <format>', 'Output format, one event per line').choices(FORMATS).default('text')

  selecting(events.command('tail'), 'now')
    .description('Show changes as they come')
    .addOption(format())
    .action(async (kinds: string[] = [], name: string | undefined, options: GetFlags) => {
      const { tail } = await import('../commands/events.ts')
      await tail({ ...options, kinds, name }, context)
    })

  selecting(events.command('get'))
    .description('Show the last event of each object')
    .addOption(format())
    .addHelpText('after', '\nThe exit code is 1 if no event has the given NAME.')
    .action(async (kinds: string[] = [], name: string | undefined, options: GetFlags) => {
      const { get } = await import('../commands/events.ts')
      await get({ ...options, kinds, name }, context)
    })

  selecting(events.command('replay'))
    .description('Send the last event of each object to a target, oldest first')
    .requiredOption('--to <target>', 'Target: http://…, https://… or nats:SUBJECT', target)
    .addOption(modeOption())
    .option('--follow', 'Send later events too, as they come')
    .action(async (kinds: string[] = [], name: string | undefined, options: ReplayFlags) => {
      const { replay } = await import('../commands/events.ts')
      await replay({ ...options, kinds, name }, context)
    })
}

/** The compiler requires every reason as a key. */
const REASONS: Record<DeadReason, true> = {
  'no-cloudevent': true,
  'invalid-attribute': true,
  'invalid-data': true,
  'unsupported-version': true,
  'unsupported-mode': true,
  'too-large': true,
  'invalid-key': true,
  'unknown-reconciler': true,
}

function deadCommands(program: Command, context: CommandContext): void {
  const group = program
    .command('dead')
    .description('Show and replay dead letters: messages that cannot be read, keys that cannot be run')

  const filtered = (command: Command) =>
    command
      .option('-r, --reconciler <name>', 'Name of the Reconciler (default: all)', objectName)
      .addOption(
        new Option('--reason <reason>', 'Reason of the dead letters')
          .choices(Object.keys(REASONS))
          .default(undefined, 'all'),
      )

  filtered(group.command('ls'))
    .description('List dead letters, oldest first')
    .option('--limit <n>', 'Maximum number of dead letters, the latest ones', whole(1, 1_000_000), 1000)
    .addOption(allClustersOption())
    .addOption(outputOption('table', 'json'))
    .action(async (options: DeadLsOptions) => {
      const { ls } = await import('../commands/dead.ts')
      await inEach(options, context, (one) => ls(options, one))
    })

  group
    .command('show')
    .description('Show one dead letter with its headers and body')
    .argument('<id>', 'Number that ls shows', letterId)
    .addOption(outputOption('text', 'json'))
    .action(async (id: number, { output }: { output: 'text' | 'json' }) => {
      const { show } = await import('../commands/dead.ts')
      await show(id, output, context)
    })

  filtered(group.command('replay'))
    .description(
      'Put dead letters back where they came from, for software that can read them or a Reconciler that is back',
    )
    .argument('[ids...]', 'Numbers that ls shows', letterIds, [])
    .option('--all', 'Select all that the other options match', false)
    .action(async (ids: number[], { all, ...filter }: DeadFilter & { all: boolean }) => {
      if (all === ids.length > 0) throw new UsageError('give either ids or --all')
      const isFiltered = filter.reason !== undefined || filter.reconciler !== undefined
      if (!all && isFiltered) throw new UsageError('--reconciler and --reason go with --all')
      const { replayLetters } = await import('../commands/dead.ts')
      await replayLetters(all ? filter : ids, context)
    })
}

const letterIds = (text: string, before: number[]): number[] => [...before, letterId(text)]

function letterId(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('give the number that `dead ls` shows.')
  return Number(text)
}
