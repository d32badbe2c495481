import type { Command } from 'commander'
import type { ExplainOptions } from '../actions/explain.ts'
import { type CommandContext, objectName, outputOption } from '../options.ts'

/** `fairlead explain KIND/NAME` */
export function explainCommand(program: Command, context: CommandContext): void {
  program
    .command('explain')
    .description('why an object is as it is, and the one step to take')
    .argument('<kind/name>', 'as kubectl takes it, e.g. website/hello')
    .option('-n, --namespace <name>', 'of the object (default: default)', objectName)
    .addOption(outputOption('text', 'json'))
    .action(async (asked: string, options: ExplainOptions) => {
      const { printExplanation } = await import('../actions/explain.ts')
      await printExplanation(asked, options, context)
    })
}
