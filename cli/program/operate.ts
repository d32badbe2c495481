import { type Command, InvalidArgumentError, Option } from 'commander'
import type { CommonOptions } from '#process/config'
import { UsageError } from '#process/exit'
import type { ConsoleFlags } from '../commands/console.ts'
import type { ConsoleInClusterOptions } from '../commands/console-in-cluster.ts'
import type { BackupOptions, RecoverOptions, RestoreOptions, StoreOptions } from '../commands/etcd-agent.ts'
import type { InstallOptions } from '../commands/install.ts'
import type { LocalOptions, LocalUpOptions } from '../commands/local.ts'
import type { UninstallCommandOptions } from '../commands/uninstall.ts'
import type { UpOptions } from '../commands/up.ts'
import {
  builtinOption,
  type CommandContext,
  dirOption,
  functionOption,
  namespacesOption,
  nodeOption,
  outputOption,
  revisionOption,
  whole,
} from '../options.ts'
import { completionScript, type Shell, shells } from './completion.ts'

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
      const { up } = await import('../commands/up.ts')
      await up(await config(), { bridge: true, dispatch: true }, options)
    })

  serving(program.command('bridge'))
    .description('the bridge alone: the API server’s changes become CloudEvents on NATS')
    .action(async (options: Omit<UpOptions, 'function' | 'builtin' | 'apiConcurrency'>) => {
      const { up } = await import('../commands/up.ts')
      const none = { function: [], builtin: [] }
      await up(await config(), { bridge: true, dispatch: false }, { ...options, ...none, apiConcurrency: 1 })
    })

  dispatching(program.command('dispatch'))
    .description('the dispatcher alone: takes keys, runs functions, applies their outcomes')
    .action(async (options: UpOptions) => {
      const { up } = await import('../commands/up.ts')
      await up(await config(), { bridge: false, dispatch: true }, options)
    })
}

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
      const { installFunctions } = await import('../commands/install.ts')
      await installFunctions(options, context)
    })
}

export function uninstallCommand(program: Command, context: CommandContext): void {
  program
    .command('uninstall')
    .description('remove what install has applied; refuses while objects wait for a function to let them go')
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(outputOption('table', 'json'))
    .option('--dry-run', 'show what would be removed, what would stay and why', false)
    .option('--crds', 'also definitions under which no object is stored', false)
    .option('--wait <seconds>', 'for objects to lose the finalizers of the functions', whole(1, 86_400))
    .option('--release-finalizers', 'take the finalizers away: what the functions would have cleaned up stays', false)
    .action(async (options: UninstallCommandOptions) => {
      const { uninstallFunctions } = await import('../commands/uninstall.ts')
      await uninstallFunctions(options, context)
    })
}

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
        const { consoleInCluster } = await import('../commands/console-in-cluster.ts')
        return consoleInCluster(await context.config(), { inCluster, listen })
      }
      const { serveConsole } = await import('../commands/console.ts')
      return serveConsole(flags, context)
    })
}

export function localCommands(program: Command, { print, setExitCode }: CommandContext): void {
  const local = program.command('local').description('real servers on this machine, for development')

  local
    .command('up')
    .description('start etcd, kube-apiserver, controllers, nats-server and a node, building them on first use')
    .addOption(dirOption())
    .addOption(nodeOption())
    .action(async (options: LocalUpOptions) => {
      const { localUp } = await import('../commands/local.ts')
      print(await localUp(options))
    })

  local
    .command('down')
    .description('stop them, completely')
    .addOption(dirOption())
    .action(async (options: LocalOptions) => {
      const { localDown } = await import('../commands/local.ts')
      print(await localDown(options))
    })

  local
    .command('status')
    .description('what runs; exit code 1 if not everything does')
    .addOption(dirOption())
    .addOption(outputOption('table', 'json'))
    .action(async (options: LocalOptions & { output: 'table' | 'json' }) => {
      const { localStatus } = await import('../commands/local.ts')
      const { text, running } = localStatus(options)
      print(text)
      if (!running) setExitCode(1)
    })

  local
    .command('env')
    .description('variables for kubectl, nats and fairlead: eval "$(fairlead local env)"')
    .addOption(dirOption())
    .addOption(outputOption('shell', 'json'))
    .action(async (options: LocalOptions & { output: 'shell' | 'json' }) => {
      const { localEnv } = await import('../commands/local.ts')
      localEnv(options, print)
    })
}

export function demoCommand(program: Command, { setExitCode }: CommandContext): void {
  program
    .command('demo')
    .description('one object’s life, from its creation to DONE, on real servers')
    .option('--keep', 'leave everything running, and print commands to go on by hand', false)
    .option(
      '--no-node',
      'without a node, whose programs take half of the first build: the demo itself reports the pod as succeeded',
    )
    .action(async (options: { keep: boolean; node: boolean }) => {
      if (options.keep && !options.node)
        throw new UsageError('--keep leaves a cluster that runs pods: leave --no-node out, or use local up --node none')
      const { context, ...given } = program.opts<CommonOptions>()
      if (context !== undefined) throw new UsageError('the demo uses the current context: give it a kubeconfig instead')
      const { showDemo } = await import('../commands/demo.ts')
      setExitCode(await showDemo(options, given))
    })
}

export function completionCommand(program: Command, { print }: CommandContext): void {
  program
    .command('completion')
    .description('shell completion, e.g. source <(fairlead completion bash)')
    .argument('<shell>', shells.join(', '), (text: string) => {
      if (!shells.includes(text as Shell)) throw new InvalidArgumentError(`give one of ${shells.join(', ')}.`)
      return text as Shell
    })
    .action((shell: Shell) => print(completionScript(program, shell)))
}

/** The longest accepted time-out: 7 days. */
const LONGEST_SECONDS = 604_800

export function etcdAgentCommands(program: Command, context: CommandContext): void {
  const group = program
    .command('etcd-agent')
    .description('moves snapshots of etcd: what the pods of EtcdBackup and EtcdRestore run')

  const withLimits = (command: Command, seconds: number) =>
    command
      .option('--timeout <seconds>', 'of the whole run', whole(1, LONGEST_SECONDS), seconds)
      .option('--report <file>', 'where the result is written as well: the termination message of a pod')

  const withStore = (command: Command, seconds: number) =>
    withLimits(command, seconds)
      .addOption(
        new Option('--store <kind>', 'what the store speaks').choices(['s3', 'abs', 'gcs']).makeOptionMandatory(),
      )
      .requiredOption('--path <bucket/key>', 'of the object')
      .option(
        '--store-secret <folder>',
        'the keys of the Secret with the credentials, as files (default: the identity of the process)',
      )
      .option('--endpoint <url>', 'of the store, instead of its provider')
      .option('--path-style', 's3: the bucket is in the path of the URL, not in its host', false)

  const withMembers = (command: Command) =>
    command
      .requiredOption('--endpoints <urls>', 'of members, with commas between', urls)
      .option('--etcd-tls <folder>', 'etcd-client.crt, etcd-client.key and etcd-client-ca.crt')

  const withSeed = (command: Command) =>
    command
      .requiredOption('--data-dir <folder>', 'of the member; it must be missing or empty')
      .requiredOption('--name <name>', 'of the member')
      .requiredOption('--peer-url <url>', 'of the member')
      .requiredOption('--token <text>', 'of the new cluster: another one than before')
      .option('--bump-revision <n>', 'added to the revision, so that watchers notice', whole(0, 1e12), 1_000_000_000)
      .option('--etcdutl <file>', 'the program that makes the directory', 'etcdutl')

  withMembers(withStore(group.command('backup'), 60))
    .description('store a snapshot of the member with the highest revision; it is visible when all of it is there')
    .option('--owner <name>', 'whose backups these are: those of others are never deleted', 'fairlead')
    .option('--periodic', 'append revision and time to the key: PATH_v12_2026-11-22-18:00:00', false)
    .option('--keep <n>', 'periodic: how many to keep (default: all)', whole(1, 10_000))
    .action(async (options: BackupOptions) => {
      const { runBackup } = await import('../commands/etcd-agent.ts')
      await runBackup(options, context)
    })

  withStore(group.command('verify'), 3600)
    .description('read a snapshot to its end, and compare it with its own digest')
    .action(async (options: StoreOptions) => {
      const { runVerify } = await import('../commands/etcd-agent.ts')
      await runVerify(options, context)
    })

  withSeed(withStore(group.command('restore'), 3600))
    .description('make the data directory of the first member of a new cluster; does nothing if this token has made it')
    .option('--sha256 <digest>', 'restore these bytes and no others', digest)
    .action(async (options: RestoreOptions) => {
      const { runRestore } = await import('../commands/etcd-agent.ts')
      await runRestore(options, context)
    })

  withSeed(withMembers(withLimits(group.command('recover'), 3600)))
    .description(
      'restore, from the member with the highest revision of those that answer, for a cluster that has lost its quorum',
    )
    .option('--revision <n>', 'read no member that has less', whole(0, Number.MAX_SAFE_INTEGER), 0)
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
