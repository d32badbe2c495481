import type { Command } from 'commander'
import type { DiffOptions } from '../actions/diff.ts'
import { builtinOption, type CommandContext, functionOption, objectName, outputOption, whole } from '../options.ts'

const HELP = `
Exit codes: 0 nothing would change, 1 something would change, 5 a run would fail or the schema refuses an object.
In a pipeline:
  fairlead diff -f website.ts --all -o json > diff.json || test $? = 1`

/** `fairlead diff -f website.ts --all` */
export function diffCommand(program: Command, context: CommandContext): void {
  program
    .command('diff')
    .description('what a new version of functions would change, over all objects of the cluster')
    .argument('[objects...]', 'names of objects; left out: those that --all, -n or -l select')
    .option('--all', 'all objects of all namespaces')
    .option('-n, --namespace <name>', 'of the objects', objectName)
    .option('-l, --selector <labels>', "of the objects, e.g. 'tier=web'")
    .option('--reconciler <name>', 'one of the functions of the file', objectName)
    .option('--concurrency <number>', 'dry runs at a time', whole(1, 64), 8)
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(outputOption('text', 'json'))
    .addHelpText('after', HELP)
    .action(async (names: string[], options: DiffOptions) => {
      const { printDiff } = await import('../actions/diff.ts')
      await printDiff(names, options, context)
    })
}
