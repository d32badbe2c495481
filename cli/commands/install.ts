import type { Command } from 'commander'
import type { InstallOptions } from '../actions/install.ts'
import {
  builtinOption,
  type CommandContext,
  functionOption,
  namespacesOption,
  outputOption,
  revisionOption,
} from '../options.ts'

export function installCommand(program: Command, context: CommandContext): void {
  program
    .command('install')
    .description(
      'apply what Fairlead needs, and accounts, rights, CRDs and Reconcilers of the functions; may be repeated',
    )
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(namespacesOption())
    .addOption(outputOption('table', 'json'))
    .addOption(revisionOption())
    .option('--url <url>', 'where the functions are served over HTTP; {name} stands for that of each function')
    .option('--force', 'also where objects that are stored would lose something or be refused', false)
    .option('--nats-certificates', 'also what deploy/fairlead needs: Secrets by which NATS knows its clients', false)
    .option('--check', 'apply nothing; fail where objects that are stored would lose something or be refused', false)
    .option('--only-nats-certificates', 'those Secrets, and nothing else', false)
    .action(async (options: InstallOptions) => {
      const { installFunctions } = await import('../actions/install.ts')
      await installFunctions(options, context)
    })
}
