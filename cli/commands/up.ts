import type { Command } from 'commander'
import type { UpOptions } from '../actions/up.ts'
import {
  builtinOption,
  type CommandContext,
  functionOption,
  namespacesOption,
  revisionOption,
  whole,
} from '../options.ts'

/** Declares `up`, `bridge` and `dispatch`, which run one program with different parts. */
export function upCommands(program: Command, { config }: CommandContext): void {
  const serving = (command: Command) =>
    command
      .option('--listen <address>', 'serve /metrics, /healthz and /readyz there, e.g. 127.0.0.1:8080')
      .option('--grace-seconds <n>', 'for runs in flight at a stop', whole(0, 3600), 20)
      .option('--wait-seconds <n>', 'for NATS and the API server, at the start', whole(0, 3600), 0)
  const dispatching = (command: Command) =>
    serving(command)
      .addOption(functionOption())
      .addOption(builtinOption())
      .option('--api-concurrency <n>', 'API requests in flight', whole(1, 1000), 10)
      .option('--concurrency <n>', 'keys held at once, of all reconcilers together', whole(1, 100_000), 1000)

  dispatching(program.command('up'))
    .description('bridge and dispatcher in one process; any number may run')
    .option('--install', 'apply CRDs and Reconcilers first')
    .addOption(namespacesOption())
    .addOption(revisionOption())
    .action(async (options: UpOptions) => {
      const { up } = await import('../actions/up.ts')
      await up(await config(), { bridge: true, dispatch: true }, options)
    })

  serving(program.command('bridge'))
    .description('the bridge alone: the API server’s changes become CloudEvents on NATS')
    .action(async (options: Omit<UpOptions, 'function' | 'builtin' | 'apiConcurrency'>) => {
      const { up } = await import('../actions/up.ts')
      const none = { function: [], builtin: [] }
      await up(await config(), { bridge: true, dispatch: false }, { ...options, ...none, apiConcurrency: 1 })
    })

  dispatching(program.command('dispatch'))
    .description('the dispatcher alone: takes keys, runs functions, applies their outcomes')
    .action(async (options: UpOptions) => {
      const { up } = await import('../actions/up.ts')
      await up(await config(), { bridge: false, dispatch: true }, options)
    })
}
