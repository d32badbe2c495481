import { type Command, InvalidArgumentError, Option } from 'commander'
import { CODES, type DeadLetter } from '#events'
import { openExisting } from '../connections.ts'
import { type DeadFilter, type DeadLsOptions, describeLetter, listDead, selectLetters } from '../dead/letters.ts'
import { type ReplayTools, replay } from '../dead/replay.ts'
import { EXIT, UsageError } from '../exit.ts'
import { createLogger } from '../logging.ts'
import { objectName, outputOption, type Surroundings, whole } from '../options.ts'

export function deadCommands(program: Command, { config, print, setExitCode }: Surroundings): void {
  const group = program.command('dead').description('messages that nobody can read, and keys that nobody runs')

  async function withDead(work: (tools: ReplayTools) => Promise<void>): Promise<void> {
    const settings = config()
    await using open = await openExisting(settings, createLogger(settings))
    await work(open)
  }

  const filtered = (command: Command) =>
    command
      .option('-r, --reconciler <name>', 'only of this one', objectName)
      .addOption(new Option('--reason <reason>', 'only of this one').choices(Object.keys(CODES)))

  filtered(group.command('ls'))
    .description('what is dead, oldest first')
    .option('--limit <n>', 'at most so many, the latest', whole(1, 1_000_000), 1000)
    .addOption(outputOption('table', 'json'))
    .action((options: DeadLsOptions) => withDead(async ({ dead }) => print(await listDead(dead, options, new Date()))))

  group
    .command('show')
    .description('one of them, with its headers and body')
    .argument('<id>', 'as ls says it', letterId)
    .addOption(outputOption('text', 'json'))
    .action((id: number, { output }: { output: 'text' | 'json' }) =>
      withDead(async (tools) => print(describeLetter(await letterOf(tools, id), output, new Date()))),
    )

  filtered(group.command('replay'))
    .description('put them back where they came from, for software that can read them or a reconciler that is back')
    .argument('[ids...]', 'as ls says them', letterIds, [])
    .option('--all', 'all that the other options select', false)
    .action((ids: number[], { all, ...filter }: DeadFilter & { all: boolean }) => {
      if (all === ids.length > 0) throw new UsageError('give ids, or say --all, one of the two')
      const isFiltered = filter.reason !== undefined || filter.reconciler !== undefined
      if (!all && isFiltered) throw new UsageError('--reconciler and --reason go with --all')
      return withDead(async (tools) => {
        let isDone = true
        for await (const letter of all ? selectLetters(tools.dead, filter) : lettersOf(tools, ids)) {
          const { done, text } = await replay(letter, tools)
          print(text)
          isDone &&= done
        }
        if (!isDone) setExitCode(EXIT.failed)
      })
    })
}

async function* lettersOf(tools: ReplayTools, ids: readonly number[]): AsyncGenerator<DeadLetter> {
  for (const id of ids) yield await letterOf(tools, id)
}

async function letterOf({ dead }: ReplayTools, id: number): Promise<DeadLetter> {
  const letter = await dead.get(id)
  if (letter === undefined) throw new UsageError(`there is no ${id} in ${dead.stream}: fairlead dead ls`)
  return letter
}

const letterIds = (text: string, before: number[]): number[] => [...before, letterId(text)]

function letterId(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('give the number that `dead ls` shows.')
  return Number(text)
}
