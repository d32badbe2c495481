import { type Command, Option } from 'commander'
import type { CommonOptions } from '#host/config'
import type { DevOptions } from '../actions/dev.ts'
import { collect, dirOption, functionOption, nodeOption } from '../options.ts'

export function devCommand(program: Command): void {
  program
    .command('dev')
    .description('work on a function: runs it on the local cluster, and starts it again at each change of its files')
    .addOption(dirOption())
    .addOption(functionOption())
    .addOption(nodeOption())
    .option(
      '--apply <file>',
      'also apply its objects, or those of a folder, and show their conditions; may be repeated',
      collect,
      [],
    )
    .option('--no-console', 'do not serve the console')
    .addOption(new Option('--open', 'open the console in a browser').default(false).conflicts('console'))
    .action(async (options: DevOptions) => {
      const { dev } = await import('../actions/dev.ts')
      await dev(options, program.opts<CommonOptions>())
    })
}
