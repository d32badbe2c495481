import { type Argument, Command, type Option } from 'commander'
import type { CommonOptions } from '#process/config'
import { version } from '#process/version'
import manifest from '../../package.json' with { type: 'json' }
import type { CommandContext, Print } from '../options.ts'
import { completionCommand } from './completion.ts'
import { developCommands } from './develop.ts'
import { inspectCommands } from './inspect.ts'
import { installCommands } from './install.ts'
import { operateCommands } from './operate.ts'

const DESCRIPTION = `${manifest.description}.

Start here:
  fairlead demo                       one object's life on local servers
  fairlead new my-operator            create a project for your own functions
  fairlead dev -f my-operator.ts      run a function while you write it
  fairlead install -f my-operator.ts  bring a function to a cluster
  fairlead explain website/hello      why an object is in its state; next step
  fairlead console                    queue, objects, runs, events in a browser`

const EPILOGUE = `
Environment:
  KUBECONFIG                  Kubeconfig file (~/.kube/config; in a pod its own
                              cluster)
  NATS_URL                    URLs of NATS, separated by commas
                              (nats://127.0.0.1:4222)
  NATS_CA                     Certificate authority file of a TLS server
                              (authorities of the system)
  NATS_CERT, NATS_KEY         Certificate and key files of this client (none)
  NATS_API_PREFIX             Prefix of the JetStream API for this user of NATS
                              ($JS.API)
  FAIRLEAD_PREFIX             Prefix of streams and subjects, for clusters that
                              share an account of NATS (none)
  FAIRLEAD_CLUSTERS           File that lists clusters, each with its kubeconfig
                              and the prefix of its streams (none)
  FAIRLEAD_SHARD              Value of the label fairlead.dev/shard of the
                              Reconcilers to serve, on their own streams (none)
  FAIRLEAD_REPLICAS           Replicas of each stream, 1 or 3 (1)
  FAIRLEAD_REFERENCE_ONLY     Kinds whose contents stay in the API server, for
                              example configmaps,widgets.example.com (none)
  FAIRLEAD_EVENTS_MAX_BYTES   Maximum size of the stream EVENTS, for example 7Gi
                              (no limit)
  FAIRLEAD_RUNS               Record of runs that write or fail, on or off (on)
  FAIRLEAD_RUNS_MAX_BYTES     Maximum size of a new stream RUNS (256Mi)
  FAIRLEAD_STORAGE_MAX_BYTES  Storage of NATS for all streams, for example 9Gi;
                              only for the metrics (unknown)
  FAIRLEAD_LEASE_SECONDS      Seconds that a silent worker keeps a key, 2 to 300
                              (5)
  FAIRLEAD_MAX_STATE_MIB      MiB that one run may read, 1 to 1024; all runs of
                              a process may read six times as much (16)
  FAIRLEAD_REVISION           Revision of the functions in this process; every
                              object runs again when it changes (digest of the
                              image in a pod of deploy/fairlead, else none)
  FAIRLEAD_RUN_RATES          Rates that Reconcilers share, as JSON (none)
  FAIRLEAD_FUNCTION_ACCESS    File with authorities, tokens and certificates for
                              calls of functions over HTTP (none)
  FAIRLEAD_CONSOLE_HOSTS      Host names of console --in-cluster, separated by
                              commas (localhost)
  FAIRLEAD_CONSOLE_AUDIENCES  Audiences of accepted tokens, separated by commas
                              (those of the API server)
  FAIRLEAD_CONSOLE_WRITES     Permission to change the queue for users who have
                              the rights, true or false (false)
  FAIRLEAD_CONSOLE_CERT, FAIRLEAD_CONSOLE_KEY
                              Certificate and key files for TLS (none)
  LOG_LEVEL                   trace, debug, info, warn, error or silent (info)
  LOG_FORMAT                  json or text (text on a terminal, else json)
  NO_COLOR, FORCE_COLOR       No color, or color in a pipe too (color on a
                              terminal)
  FAIRLEAD_DEBUG              Stack traces of errors, if set (unset)

Exit codes:
  0    success
  1    failure while running
  2    wrong arguments or configuration
  3    API server not reachable, or request rejected
  4    NATS not reachable, or request rejected
  5    process blocked or ended by a function, or a signal ignored by it
  130  interrupted
`

/** Returns a description with the values and the default in one pair of brackets, without defaults that say nothing. */
function described(one: Option | Argument): string {
  const { description, argChoices, defaultValue: value, defaultValueDescription } = one
  const isSilent = value === undefined || value === false || (Array.isArray(value) && value.length === 0)
  const shown = defaultValueDescription ?? (isSilent ? undefined : String(value))
  const facts = [
    argChoices?.join(', '),
    'mandatory' in one && one.mandatory ? 'required' : undefined,
    shown && `default: ${shown}`,
    'envVar' in one && one.envVar ? `variable: ${one.envVar}` : undefined,
  ].filter(Boolean)
  return facts.length === 0 ? description : `${description} (${facts.join('; ')})`
}

/** Groups of commands inherit it. */
const HELP_COMMAND = ['help [command]', 'Print the help of a command'] as const

/**
 * Declares all commands, in the order of the help. The files beside this one only declare arguments; they import the
 * code of a command when it runs, so that help and completion load little.
 */
export function createProgram(print: Print, setExitCode: (code: number) => void): Command {
  const program = new Command('fairlead')
    .description(DESCRIPTION)
    .version(version, '-V, --version', 'Print the version')
    .helpOption('-h, --help', 'Print this help')
    .helpCommand(...HELP_COMMAND)
    .configureHelp({ optionDescription: described, argumentDescription: described, minWidthToWrap: 30 })
    .exitOverride()
    .option('--kubeconfig <file>', 'Kubeconfig file (default: KUBECONFIG)')
    .option('--context <name>', 'Context of the kubeconfig (default: its current context)')
    .option('--nats <url>', 'URLs of NATS, separated by commas (default: NATS_URL)')
    .option('--prefix <name>', 'Prefix of streams and subjects (default: FAIRLEAD_PREFIX)')
    .option('--clusters <file>', 'File that lists clusters (default: FAIRLEAD_CLUSTERS)')
    .option('--cluster <name>', 'Cluster of that file')
    .option('--shard <name>', 'Shard of Reconcilers to serve (default: FAIRLEAD_SHARD)')
    .addHelpText('after', EPILOGUE)
    .configureOutput({ outputError: (text, write) => write(usageError(text)) })
  const context: CommandContext = {
    print,
    setExitCode,
    async config(which) {
      const { readConfig } = await import('#process/config')
      const options = program.opts<CommonOptions>()
      const config = readConfig(process.env, options)
      if (config.FAIRLEAD_CLUSTERS === undefined && options.cluster === undefined) return config
      const { chosenConfig } = await import('#process/listed-clusters')
      return chosenConfig(config, options.cluster, which)
    },
  }

  developCommands(program, context)
  installCommands(program, context)
  operateCommands(program, context)
  inspectCommands(program, context)
  program.commandsGroup('Help:').helpCommand(...HELP_COMMAND)
  completionCommand(program, context)
  withPointer(program, 'fairlead')
  return program
}

/** Makes one line of an error of Commander: `error: unknown command 'expalin'`, `(Did you mean explain?)`. */
const usageError = (text: string): string =>
  text
    .replace(/^error: /, 'fairlead: ')
    .replace(' is invalid. ', ' is invalid: ')
    .replace(/\n\(Did you mean (.*)\?\)/, '; did you mean $1?')

/** After a usage error, points to the help of the command. */
function withPointer(command: Command, path: string): void {
  command.showHelpAfterError(`For its arguments and options: ${path} --help`)
  for (const child of command.commands) withPointer(child, `${path} ${child.name()}`)
}
