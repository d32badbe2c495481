import type { Command } from 'commander'
import type { CommonOptions } from '#host/config'
import type { DevOptions } from '../actions/dev.ts'
import { dirOption, functionOption, nodeOption } from '../options.ts'

export function devCommand(program: Command): void {
  program
    .command('dev')
    .description('work on a function: runs it on the local cluster, and starts it again at each change of its files')
    .addOption(dirOption())
    .addOption(functionOption())
    .addOption(nodeOption())
    .action(async (options: DevOptions) => {
      const { dev } = await import('../actions/dev.ts')
      await dev(options, program.opts<CommonOptions>())
    })
}
