import type { Command } from 'commander'
import { UsageError } from '#host/exit'
import type { RunOptions } from '../actions/run.ts'
import { type CommandContext, namedFunctionOption, objectName, outputOption } from '../options.ts'

/** `fairlead run NAME OBJECT --dry-run` */
export function runCommand(program: Command, context: CommandContext): void {
  program
    .command('run')
    .description('what a function would do for one object, on the cluster as it is now')
    .argument('<function>', 'its name, e.g. at', objectName)
    .argument('<object>', 'the name of the object', objectName)
    .option('-n, --namespace <name>', 'of the object (default: default)', objectName)
    .option('--dry-run', 'write nothing: show the outcome, and what would differ')
    .addOption(namedFunctionOption())
    .addOption(outputOption('text', 'json'))
    .action(async (name: string, object: string, { dryRun: isDry, ...options }: RunOptions & { dryRun?: true }) => {
      if (!isDry)
        throw new UsageError(
          `add --dry-run to see what would be written; a dispatcher runs it for real: fairlead queue run ${name} NAMESPACE/${object}`,
        )
      const { printDryRun } = await import('../actions/run.ts')
      await printDryRun(name, object, options, context)
    })
}
