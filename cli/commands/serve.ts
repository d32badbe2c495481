import { UsageError, untilStopped } from '#process/exit'
import { functionNamed, namableFunctions } from '#process/functions'
import { createLogger } from '#process/logging'
import { serve } from '#sdk/serve'
import type { CommandContext } from '../options.ts'

export interface ServeOptions {
  function: string[]
  port?: number
  config?: string
  revision?: string
  graceSeconds: number
}

/** Serves a function over HTTP. Needs neither a cluster nor NATS. */
export async function serveFunction(
  name: string | undefined,
  options: ServeOptions,
  { config }: CommandContext,
): Promise<void> {
  const settings = await config()
  const log = await createLogger(settings)
  const { graceSeconds, port = 8080, config: folder } = options
  const revision = options.revision ?? settings.FAIRLEAD_REVISION ?? settings.K_REVISION
  const one = functionNamed(await namableFunctions(options.function), name)
  const server = await serve(one, { port, revision, config: folder, log }).catch((cause: Error) => {
    throw new UsageError(`cannot listen on port ${port}: ${cause.message}`, { cause })
  })
  const { signal } = untilStopped()
  log.info({ function: one.name, port: server.port }, 'serving')
  await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
  await server.stop(graceSeconds * 1000)
  log.info({ function: one.name, because: (signal.reason as Error).message }, 'stopped')
}
