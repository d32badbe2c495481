import type { Command } from 'commander'
import type { UninstallCommandOptions } from '../actions/uninstall.ts'
import { builtinOption, type CommandContext, functionOption, outputOption, whole } from '../options.ts'

export function uninstallCommand(program: Command, context: CommandContext): void {
  program
    .command('uninstall')
    .description('remove what install has applied; refuses while objects wait for a function to let them go')
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(outputOption('table', 'json'))
    .option('--dry-run', 'show what would be removed, what would stay and why', false)
    .option('--crds', 'also definitions under which no object is stored', false)
    .option('--wait <seconds>', 'for objects to lose the finalizers of the functions', whole(1, 86_400))
    .option('--release-finalizers', 'take the finalizers away: what the functions would have cleaned up stays', false)
    .action(async (options: UninstallCommandOptions) => {
      const { uninstallFunctions } = await import('../actions/uninstall.ts')
      await uninstallFunctions(options, context)
    })
}
