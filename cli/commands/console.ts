import type { Command } from 'commander'
import type { ConsoleFlags } from '../actions/console.ts'
import { type CommandContext, functionOption, whole } from '../options.ts'

/** `fairlead console` */
export function consoleCommand(program: Command, context: CommandContext): void {
  program
    .command('console')
    .description('the queue, objects, runs and events of the cluster in a browser, on this machine')
    .option('--port <n>', 'to listen on, of 127.0.0.1 (default: 8484, or a free one)', whole(1, 65_535))
    .option('--no-open', 'do not open a browser')
    .option('--allow-writes', 'also run, retry, park and purge keys, replay dead letters and publish events', false)
    .addOption(functionOption())
    .action(async (flags: ConsoleFlags) => {
      const { serveConsole } = await import('../actions/console.ts')
      await serveConsole(flags, context)
    })
}
