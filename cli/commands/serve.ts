import { type Command, Option } from 'commander'
import type { ServeOptions } from '../actions/serve.ts'
import { type CommandContext, namedFunctionOption, revisionOption, whole } from '../options.ts'

export function serveCommand(program: Command, context: CommandContext): void {
  program
    .command('serve')
    .description('one function over HTTP, as in a Knative Service: a dispatcher calls it')
    .argument('[name]', 'of the function, where there are several')
    .addOption(namedFunctionOption())
    .addOption(new Option('--port <n>', 'to listen on').env('PORT').argParser(whole(0, 65_535)).default(8080))
    .addOption(revisionOption())
    .option('--grace-seconds <n>', 'for requests under way at a stop', whole(0, 3600), 20)
    .option('--max-body-bytes <n>', 'of a request', whole(1024, 2 ** 31), 32 * 1024 * 1024)
    .action(async (name: string | undefined, options: ServeOptions) => {
      const { serveFunction } = await import('../actions/serve.ts')
      await serveFunction(name, options, context)
    })
}
