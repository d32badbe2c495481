import { type Command, InvalidArgumentError, Option } from 'commander'
import type { RunResult } from '#contracts'
import type { RunsLsOptions, RunsTailOptions } from '../actions/runs.ts'
import { momentFrom } from '../events/options.ts'
import { type CommandContext, objectName, outputOption, runNumbers, whole } from '../options.ts'

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
      const { ls } = await import('../actions/runs.ts')
      await ls({ ...options, reconciler, object, results }, context)
    })

  selecting(group.command('tail'))
    .description('runs as they end, one a line')
    .action(async (reconciler: string | undefined, object: string | undefined, flags: Flags<RunsTailOptions>) => {
      const { result: results, ...options } = flags
      const { tail } = await import('../actions/runs.ts')
      await tail({ ...options, reconciler, object, results }, context)
    })

  group
    .command('show')
    .description('one run: causes, waiting, calls, and writes with their differences')
    .argument('<run>', 'its number, from ls', (text: string) => runNumbers(text, [])[0])
    .action(async (id: number) => {
      const { show } = await import('../actions/runs.ts')
      await show(id, context)
    })

  group
    .command('get')
    .description('whole records as JSON, one a line: fairlead replay --from takes them')
    .argument('<runs...>', 'their numbers, from ls', runNumbers, [])
    .action(async (ids: number[]) => {
      const { get } = await import('../actions/runs.ts')
      await get(ids, context)
    })
}

function resultFrom(text: string, before: RunResult[]): RunResult[] {
  if (!Object.hasOwn(RESULTS, text)) throw new InvalidArgumentError(`give one of ${Object.keys(RESULTS).join(', ')}.`)
  return [...before, text as RunResult]
}
