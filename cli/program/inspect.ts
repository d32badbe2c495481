import { type Command, InvalidArgumentError, Option } from 'commander'
import type { RunResult } from '#contracts'
import type { DeadReason } from '#events'
import type { DeadFilter } from '#inspect'
import { type Act, STATES, STATES_OF, type State } from '#inspect/states'
import { UsageError } from '#process/exit'
import type { DeadLsOptions } from '../commands/dead.ts'
import type { EventsReplayOptions, GetOptions } from '../commands/events.ts'
import type { ExplainOptions } from '../commands/explain.ts'
import type { GivenActOptions, RunNowOptions, ShowOptions, WatchOptions } from '../commands/queue.ts'
import type { ReplayOptions } from '../commands/replay.ts'
import type { RunsLsOptions, RunsTailOptions } from '../commands/runs.ts'
import {
  type CommandContext,
  FORMATS,
  modeOption,
  momentFrom,
  namedFunctionOption,
  objectName,
  outputOption,
  runNumbers,
  target,
  verbsFrom,
  whole,
} from '../options.ts'

/** `fairlead explain KIND/NAME` */
export function explainCommand(program: Command, context: CommandContext): void {
  program
    .command('explain')
    .description('why an object is as it is, and the one step to take')
    .argument('<kind/name>', 'as kubectl takes it, e.g. website/hello')
    .option('-n, --namespace <name>', 'of the object (default: default)', objectName)
    .addOption(outputOption('text', 'json'))
    .action(async (asked: string, options: ExplainOptions) => {
      const { printExplanation } = await import('../commands/explain.ts')
      await printExplanation(asked, options, context)
    })
}

export function queueCommands(program: Command, context: CommandContext): void {
  const queue = program.command('queue').description('look into the work queue, and act on it')

  queue
    .command('ls')
    .description('keys that are queued, running, waiting or parked; idle ones leave nothing behind')
    .argument('[reconciler]', 'only of this one', objectName)
    .argument('[names...]', 'only these: name, or namespace/name')
    .addOption(namespaceOption())
    .addOption(statesOption('only in these states', STATES))
    .option('--limit <n>', 'at most so many keys', whole(1, 1_000_000), 1000)
    .option('-w, --watch', 'go on: in place on a terminal, line by line in a pipe')
    .addOption(outputOption('table', 'wide', 'json'))
    .action(async (reconciler: string | undefined, names: string[], { state: states, ...rest }: GivenLsOptions) => {
      const { ls } = await import('../commands/queue.ts')
      await ls({ ...rest, reconciler, names, states }, context)
    })

  queue
    .command('show')
    .description('everything that is known of one key')
    .argument('<reconciler>', 'whose key', objectName)
    .argument('<key>', 'name, or namespace/name')
    .addOption(namespaceOption())
    .addOption(outputOption('text', 'json'))
    .action(async (reconciler: string, key: string, options: Pick<ShowOptions, 'namespace' | 'output'>) => {
      const { show } = await import('../commands/queue.ts')
      await show({ ...options, reconciler, key }, context)
    })

  queue
    .command('run')
    .description('run objects now, idle ones too, as if they had changed')
    .argument('<reconciler>', 'whose objects', objectName)
    .argument('<keys...>', 'name, or namespace/name')
    .addOption(namespaceOption())
    .addOption(outputOption('text', 'json'))
    .action(async (reconciler: string, keys: string[], options: Pick<RunNowOptions, 'namespace' | 'output'>) => {
      const { run } = await import('../commands/queue.ts')
      await run({ ...options, reconciler, keys }, context)
    })

  const acting = (act: Act, description: string): Command =>
    queue
      .command(act)
      .description(description)
      .argument('<reconciler>', 'whose keys', objectName)
      .argument('[keys...]', 'name, or namespace/name')
      .addOption(namespaceOption())
      .option('--all', `every key that is ${STATES_OF[act].join(' or ')}`, false)
      .addOption(statesOption('with --all: only in these states', STATES_OF[act]))
      .addOption(outputOption('text', 'json'))
      .action(async (reconciler: string, keys: string[], { state, ...rest }: ActFlags) => {
        if (state.length > 0 && !rest.all) throw new UsageError('--state goes with --all')
        const states = state.length > 0 ? state : STATES_OF[act]
        const { actOnSelected } = await import('../commands/queue.ts')
        await actOnSelected({ ...rest, act, reconciler, keys, states }, context)
      })

  acting('retry', 'run waiting or parked keys now; their counts of failures stay')
  acting('park', 'keep keys from running until they are retried or something changes')
  acting('purge', 'throw away what keys are due, until something changes').option('-y, --yes', 'do not ask', false)

  queue
    .command('drain')
    .description('wait until nothing of a reconciler is queued or running; timers may go on waiting')
    .argument('<reconciler>', 'of which', objectName)
    .option('--timeout <seconds>', 'then end with 1', whole(0, 86_400), 60)
    .action(async (reconciler: string, { timeout }: { timeout: number }) => {
      const { drain } = await import('../commands/queue.ts')
      await drain({ reconciler, timeoutSeconds: timeout }, context)
    })
}

type GivenLsOptions = Omit<WatchOptions, 'reconciler' | 'names' | 'states'> & { state: State[] }
type ActFlags = Omit<GivenActOptions, 'act' | 'reconciler' | 'keys' | 'states'> & { state: State[] }

const namespaceOption = () => new Option('-n, --namespace <name>', 'of the keys').argParser(objectName)

const statesOption = (text: string, states: readonly State[]) =>
  new Option('--state <state>', `${text}: ${states.join(', ')}; may be repeated`)
    .argParser((value: string, before: State[]) => {
      const state = states.find((one) => one === value)
      if (state === undefined) throw new InvalidArgumentError(`give one of ${states.join(', ')}.`)
      return [...before, state]
    })
    .default([] as State[], 'all of them')

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

export function deadCommands(program: Command, context: CommandContext): void {
  const group = program.command('dead').description('messages that cannot be read, and keys that cannot be run')

  const filtered = (command: Command) =>
    command
      .option('-r, --reconciler <name>', 'only of this one', objectName)
      .addOption(new Option('--reason <reason>', 'only of this one').choices(Object.keys(REASONS)))

  filtered(group.command('ls'))
    .description('dead letters, oldest first')
    .option('--limit <n>', 'at most so many, the latest', whole(1, 1_000_000), 1000)
    .addOption(outputOption('table', 'json'))
    .action(async (options: DeadLsOptions) => {
      const { ls } = await import('../commands/dead.ts')
      await ls(options, context)
    })

  group
    .command('show')
    .description('one of them, with its headers and body')
    .argument('<id>', 'from ls', letterId)
    .addOption(outputOption('text', 'json'))
    .action(async (id: number, { output }: { output: 'text' | 'json' }) => {
      const { show } = await import('../commands/dead.ts')
      await show(id, output, context)
    })

  filtered(group.command('replay'))
    .description('put them back where they came from, for software that can read them or a reconciler that is back')
    .argument('[ids...]', 'from ls', letterIds, [])
    .option('--all', 'all that the other options select', false)
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

const EVENTS_HELP = `
KIND is a resource that a bridge watches: pods, pod, Pod, po, ats.cnat.programming-kubernetes.info, or several with
commas between. Short names are known of Kubernetes' own resources only. EVENTS keeps the last event of each object, and deletions for an hour; docs/events.md has details.`

type GetFlags = Omit<GetOptions, 'kinds' | 'name'>
type ReplayFlags = Omit<EventsReplayOptions, 'kinds' | 'name'>

export function eventsCommands(program: Command, context: CommandContext): void {
  const events = program.command('events').description('the changes of the cluster, as CloudEvents in NATS')
  const selecting = (command: Command) =>
    command
      .argument('[kind]', 'only of these resources', (text: string) => text.split(','))
      .argument('[name]', 'only of this object')
      .option('-n, --namespace <name>', 'only of this namespace')
      .option('--type <verbs>', 'of added, modified, deleted, moved; with commas between', verbsFrom, [] as string[])
      .option('--since <time>', 'stored then or later: 10m, 2h, or a time', (text) => momentFrom(text))
      .addHelpText('after', EVENTS_HELP)
  const format = () => new Option('-o, --output <format>', 'one event a line').choices(FORMATS).default('text')

  selecting(events.command('tail'))
    .description('changes as they come')
    .addOption(format())
    .action(async (kinds: string[] = [], name: string | undefined, options: GetFlags) => {
      const { tail } = await import('../commands/events.ts')
      await tail({ ...options, kinds, name }, context)
    })

  selecting(events.command('get'))
    .description('the last event of each object')
    .addOption(format())
    .addHelpText(
      'after',
      '\nIf nothing is found, a message is on standard error; the exit code is 1 if a name was given, else 0.',
    )
    .action(async (kinds: string[] = [], name: string | undefined, options: GetFlags) => {
      const { get } = await import('../commands/events.ts')
      await get({ ...options, kinds, name }, context)
    })

  selecting(events.command('replay'))
    .description('send the last event of each object somewhere, oldest first')
    .requiredOption('--to <target>', 'http://…, https://… or nats:SUBJECT', target)
    .addOption(modeOption())
    .option('--follow', 'then every later one, as it comes')
    .action(async (kinds: string[] = [], name: string | undefined, options: ReplayFlags) => {
      const { replay } = await import('../commands/events.ts')
      await replay({ ...options, kinds, name }, context)
    })
}

/** The compiler requires every result as a key. */
const RESULTS: Record<RunResult, true> = {
  success: true,
  requeue_after: true,
  error: true,
  terminal: true,
  fenced: true,
}

type Flags<Options> = Omit<Options, 'results'> & { result: RunResult[] }

export function runsCommands(program: Command, context: CommandContext): void {
  const group = program.command('runs').description('what runs saw, returned and wrote, and why they came')
  const selecting = (command: Command) =>
    command
      .argument('[reconciler]', 'only of this one', objectName)
      .argument('[object]', 'only of this one: name, or namespace/name')
      .option('-n, --namespace <name>', 'only of this namespace', objectName)
      .addOption(
        new Option('--result <result>', `only these: ${Object.keys(RESULTS).join(', ')}; may be repeated`)
          .argParser(resultFrom)
          .default([] as RunResult[], 'all of them'),
      )
      .addOption(outputOption('table', 'wide', 'json'))

  selecting(group.command('ls'))
    .description('recorded runs, oldest first')
    .option('--since <time>', 'ended then or later: 10m, 2h, or a time', (text) => momentFrom(text))
    .option('--limit <n>', 'at most so many, the latest', whole(1, 1_000_000), 100)
    .option('-w, --watch', 'go on: each run as it ends')
    .action(async (reconciler: string | undefined, object: string | undefined, flags: Flags<RunsLsOptions>) => {
      const { result: results, ...options } = flags
      const { ls } = await import('../commands/runs.ts')
      await ls({ ...options, reconciler, object, results }, context)
    })

  selecting(group.command('tail'))
    .description('runs as they end, one a line')
    .action(async (reconciler: string | undefined, object: string | undefined, flags: Flags<RunsTailOptions>) => {
      const { result: results, ...options } = flags
      const { tail } = await import('../commands/runs.ts')
      await tail({ ...options, reconciler, object, results }, context)
    })

  group
    .command('show')
    .description('one run: causes, waiting, calls, and writes with their differences')
    .argument('<run>', 'its number, from ls', (text: string) => runNumbers(text, [])[0])
    .action(async (id: number) => {
      const { show } = await import('../commands/runs.ts')
      await show(id, context)
    })

  group
    .command('get')
    .description('whole records as JSON, one a line: fairlead replay --from takes them')
    .argument('<runs...>', 'their numbers, from ls', runNumbers, [])
    .action(async (ids: number[]) => {
      const { get } = await import('../commands/runs.ts')
      await get(ids, context)
    })
}

function resultFrom(text: string, before: RunResult[]): RunResult[] {
  if (!Object.hasOwn(RESULTS, text)) throw new InvalidArgumentError(`give one of ${Object.keys(RESULTS).join(', ')}.`)
  return [...before, text as RunResult]
}

const REPLAY_HELP = `
The exit code is 1 if a function decides otherwise than it did. Under a debugger:
  node --inspect-brk node_modules/fairlead/cli/bin.js replay --from run.json -f website.ts`

/** `fairlead replay RUN -f website.ts` */
export function replayCommand(program: Command, context: CommandContext): void {
  program
    .command('replay')
    .description('recorded runs against the function as it is on disk: what it decided then and decides now')
    .argument('[runs...]', 'their numbers, from `runs ls`', runNumbers, [])
    .option('--from <file>', 'what `runs get` has printed, instead: neither cluster nor NATS is needed')
    .addOption(namedFunctionOption())
    .addOption(outputOption('text', 'json'))
    .addHelpText('after', REPLAY_HELP)
    .action(async (ids: number[], options: ReplayOptions) => {
      const { replayRuns } = await import('../commands/replay.ts')
      await replayRuns(ids, options, context)
    })
}
