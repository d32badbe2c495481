import { type Command, Option } from 'commander'
import type { ConsoleFlags } from '../actions/console.ts'
import type { ConsoleInClusterOptions } from '../actions/console-in-cluster.ts'
import { type CommandContext, functionOption, whole } from '../options.ts'

/** `fairlead console` */
export function consoleCommand(program: Command, context: CommandContext): void {
  program
    .command('console')
    .description('the queue, objects, runs and events of the cluster in a browser')
    .option('--port <n>', 'to listen on, of 127.0.0.1 (default: 8484, or a free one)', whole(1, 65_535))
    .option('--no-open', 'do not open a browser')
    .option('--allow-writes', 'also run, retry, park and purge keys, replay dead letters and publish events', false)
    .addOption(functionOption())
    .addOption(
      new Option(
        '--in-cluster <address>',
        'serve there, e.g. :8090, people with a token of the API server, by the FAIRLEAD_CONSOLE_ variables',
      ).conflicts(['port', 'allowWrites', 'function']),
    )
    .addOption(
      new Option('--listen <address>', 'with --in-cluster, serve /metrics, /healthz and /readyz there, e.g. :8080'),
    )
    .action(async ({ inCluster, listen, ...flags }: ConsoleFlags & Partial<ConsoleInClusterOptions>) => {
      if (inCluster !== undefined) {
        const { consoleInCluster } = await import('../actions/console-in-cluster.ts')
        return consoleInCluster(await context.config(), { inCluster, ...(listen !== undefined && { listen }) })
      }
      const { serveConsole } = await import('../actions/console.ts')
      return serveConsole(flags, context)
    })
}
