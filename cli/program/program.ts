import { Command } from 'commander'
import type { CommonOptions } from '#process/config'
import { version } from '#process/version'
import type { CommandContext, Print } from '../options.ts'
import {
  devCommand,
  diffCommand,
  generateCommands,
  imageCommand,
  newCommands,
  publishCommand,
  runCommand,
  serveCommand,
} from './develop.ts'
import { deadCommands, eventsCommands, explainCommand, queueCommands, replayCommand, runsCommands } from './inspect.ts'
import {
  completionCommand,
  consoleCommand,
  demoCommand,
  etcdAgentCommands,
  installCommand,
  localCommands,
  uninstallCommand,
  upCommands,
} from './operate.ts'

const EPILOGUE = `
Environment:
  KUBECONFIG         the cluster (default ~/.kube/config; in a pod its own cluster)
  NATS_URL           nats://host:port, or several with commas between (default nats://127.0.0.1:4222)
  NATS_CA            file of the certificate authority of a TLS server
  NATS_CERT          file of the certificate by which the server knows this client,
  NATS_KEY           and of its key
  NATS_API_PREFIX    where this NATS user finds the JetStream API (default $JS.API)
  FAIRLEAD_PREFIX    before the names of streams and subjects, so that clusters can share a NATS account
  FAIRLEAD_SHARD     serves only Reconcilers with the label fairlead.dev/shard=NAME, on streams of its own
  FAIRLEAD_REFERENCE_ONLY  kinds whose contents stay in the API server, e.g. configmaps,widgets.example.com
  FAIRLEAD_EVENTS_MAX_BYTES  of the stream EVENTS, such as 7Gi (default no limit)
  FAIRLEAD_STORAGE_MAX_BYTES  of NATS for all streams, such as 9Gi: for the metrics only
  FAIRLEAD_REPLICAS  1 or 3, of the streams (default 1)
  FAIRLEAD_RUNS      whether runs that write something or fail are recorded: on or off (default on)
  FAIRLEAD_RUNS_MAX_BYTES  of the stream RUNS, when it is made (default 256Mi)
  FAIRLEAD_CONSOLE_HOSTS  names by which fairlead console --in-cluster is reached, e.g. console.example.com
  FAIRLEAD_CONSOLE_AUDIENCES  of the tokens that it takes (default those of the API server)
  FAIRLEAD_CONSOLE_WRITES  true: people may change the queue by it, where they have the right (default false)
  FAIRLEAD_CONSOLE_CERT  file of its certificate for TLS,
  FAIRLEAD_CONSOLE_KEY   and of its key
  FAIRLEAD_LEASE_SECONDS  how long a silent worker keeps a key (default 5)
  FAIRLEAD_FUNCTION_ACCESS  file with authorities, tokens and certificates for calls of functions over HTTP
  FAIRLEAD_REVISION  of the functions in this process: by another one every object runs again (default the image's digest)
  FAIRLEAD_MAX_STATE_MIB  what one run may read, in MiB (default 16; six times as much for all runs of a process)
  LOG_LEVEL          trace, debug, info, warn, error or silent (default info)
  LOG_FORMAT         json or text (default text on a terminal)
  FAIRLEAD_DEBUG     set it to see stack traces

Exit codes:
  0 done   1 failed while running   2 wrong arguments or configuration
  3 the API server cannot be reached, or refuses   4 NATS cannot be reached, or refuses
  5 a function blocked or ended the process, or ignored its signal   130 interrupted

Start here:
  fairlead demo                         one object's life on real servers of this machine
  fairlead new my-operator              a project for functions of yours
  fairlead dev -f my-operator.ts        a function of yours on the same servers, reloaded as you write
  fairlead local up                     the same servers for your own development
  fairlead up --install --builtin at    bridge and dispatcher on the cluster of KUBECONFIG
  fairlead explain website/hello        why an object is as it is, and what to do
  fairlead console                      queue, objects, runs and events in a browser
  fairlead queue ls                     keys that are queued, running, waiting or parked
  fairlead events tail                  every change of the cluster, as it comes
`

/**
 * Declares all commands in the order of the help. A file of commands/ only declares the arguments; it imports the code
 * (actions/, and through it the rooms) when the command runs, so that help and completion load little.
 */
export function createProgram(print: Print, setExitCode: (code: number) => void): Command {
  const program = new Command('fairlead')
    .description('Write Kubernetes operators as TypeScript functions; Fairlead runs all of them on one platform.')
    .version(version)
    .option('--kubeconfig <file>', 'instead of KUBECONFIG')
    .option('--context <name>', 'of the kubeconfig')
    .option('--nats <url>', 'instead of NATS_URL')
    .option('--prefix <name>', 'instead of FAIRLEAD_PREFIX')
    .option('--shard <name>', 'instead of FAIRLEAD_SHARD')
    .addHelpText('after', EPILOGUE)
    .showHelpAfterError('(fairlead --help lists commands, variables and exit codes)')
  const context: CommandContext = {
    print,
    setExitCode,
    async config() {
      const { readConfig } = await import('#process/config')
      return readConfig(process.env, program.opts<CommonOptions>())
    },
  }

  newCommands(program, context)
  installCommand(program, context)
  uninstallCommand(program, context)
  generateCommands(program, context)
  imageCommand(program, context)
  runCommand(program, context)
  diffCommand(program, context)
  upCommands(program, context)
  explainCommand(program, context)
  consoleCommand(program, context)
  queueCommands(program, context)
  runsCommands(program, context)
  replayCommand(program, context)
  deadCommands(program, context)
  serveCommand(program, context)
  eventsCommands(program, context)
  publishCommand(program, context)
  etcdAgentCommands(program, context)
  localCommands(program, context)
  devCommand(program)
  demoCommand(program, context)
  completionCommand(program, context)
  return program
}
