import { createInterface } from 'node:readline/promises'
import { type Command, InvalidArgumentError, Option } from 'commander'
import type { WorkQueue } from '#queue'
import { openExisting } from '../connections.ts'
import { EXIT, UsageError } from '../exit.ts'
import { createLogger } from '../logging.ts'
import { objectName, outputOption, type Surroundings, whole } from '../options.ts'
import { type Act, type ActOptions, actOnKeys, STATES_OF } from '../queue/act.ts'
import { untilDrained } from '../queue/drain.ts'
import { type LsOptions, listQueue } from '../queue/ls.ts'
import { STATES, type State } from '../queue/select.ts'
import { type ShowOptions, showKey } from '../queue/show.ts'
import { type Screen, watchQueue } from '../queue/watch.ts'
import { untilStopped } from '../signals.ts'

export function queueCommands(program: Command, { config, print, setExitCode }: Surroundings): void {
  const queue = program.command('queue').description('look into the work queue, and act on it')
  const now = () => new Date()

  async function withQueue(work: (queue: WorkQueue) => Promise<void>): Promise<void> {
    const settings = config()
    await using open = await openExisting(settings, createLogger(settings))
    await work(open.queue)
  }

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
    .action((reconciler: string | undefined, names: string[], { state, watch, ...rest }: GivenLsOptions) => {
      const options = { ...rest, reconciler, names, states: state }
      return withQueue(async (open) => {
        if (watch) await watchQueue(open, options, screenOf(process.stdout), now, untilStopped().signal)
        else print(await listQueue(open, options, now))
      })
    })

  queue
    .command('show')
    .description('everything that is known of one key')
    .argument('<reconciler>', 'whose key', objectName)
    .argument('<key>', 'name, or namespace/name')
    .addOption(namespaceOption())
    .addOption(outputOption('text', 'json'))
    .action((reconciler: string, key: string, options: Pick<ShowOptions, 'namespace' | 'output'>) =>
      withQueue(async (open) => print(await showKey(open, { ...options, reconciler, key }, now()))),
    )

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
      .action((reconciler: string, keys: string[], { state, yes = true, ...rest }: GivenActOptions) => {
        if (state.length > 0 && !rest.all) throw new UsageError('--state goes with --all')
        const states = state.length > 0 ? state : STATES_OF[act]
        const confirm = yes ? async () => undefined : askOnTerminal
        return withQueue(async (open) => {
          const tools = { print, confirm, signal: untilStopped().signal }
          if (!(await actOnKeys(open, { ...rest, act, reconciler, keys, states }, tools))) setExitCode(EXIT.failed)
        })
      })

  acting('retry', 'run waiting or parked keys now; their counts of failures stay')
  acting('park', 'keep keys from running until they are retried or something changes')
  acting('purge', 'throw away what keys are due, until something changes').option('-y, --yes', 'do not ask', false)

  queue
    .command('drain')
    .description('wait until nothing of a reconciler is queued or running; timers may go on waiting')
    .argument('<reconciler>', 'of which', objectName)
    .option('--timeout <seconds>', 'then end with 1', whole(0, 86_400), 60)
    .action((reconciler: string, { timeout }: { timeout: number }) => {
      const options = { reconciler, timeoutSeconds: timeout }
      const report = (text: string) => console.error(text)
      return withQueue(async (open) => print(await untilDrained(open, options, untilStopped().signal, report)))
    })
}

type GivenLsOptions = Omit<LsOptions, 'reconciler' | 'names' | 'states'> & { state: State[]; watch?: boolean }
type GivenActOptions = Omit<ActOptions, 'act' | 'reconciler' | 'keys' | 'states'> & { state: State[]; yes?: boolean }

const namespaceOption = () => new Option('-n, --namespace <name>', 'of the keys').argParser(objectName)

const statesOption = (text: string, states: readonly State[]) =>
  new Option('--state <state>', `${text}: ${states.join(', ')}; may be repeated`)
    .argParser((value: string, before: State[]) => {
      const state = states.find((one) => one === value)
      if (state === undefined) throw new InvalidArgumentError(`give one of ${states.join(', ')}.`)
      return [...before, state]
    })
    .default([] as State[], 'all of them')

function screenOf(stream: NodeJS.WriteStream): Screen {
  const size = () => ({ rows: stream.rows, columns: stream.columns })
  return {
    write: (text) => void stream.write(text),
    note: (text) => console.error(text),
    size: stream.isTTY ? size : undefined,
  }
}

async function askOnTerminal(question: string): Promise<void> {
  if (!process.stdin.isTTY) throw new UsageError(`${question} There is nobody to ask: add --yes`)
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  try {
    const answer = await terminal.question(`${question} [y/N] `)
    if (!/^y(es)?$/i.test(answer.trim())) throw new Error('nothing was done')
  } finally {
    terminal.close()
  }
}
