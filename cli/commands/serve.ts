import type { RunLog } from '#contracts'
import type { Executable } from '#process/executable'
import { UsageError, untilStopped } from '#process/exit'
import { functionNamed, namableFunctions } from '#process/functions'
import { createLogger } from '#process/logging'
import { type FunctionServer, type ServeFunctionOptions, serve, serveCalls } from '#sdk/serve'
import type { CommandContext } from '../options.ts'

export interface ServeOptions {
  function: string[]
  exec?: string
  hook?: string
  lines?: boolean
  timeoutSeconds?: number
  concurrency?: number
  env?: string[]
  port?: number
  config?: string
  revision?: string
  graceSeconds: number
}

/** Serves a function, an executable or a hook of shell-operator over HTTP. Needs neither a cluster nor NATS. */
export async function serveFunction(
  name: string | undefined,
  options: ServeOptions,
  { config }: CommandContext,
): Promise<void> {
  const settings = await config()
  const log = await createLogger(settings)
  const { graceSeconds, port = 8080, config: folder } = options
  const revision = options.revision ?? settings.FAIRLEAD_REVISION ?? settings.K_REVISION
  const one = await served(name, options, log)
  const server = await one.serve({ port, revision, config: folder, log }).catch((cause: Error) => {
    throw new UsageError(`cannot listen on port ${port}: ${cause.message}`, { cause })
  })
  const { signal } = untilStopped()
  log.info({ function: one.name, port: server.port }, 'serving')
  await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
  await server.stop(graceSeconds * 1000)
  await one.program?.stop()
  log.info({ function: one.name, because: (signal.reason as Error).message }, 'stopped')
}

interface Served {
  name: string
  program?: Executable
  serve: (options: ServeFunctionOptions) => Promise<FunctionServer>
}

async function served(name: string | undefined, options: ServeOptions, log: RunLog): Promise<Served> {
  const { exec, hook, exec: command = hook } = options
  if (command === undefined) {
    const { lines: stays, timeoutSeconds: seconds, concurrency: processes, env } = options
    const ofPrograms = { '--lines': stays, '--timeout-seconds': seconds, '--concurrency': processes, '--env': env }
    const given = Object.entries(ofPrograms).find(([, value]) => value !== undefined)?.[0]
    if (given !== undefined)
      throw new UsageError(`${given} is for programs: give the program with --exec, or a hook with --hook`)
    const one = functionNamed(await namableFunctions(options.function), name)
    return { name: one.name, serve: (how) => serve(one, how) }
  }
  if (name === undefined)
    throw new UsageError(
      exec === undefined
        ? '--hook needs the name of the Reconciler: fairlead serve NAME --hook HOOK'
        : '--exec needs the name of the Reconciler: fairlead serve NAME --exec PROGRAM',
    )
  const { lines = false, timeoutSeconds = 60, concurrency = 8, env: variables = [] } = options
  const limits = { command, timeoutSeconds, concurrency, variables }
  const program = await (exec === undefined
    ? import('#process/hooks/hook').then(({ hookFunction }) => hookFunction(limits, log))
    : import('#process/executable').then(({ executable }) => executable({ ...limits, lines })))
  return { name, program, serve: (how) => serveCalls({ name, invoke: program.invoke }, how) }
}
