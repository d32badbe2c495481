import { type Command, InvalidArgumentError, Option } from 'commander'
import type { DeadReason } from '#events'
import { UsageError } from '#host/exit'
import type { DeadFilter } from '#inspect'
import type { DeadLsOptions } from '../dead/letters.ts'
import { type CommandContext, objectName, outputOption, whole } from '../options.ts'

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
      const { ls } = await import('../actions/dead.ts')
      await ls(options, context)
    })

  group
    .command('show')
    .description('one of them, with its headers and body')
    .argument('<id>', 'from ls', letterId)
    .addOption(outputOption('text', 'json'))
    .action(async (id: number, { output }: { output: 'text' | 'json' }) => {
      const { show } = await import('../actions/dead.ts')
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
      const { replayLetters } = await import('../actions/dead.ts')
      await replayLetters(all ? filter : ids, context)
    })
}

const letterIds = (text: string, before: number[]): number[] => [...before, letterId(text)]

function letterId(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('give the number that `dead ls` shows.')
  return Number(text)
}
