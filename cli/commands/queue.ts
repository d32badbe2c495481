import { type Command, InvalidArgumentError, Option } from 'commander'
import { UsageError } from '#host/exit'
import { type Act, STATES, STATES_OF, type State } from '#inspect/states'
import type { GivenActOptions, WatchOptions } from '../actions/queue.ts'
import { type CommandContext, objectName, outputOption, whole } from '../options.ts'
import type { RunNowOptions } from '../queue/run.ts'
import type { ShowOptions } from '../queue/show.ts'

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
      const { ls } = await import('../actions/queue.ts')
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
      const { show } = await import('../actions/queue.ts')
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
      const { run } = await import('../actions/queue.ts')
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
        const { actOn } = await import('../actions/queue.ts')
        await actOn({ ...rest, act, reconciler, keys, states }, context)
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
      const { drain } = await import('../actions/queue.ts')
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
