import { type Command, Option } from 'commander'
import { serve } from '#sdk/serve'
import { UsageError } from '../exit.ts'
import { functionNamed, loadFunctions } from '../functions.ts'
import { createLogger } from '../logging.ts'
import { functionOption, type Surroundings, whole } from '../options.ts'
import { untilStopped } from '../signals.ts'

interface ServeOptions {
  function: string[]
  port?: number
  graceSeconds: number
  maxBodyBytes: number
}

/** A function over HTTP needs neither cluster nor NATS. */
export function serveCommand(program: Command, { config }: Pick<Surroundings, 'config'>): void {
  program
    .command('serve')
    .description('one function over HTTP, as in a Knative Service: a dispatcher calls it')
    .argument('[name]', 'of the function, where there are several')
    .addOption(functionOption())
    .addOption(new Option('--port <n>', 'to listen on').env('PORT').argParser(whole(0, 65_535)).default(8080))
    .option('--grace-seconds <n>', 'for requests under way at a stop', whole(0, 3600), 20)
    .option('--max-body-bytes <n>', 'of a request', whole(1024, 2 ** 31), 32 * 1024 * 1024)
    .action(async (name: string | undefined, options: ServeOptions) => {
      const log = createLogger(config())
      const { graceSeconds, maxBodyBytes, port = 8080 } = options
      const one = functionNamed(await loadFunctions(options.function), name)
      const server = await serve(one, { port, maxBodyBytes, log }).catch((cause: Error) => {
        throw new UsageError(`cannot listen on port ${port}: ${cause.message}`, { cause })
      })
      const { signal } = untilStopped()
      log.info({ function: one.name, port: server.port }, 'serving')
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
      await server.stop(graceSeconds * 1000)
      log.info({ function: one.name, because: (signal.reason as Error).message }, 'stopped')
    })
}
