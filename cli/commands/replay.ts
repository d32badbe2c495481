import type { Command } from 'commander'
import type { ReplayOptions } from '../actions/replay.ts'
import { type CommandContext, namedFunctionOption, outputOption, runNumbers } from '../options.ts'

const HELP = `
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
    .addHelpText('after', HELP)
    .action(async (ids: number[], options: ReplayOptions) => {
      const { replayRuns } = await import('../actions/replay.ts')
      await replayRuns(ids, options, context)
    })
}
