import { Command, InvalidArgumentError, Option } from 'commander'
import type { KnativeOptions } from '#crds'
import { progressOn } from '#local'
import { deadCommands } from './commands/dead.ts'
import { type DevOptions, dev } from './commands/dev.ts'
import { eventsCommands } from './commands/events.ts'
import { generateCrds, generateKnative, generateRbac, refuseBreakingChanges } from './commands/generate.ts'
import { install } from './commands/install.ts'
import { localDown, localEnv, localStatus, localUp } from './commands/local.ts'
import { publishCommand } from './commands/publish.ts'
import { queueCommands } from './commands/queue.ts'
import { runCommand } from './commands/run.ts'
import { serveCommand } from './commands/serve.ts'
import { type UpOptions, up } from './commands/up.ts'
import { completionScript, type Shell, shells } from './completion.ts'
import { type CommonOptions, readConfig, variablesOf } from './config.ts'
import { openKube } from './connections.ts'
import { demo } from './demo/demo.ts'
import { UsageError } from './exit.ts'
import { functionNamed, loadFunctions } from './functions.ts'
import { collect, functionOption, objectName, outputOption, type Print, whole } from './options.ts'
import { untilStopped } from './signals.ts'
import { table } from './table.ts'
import { version } from './version.ts'

const EPILOGUE = `
Environment:
  KUBECONFIG         the cluster (default ~/.kube/config; in a pod its own cluster)
  NATS_URL           nats://host:port, or several with commas between (default nats://127.0.0.1:4222)
  NATS_CA            file of the certificate authority of a TLS server
  NATS_CERT          file of the certificate by which the server knows this client,
  NATS_KEY           and of its key
  FAIRLEAD_PREFIX    before the names of streams and subjects, so that clusters can share a NATS account
  FAIRLEAD_CLUSTER   the cluster's name in events (default the UID of namespace kube-system)
  FAIRLEAD_REFERENCE_ONLY  kinds whose contents stay in the API server, e.g. configmaps,widgets.example.com
  FAIRLEAD_REPLICAS  1 or 3, of the streams (default 1)
  FAIRLEAD_LEASE_SECONDS  how long a silent worker keeps a key (default 5; the same for all processes)
  LOG_LEVEL          trace, debug, info, warn, error or silent (default info)
  LOG_FORMAT         json or text (default text on a terminal)
  FAIRLEAD_DEBUG     set it to see stack traces

Exit codes:
  0 done   1 failed while running   2 wrong arguments or configuration
  3 the API server cannot be reached, or refuses   4 NATS cannot be reached, or refuses
  5 a function blocked the process   130 interrupted

Start here:
  fairlead demo                         one object's life on real servers of this machine
  fairlead dev -f my-operator.ts        a function of yours on the same servers, reloaded as you write
  fairlead local up                     the same servers for your own development
  fairlead up --install                 bridge and dispatcher on the cluster of KUBECONFIG
  fairlead queue ls                     what is queued, running, waiting or parked
  fairlead events tail                  every change of the cluster, as it comes
`

export function createProgram(print: Print, setExitCode: (code: number) => void): Command {
  const program = new Command('fairlead')
    .description('Kubernetes operators without running operators: reconcilers as functions, on NATS JetStream.')
    .version(version)
    .option('--kubeconfig <file>', 'instead of KUBECONFIG')
    .option('--context <name>', 'of the kubeconfig')
    .option('--nats <url>', 'instead of NATS_URL')
    .option('--prefix <name>', 'instead of FAIRLEAD_PREFIX')
    .addHelpText('after', EPILOGUE)
    .showHelpAfterError('(fairlead --help lists commands, variables and exit codes)')
  const config = () => readConfig(process.env, program.opts<CommonOptions>())

  const revisionOption = () =>
    new Option('--revision <text>', 'of the functions, e.g. a commit: where it is another one, every object runs again')

  program
    .command('install')
    .description('apply accounts, their rights, CRDs and Reconcilers of the functions; may be repeated')
    .addOption(functionOption())
    .addOption(outputOption('table', 'json'))
    .addOption(revisionOption())
    .option('--force', 'also where objects that are stored would lose something or be refused', false)
    .action(async (options: { function: string[]; output: string; force: boolean; revision?: string }) => {
      await using kube = await openKube(config())
      const installed = await install(kube, await loadFunctions(options.function), options)
      const rows = installed.map(({ kind, name, result }) => [kind, name, result])
      print(options.output === 'json' ? JSON.stringify(installed, null, 2) : table(['KIND', 'NAME', 'RESULT'], rows))
    })

  const generate = program.command('generate').description('manifests from the functions’ code, as YAML')
  generate
    .command('crds')
    .description('the custom resources of the functions, and Reconciler')
    .addOption(functionOption())
    .option('--no-platform', 'without Reconciler')
    .option('--compatible-with <file>', 'fail if objects stored under that definition would not survive', collect, [])
    .action(async (options: { function: string[]; platform: boolean; compatibleWith: string[] }) => {
      const functions = await loadFunctions(options.function)
      await refuseBreakingChanges(functions, options.compatibleWith)
      print(generateCrds(functions, options.platform))
    })
  generate
    .command('rbac')
    .description('what the functions may do, each with an account of its own, and bridge and dispatcher for them')
    .addOption(functionOption())
    .option('--no-platform', 'without what bridge and dispatcher need whatever the functions')
    .action(async (options: { function: string[]; platform: boolean }) =>
      print(generateRbac(await loadFunctions(options.function), options.platform)),
    )
  generate
    .command('knative')
    .description('Knative Services that run the functions, and the Reconcilers that call them there')
    .argument('[name]', 'only of this function')
    .addOption(functionOption())
    .requiredOption('--image <image>', 'with the fairlead command as its entrypoint, and the functions’ modules')
    .option('-n, --namespace <name>', 'of the Services', objectName, 'fairlead-functions')
    .option('--module <path>', 'of the functions inside the image; left out: the built-in functions')
    .action(async (name: string | undefined, options: KnativeOptions & { function: string[] }) => {
      const functions = await loadFunctions(options.function)
      print(generateKnative(name === undefined ? functions : [functionNamed(functions, name)], options))
    })

  runCommand(program, { config, print, setExitCode })

  const serving = (command: Command) =>
    command
      .option('--listen <address>', 'serve /metrics, /healthz and /readyz there, e.g. 127.0.0.1:8080')
      .option('--grace-seconds <n>', 'for runs in flight at a stop', whole(0, 3600), 20)
  const dispatching = (command: Command) =>
    serving(command)
      .addOption(functionOption())
      .option('--api-concurrency <n>', 'API requests in flight', whole(1, 1000), 10)
      .option('--concurrency <n>', 'keys held at once, of all reconcilers together', whole(1, 100_000), 1000)

  dispatching(program.command('up'))
    .description('bridge and dispatcher in one process; any number may run')
    .option('--install', 'apply CRDs and Reconcilers first')
    .addOption(revisionOption())
    .action((options: UpOptions) => up(config(), { bridge: true, dispatch: true }, options))
  serving(program.command('bridge'))
    .description('the bridge alone: the API server’s changes become CloudEvents on NATS')
    .action((options: Omit<UpOptions, 'function' | 'apiConcurrency'>) =>
      up(config(), { bridge: true, dispatch: false }, { ...options, function: [], apiConcurrency: 1 }),
    )
  dispatching(program.command('dispatch'))
    .description('the dispatcher alone: takes keys, runs functions, applies what they say')
    .action((options: UpOptions) => up(config(), { bridge: false, dispatch: true }, options))

  queueCommands(program, { config, print, setExitCode })
  deadCommands(program, { config, print, setExitCode })

  serveCommand(program, { config })
  eventsCommands(program, { config, print })
  publishCommand(program, { config, print })

  const local = program.command('local').description('real servers on this machine, for development')
  const inDir = (command: Command) =>
    command.option('--dir <folder>', 'where the cluster lives (default: one per user)')
  const nodeOption = () =>
    new Option('--node <kind>', 'real: pods run; kwok: pods only change their phase; auto: real if the machine can')
      .choices(['auto', 'real', 'kwok', 'none'])
      .default('auto')
  inDir(local.command('up'))
    .description('start etcd, kube-apiserver, controllers, nats-server and a node, building them on first use')
    .addOption(nodeOption())
    .action(async (options) => print(await localUp(options, untilStopped().signal)))
  inDir(local.command('down'))
    .description('stop them, completely')
    .action(async (options) => print(await localDown(options)))
  inDir(local.command('status'))
    .description('what runs; exit code 1 if not everything does')
    .addOption(outputOption('table', 'json'))
    .action((options) => {
      const { text, running } = localStatus(options)
      print(text)
      if (!running) setExitCode(1)
    })
  inDir(local.command('env'))
    .description('variables for kubectl, nats and fairlead: eval "$(fairlead local env)"')
    .addOption(outputOption('shell', 'json'))
    .action((options) => print(localEnv(options)))

  inDir(program.command('dev'))
    .description('work on a function: runs it on the local cluster, and starts it again at each change of its files')
    .addOption(functionOption())
    .addOption(nodeOption())
    .action((options: DevOptions) => {
      const { kubeconfig, nats } = program.opts<CommonOptions>()
      const progress = progressOn(process.stderr)
      return dev(options, { env: process.env, given: { kubeconfig, nats }, progress, signal: untilStopped().signal })
    })

  program
    .command('demo')
    .description('one object’s life, from its creation to DONE, on real servers')
    .option('--keep', 'leave everything running, and say how to go on by hand', false)
    .action(async ({ keep }: { keep: boolean }) => {
      const { context, ...given } = program.opts<CommonOptions>()
      if (context !== undefined) throw new UsageError('the demo uses the current context: give it a kubeconfig instead')
      const env = { ...process.env, ...variablesOf(given) }
      const progress = progressOn(process.stderr)
      setExitCode(await demo({ keep, env, progress, out: process.stdout, signal: untilStopped().signal }))
    })

  program
    .command('completion')
    .description('shell completion, e.g. source <(fairlead completion bash)')
    .argument('<shell>', shells.join(', '), (text: string) => {
      if (!shells.includes(text as Shell)) throw new InvalidArgumentError(`give one of ${shells.join(', ')}.`)
      return text as Shell
    })
    .action((shell: Shell) => print(completionScript(program, shell)))

  return program
}
