import { type Command, InvalidArgumentError, Option } from 'commander'
import type { AdmitOptions } from '../commands/admit.ts'
import type { CopyStreamsOptions } from '../commands/copy-streams.ts'
import type { BackupOptions, RecoverOptions, RestoreOptions, StoreOptions } from '../commands/etcd-agent.ts'
import type { ServeOptions } from '../commands/serve.ts'
import type { UpOptions } from '../commands/up.ts'
import {
  adapterOption,
  builtinOption,
  type CommandContext,
  functionOption,
  kindsOption,
  namedFunctionOption,
  namespacesOption,
  revisionOption,
  separated,
  whole,
} from '../options.ts'

/** Declares the commands that run in pods. */
export function operateCommands(program: Command, context: CommandContext): void {
  program.commandsGroup('Operate:')
  upCommands(program, context)
  copyStreamsCommand(program, context)
  serveCommand(program, context)
  admitCommand(program, context)
  etcdAgentCommands(program, context)
}

/** Declares `up`, `bridge` and `dispatch`, which run one program with different parts. */
function upCommands(program: Command, { config }: CommandContext): void {
  const serving = (command: Command) =>
    command
      .option('--listen <address>', 'Address for /metrics, /healthz and /readyz, e.g. 127.0.0.1:8080 (default: none)')
      .option('--grace-seconds <n>', 'Seconds that runs in flight may take after SIGTERM', whole(0, 3600), 20)
      .option('--wait-seconds <n>', 'Seconds to wait for NATS and the API server at the start', whole(0, 3600), 0)
  const dispatching = (command: Command) =>
    serving(command)
      .addOption(functionOption())
      .addOption(builtinOption())
      .addOption(adapterOption())
      .option('--api-concurrency <n>', 'Maximum concurrent API requests', whole(1, 1000), 10)
      .option('--concurrency <n>', 'Maximum concurrent runs, all reconcilers together', whole(1, 100_000), 1000)

  dispatching(program.command('up'))
    .description('Run bridge and dispatcher in one process; any number of processes may run')
    .option('--install', 'Apply CRDs and Reconcilers first, as install does')
    .addOption(namespacesOption())
    .addOption(kindsOption())
    .addOption(revisionOption())
    .action(async (options: UpOptions) => {
      const { up } = await import('../commands/up.ts')
      await up(await config('any'), { bridge: true, dispatch: true }, options)
    })

  serving(program.command('bridge'))
    .description('Run the bridge: it publishes the changes of the API server as CloudEvents on NATS')
    .action(async (options: Omit<UpOptions, 'function' | 'builtin' | 'apiConcurrency'>) => {
      const { up } = await import('../commands/up.ts')
      const none = { function: [], builtin: [] }
      await up(await config('any'), { bridge: true, dispatch: false }, { ...options, ...none, apiConcurrency: 1 })
    })

  serving(program.command('agent'))
    .description(
      'Run the agent of a cluster: its bridge, and the requests of dispatchers elsewhere that have no access',
    )
    .action(async (options: Omit<UpOptions, 'function' | 'builtin' | 'apiConcurrency'>) => {
      const { agent } = await import('../commands/agent.ts')
      await agent(await config(), options)
    })

  dispatching(program.command('dispatch'))
    .description('Run the dispatcher: it takes keys, calls functions and applies their outcomes')
    .action(async (options: UpOptions) => {
      const { up } = await import('../commands/up.ts')
      await up(await config('any'), { bridge: false, dispatch: true }, options)
    })
}

function copyStreamsCommand(program: Command, { config }: CommandContext): void {
  program
    .command('copy-streams')
    .description('Copy the streams of another NATS, such as that of a small installation, before bridges use this one')
    .requiredOption('--from <url>', 'NATS with the streams, which nobody else may change')
    .option('--listen <address>', 'Address for /readyz, which succeeds after the copy; the process then stays')
    .option('--wait-seconds <n>', 'Seconds to wait for the servers', whole(0, 3600), 0)
    .action(async (options: CopyStreamsOptions) => {
      const { copyStreams } = await import('../commands/copy-streams.ts')
      await copyStreams(await config(), options)
    })
}

function serveCommand(program: Command, context: CommandContext): void {
  program
    .command('serve')
    .description('Serve one function, or a program in any language, over HTTP, for example in a Knative Service')
    .argument(
      '[name]',
      'Name of the function (default: the only one of the module); of the Reconciler with --exec and --hook',
    )
    .addOption(namedFunctionOption())
    .addOption(
      new Option(
        '--exec <program>',
        'Program that gets JSON on stdin and prints JSON; arguments follow it, no shell reads them',
      ).conflicts(['function', 'config']),
    )
    .addOption(
      new Option(
        '--hook <file>',
        'Hook of shell-operator that decides; adapt shell-operator --check says whether it can',
      ).conflicts(['function', 'config', 'exec', 'lines']),
    )
    .option('--lines', 'Start the program once, and write each call to it as a line (default: start it for each call)')
    .option('--timeout-seconds <n>', 'Seconds of one call of the program (default: 60)', whole(1, 3600))
    .option('--concurrency <n>', 'Processes of the program at the same time (default: 8)', whole(1, 1000))
    .option('--env <names>', 'Variables that the program gets too, separated by commas (default: none)', separated)
    .addOption(new Option('--port <n>', 'TCP port to listen on').env('PORT').argParser(whole(0, 65_535)).default(8080))
    .option(
      '--config <folder>',
      'Folder with a file for each value of external.config (default: /var/run/fairlead/config)',
    )
    .addOption(revisionOption())
    .option('--grace-seconds <n>', 'Seconds that requests in flight may take after SIGTERM', whole(0, 3600), 20)
    .action(async (name: string | undefined, options: ServeOptions) => {
      const { serveFunction } = await import('../commands/serve.ts')
      await serveFunction(name, options, context)
    })
}

function admitCommand(program: Command, context: CommandContext): void {
  program
    .command('admit')
    .description('Serve the conversions of resources to the API server, over HTTPS')
    .addOption(functionOption())
    .addOption(builtinOption())
    .requiredOption('--tls <folder>', 'Folder with tls.crt and tls.key, which are read again every 10 s')
    .option('--address <address>', 'Address of the webhook', ':10250')
    .option('--listen <address>', 'Address for /metrics, /healthz and /readyz, e.g. :8080 (default: none)')
    .option(
      '--drain-seconds <n>',
      'Seconds to serve on after SIGTERM, until the API server knows that this process goes',
      whole(0, 3600),
      15,
    )
    .action(async (options: AdmitOptions) => {
      const { admit } = await import('../commands/admit.ts')
      await admit(options, context)
    })
}

/** The longest accepted time-out: 7 days. */
const LONGEST_SECONDS = 604_800

function etcdAgentCommands(program: Command, context: CommandContext): void {
  const group = program
    .command('etcd-agent')
    .description('Move snapshots of etcd; runs in the pods of EtcdBackup and EtcdRestore')

  const withLimits = (command: Command, seconds: number) =>
    command
      .option('--timeout <seconds>', 'Time limit of the whole command, in seconds', whole(1, LONGEST_SECONDS), seconds)
      .option('--report <file>', 'File that gets a copy of the result, e.g. the termination message of a pod')

  const withStore = (command: Command, seconds: number) =>
    withLimits(command, seconds)
      .addOption(
        new Option('--store <kind>', 'Protocol of the object store')
          .choices(['s3', 'abs', 'gcs'])
          .makeOptionMandatory(),
      )
      .requiredOption('--path <bucket/key>', 'Path of the object')
      .option(
        '--store-secret <folder>',
        'Folder with the keys of the Secret with credentials, as files (default: the identity of the process)',
      )
      .option('--endpoint <url>', 'URL of the store (default: that of its provider)')
      .option('--path-style', 'Put the bucket in the path of the URL, not in its host (s3 only)', false)

  const withMembers = (command: Command) =>
    command
      .requiredOption('--endpoints <urls>', 'URLs of members, separated by commas', urls)
      .option(
        '--etcd-tls <folder>',
        'Folder with etcd-client.crt, etcd-client.key and etcd-client-ca.crt (default: no TLS)',
      )

  const withSeed = (command: Command) =>
    command
      .requiredOption('--data-dir <folder>', 'Data directory of the member; it must be missing or empty')
      .requiredOption('--name <name>', 'Name of the member')
      .requiredOption('--peer-url <url>', 'Peer URL of the member')
      .requiredOption('--token <text>', 'Token of the new cluster; differs from the token of the old one')
      .option(
        '--bump-revision <n>',
        'Number added to the revision, so that watchers notice',
        whole(0, 1e12),
        1_000_000_000,
      )
      .option('--etcdutl <file>', 'Program that creates the directory', 'etcdutl')

  withMembers(withStore(group.command('backup'), 60))
    .description('Store a snapshot of the member with the highest revision; it is visible when it is complete')
    .option('--owner <name>', 'Owner of the backups; backups of other owners are never deleted', 'fairlead')
    .option('--periodic', 'Append revision and time to the path: PATH_v12_2026-11-22-18:00:00', false)
    .option('--keep <n>', 'Number of periodic backups to keep (default: all)', whole(1, 10_000))
    .action(async (options: BackupOptions) => {
      const { runBackup } = await import('../commands/etcd-agent.ts')
      await runBackup(options, context)
    })

  withStore(group.command('verify'), 3600)
    .description('Read a snapshot to its end, and compare it with its own digest')
    .action(async (options: StoreOptions) => {
      const { runVerify } = await import('../commands/etcd-agent.ts')
      await runVerify(options, context)
    })

  withSeed(withStore(group.command('restore'), 3600))
    .description(
      'Create the data directory of the first member of a new cluster; does nothing if this token has created it',
    )
    .option('--sha256 <digest>', 'SHA-256 digest that the snapshot must have (default: any)', digest)
    .action(async (options: RestoreOptions) => {
      const { runRestore } = await import('../commands/etcd-agent.ts')
      await runRestore(options, context)
    })

  withSeed(withMembers(withLimits(group.command('recover'), 3600)))
    .description(
      'Restore a cluster that has lost its quorum, from the member with the highest revision of those that answer',
    )
    .option('--revision <n>', 'Lowest revision that a member may have', whole(0, Number.MAX_SAFE_INTEGER), 0)
    .action(async (options: RecoverOptions) => {
      const { runRecover } = await import('../commands/etcd-agent.ts')
      await runRecover(options, context)
    })
}

const urls = (text: string): string[] =>
  text.split(',').map((url) => {
    if (/^https?:$/.test(URL.parse(url)?.protocol ?? '')) return url
    throw new InvalidArgumentError(`${JSON.stringify(url)} is not a URL such as http://example-client:2379.`)
  })

const digest = (text: string): string => {
  if (/^[0-9a-f]{64}$/.test(text)) return text
  throw new InvalidArgumentError('give 64 hexadecimal digits in lower case.')
}
