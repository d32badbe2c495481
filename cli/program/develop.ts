import { type Command, Option } from 'commander'
import type { CommonOptions } from '#process/config'
import { UsageError } from '#process/exit'
import type { CheckOptions } from '../commands/check.ts'
import type { DevOptions } from '../commands/dev.ts'
import type { DiffOptions } from '../commands/diff.ts'
import type { LawsOptions } from '../commands/laws.ts'
import type { LocalOptions, LocalUpOptions } from '../commands/local.ts'
import type { NewKindOptions, NewOptions } from '../commands/new.ts'
import type { PublishOptions } from '../commands/publish.ts'
import type { ReplayOptions } from '../commands/replay.ts'
import type { RunOptions } from '../commands/run.ts'
import {
  adapterOption,
  builtinOption,
  type CommandContext,
  dirOption,
  functionOption,
  kindsOption,
  modeOption,
  namedFunctionOption,
  nodeOption,
  objectName,
  outputOption,
  repeatable,
  runNumbers,
  separated,
  target,
  whole,
} from '../options.ts'

/** Declares the commands for work on functions. */
export function developCommands(program: Command, context: CommandContext): void {
  program.commandsGroup('Develop:')
  newCommands(program, context)
  devCommand(program)
  localCommands(program, context)
  demoCommand(program, context)
  checkCommand(program, context)
  lawsCommand(program, context)
  adaptCommand(program, context)
  runCommand(program, context)
  diffCommand(program, context)
  replayCommand(program, context)
  publishCommand(program, context)
}

const TEMPLATES = `
Templates:
  resource      custom resource of your own, and its function (default)
  objects       function for objects that others create, here Namespaces
  existing      function for a custom resource that exists: give --crd
  http-python   function in Python, over HTTP
  http-go       function in Go, over HTTP
`

/** `fairlead new NAME` and `fairlead new kind NAME` */
function newCommands(program: Command, context: CommandContext): void {
  const command = program
    .command('new')
    .description('Create a project for your own functions in a new folder')
    .argument('<folder>', 'Folder to create; . is this folder, if it is empty')
    .addOption(
      new Option('--template <name>', 'Template of the project')
        .choices(['resource', 'objects', 'existing', 'http-python', 'http-go'])
        .default('resource'),
    )
    .option('--kind <Name>', 'Kind of the custom resource (default: Website)')
    .option('--plural <name>', 'Plural name of the kind (default: as in English, e.g. websites, proxies)')
    .option('--group <domain>', 'API group of the kind (default: example.com)')
    .option(
      '--crd <file or name>',
      'CustomResourceDefinition that exists: a file, or its name on the cluster, e.g. shops.example.com',
    )
    .option(
      '--fairlead <version>',
      'Fairlead that npm installs: a version, or file:PATH (default: from where this command came)',
    )
    .addOption(
      new Option('--helm <chart>', 'Folder of a Helm chart, of which an operator is made').conflicts([
        'template',
        'crd',
      ]),
    )
    .addHelpText('after', TEMPLATES)
    .action(async (folder: string, options: NewOptions) => {
      const { newProject } = await import('../commands/new.ts')
      await newProject(folder, options, context)
    })

  command
    .command('kind')
    .description('Add a kind to the project in this folder: its function, tests and example')
    .argument('<Name>', 'Name of the kind, e.g. Shop')
    .option('--plural <name>', 'Plural name of the kind (default: as in English, e.g. websites, proxies)')
    .option('--group <domain>', 'API group of the kind', 'example.com')
    // The parent command parses the options of the same names.
    .action(async (kind: string, _: NewKindOptions, own: Command) => {
      const { newKind } = await import('../commands/new.ts')
      await newKind(kind, own.optsWithGlobals<NewKindOptions>(), context)
    })
}

function devCommand(program: Command): void {
  program
    .command('dev')
    .description('Run a function on the local cluster, and restart it when its files change')
    .addOption(dirOption())
    .addOption(functionOption())
    .addOption(nodeOption())
    .addOption(repeatable('--apply <file>', 'File or folder of objects to apply; shows their conditions'))
    .option('--open', 'Open the console in a browser', false)
    .action(async (options: DevOptions) => {
      const { dev } = await import('../commands/dev.ts')
      await dev(options, program.opts<CommonOptions>())
    })
}

function localCommands(program: Command, { print, setExitCode }: CommandContext): void {
  const local = program.command('local').description('Manage real servers on this machine for development')

  local
    .command('up')
    .description('Start etcd, kube-apiserver, controllers, nats-server and a node; builds them on first use')
    .addOption(dirOption())
    .addOption(nodeOption())
    .action(async (options: LocalUpOptions) => {
      const { localUp } = await import('../commands/local.ts')
      print(await localUp(options))
    })

  local
    .command('down')
    .description('Stop all servers')
    .addOption(dirOption())
    .action(async (options: LocalOptions) => {
      const { localDown } = await import('../commands/local.ts')
      print(await localDown(options))
    })

  local
    .command('status')
    .description('Show the servers; exit code 1 if one does not run')
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
    .description('Print variables for kubectl, nats and fairlead: eval "$(fairlead local env)"')
    .addOption(dirOption())
    .addOption(outputOption('shell', 'json'))
    .action(async (options: LocalOptions & { output: 'shell' | 'json' }) => {
      const { localEnv } = await import('../commands/local.ts')
      localEnv(options, print)
    })
}

function demoCommand(program: Command, { setExitCode }: CommandContext): void {
  program
    .command('demo')
    .description('Show one object from its creation to DONE on real servers')
    .option('--keep', 'Keep everything running, and print commands to continue by hand', false)
    .option('--no-node', 'Stop before the node, whose programs are half of the build')
    .action(async (options: { keep: boolean; node: boolean }) => {
      if (options.keep && !options.node)
        throw new UsageError('--keep leaves a cluster that runs pods: leave --no-node out, or use local up --node none')
      const { context, ...given } = program.opts<CommonOptions>()
      if (context !== undefined) throw new UsageError('the demo uses the current context: give it a kubeconfig instead')
      const { showDemo } = await import('../commands/demo.ts')
      setExitCode(await showDemo(options, given))
    })
}

const CHECK_HELP = `
Exit codes:
  0 all objects are admitted   1 one is refused   5 validate throws`

/** `fairlead check -f website.ts website.yaml` */
function checkCommand(program: Command, context: CommandContext): void {
  program
    .command('check')
    .description('Check objects in files by schema, rules and validate; needs no cluster')
    .argument('<files...>', 'Files or folders with objects; - is standard input')
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(outputOption('text', 'json'))
    .addHelpText('after', CHECK_HELP)
    .action(async (files: string[], options: CheckOptions) => {
      const { check } = await import('../commands/check.ts')
      await check(files, options, context)
    })
}

/** `fairlead laws FILES --exec PROGRAM` */
function lawsCommand(program: Command, context: CommandContext): void {
  program
    .command('laws')
    .description('Check the laws of a function in any language on generated histories; needs no cluster')
    .argument('<files...>', 'Files or folders with its Reconciler, its CustomResourceDefinition and examples')
    .option('--exec <program>', 'Program to call, as for serve')
    .option('--lines', 'Start the program once, and write each call to it as a line')
    .option('--env <names>', 'Variables that the program gets too, separated by commas (default: none)', separated)
    .option('--url <url>', 'URL of a function over HTTP to call')
    .option('--timeout-seconds <n>', 'Seconds of one call', whole(1, 3600), 60)
    .option('--seed <n>', 'Seed of the first history', whole(0, 2 ** 31), 1)
    .option('--histories <n>', 'Number of histories', whole(1, 10_000), 3)
    .option('--law <text>', 'Check this law alone (default: all)')
    .action(async (files: string[], options: LawsOptions) => {
      const { checkLaws } = await import('../commands/laws.ts')
      await checkLaws(files, options, context)
    })
}

const ADAPT_HELP = `
Exit codes:
  0 the hook can run   1 a part of it is refused`

/** `fairlead adapt shell-operator --check HOOK` */
function adaptCommand(program: Command, context: CommandContext): void {
  program
    .command('adapt')
    .description('Check what of an operator for another framework can run')
    .command('shell-operator')
    .description('Check a hook of shell-operator, which serve --hook runs; needs no cluster')
    .requiredOption('--check <hook>', 'Hook to call with --config')
    .addHelpText('after', ADAPT_HELP)
    .action(async ({ check }: { check: string }) => {
      const { checkShellOperatorHook } = await import('../commands/adapt.ts')
      await checkShellOperatorHook(check, context)
    })
}

/** `fairlead run NAME OBJECT --dry-run` */
function runCommand(program: Command, context: CommandContext): void {
  program
    .command('run')
    .description('Show what a function would do for one object on the cluster as it is now')
    .argument('<function>', 'Name of the function, e.g. at', objectName)
    .argument('<object>', 'Name of the object', objectName)
    .option('-n, --namespace <name>', 'Namespace of the object (default: default)', objectName)
    .option('--dry-run', 'Write nothing; show the outcome and the differences (required)')
    .addOption(namedFunctionOption())
    .addOption(kindsOption())
    .addOption(outputOption('text', 'json'))
    .action(async (name: string, object: string, { dryRun: isDry, ...options }: RunOptions & { dryRun?: true }) => {
      if (!isDry)
        throw new UsageError(
          `add --dry-run to see what would be written; a dispatcher runs it for real: fairlead queue run ${name} NAMESPACE/${object}`,
        )
      const { printDryRun } = await import('../commands/run.ts')
      await printDryRun(name, object, options, context)
    })
}

const DIFF_HELP = `
Exit codes:
  0 nothing would change   1 something would change
  5 a run would fail, or the schema rejects an object

In a pipeline:
  fairlead diff -f website.ts --all -o json > diff.json || test $? = 1`

/** `fairlead diff -f website.ts --all` */
function diffCommand(program: Command, context: CommandContext): void {
  program
    .command('diff')
    .description('Show what a new version of functions would change on the cluster')
    .argument('[objects...]', 'Names of objects (default: those that --all, -n or -l select)')
    .option('--all', 'Select the objects of all namespaces')
    .option('-n, --namespace <name>', 'Namespace of the objects (default: default; with --all or -l, all)', objectName)
    .option('-l, --selector <labels>', 'Label selector of the objects, e.g. tier=web')
    .option('--reconciler <name>', 'Name of one function of the module (default: all)', objectName)
    .option('--concurrency <number>', 'Maximum concurrent dry runs', whole(1, 64), 8)
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(adapterOption())
    .addOption(kindsOption())
    .addOption(outputOption('text', 'json'))
    .addHelpText('after', DIFF_HELP)
    .action(async (names: string[], options: DiffOptions) => {
      const { printDiff } = await import('../commands/diff.ts')
      await printDiff(names, options, context)
    })
}

const REPLAY_HELP = `
The exit code is 1 if the outcomes differ. Under a debugger:
  node --inspect-brk node_modules/fairlead/cli/bin.js replay --from run.json`

/** `fairlead replay RUN -f website.ts` */
function replayCommand(program: Command, context: CommandContext): void {
  program
    .command('replay')
    .description('Repeat recorded runs with the function on disk, and compare the outcomes')
    .argument('[runs...]', 'Numbers that runs ls shows', runNumbers, [])
    .option('--from <file>', 'File with records that runs get has printed; needs neither cluster nor NATS')
    .addOption(namedFunctionOption())
    .addOption(outputOption('text', 'json'))
    .addHelpText('after', REPLAY_HELP)
    .action(async (ids: number[], options: ReplayOptions) => {
      const { replayRuns } = await import('../commands/replay.ts')
      await replayRuns(ids, options, context)
    })
}

const PUBLISH_HELP = `
Examples:
  fairlead publish at example-at                         object, to EVENTS
  fairlead publish pod web-0 --to http://localhost:8080  object, to a function
  fairlead publish -f at.yaml --to nats:trial.ats        file, to a subject
  fairlead publish -f at.yaml --offline --curl           curl command, no server`

function publishCommand(program: Command, context: CommandContext): void {
  program
    .command('publish')
    .description('Publish the event that the bridge would publish of an object')
    .argument('[kind]', 'Resource or kind, as in kubectl')
    .argument('[name]', 'Name of the object')
    .option('-f, --file <file>', 'YAML or JSON file, instead of an object in the cluster; - is standard input')
    .option('-n, --namespace <name>', 'Namespace of the object (default: that of the file, else default)')
    .option('--to <target>', 'Target: http://…, https://… or nats:SUBJECT (default: EVENTS)', target)
    .addOption(
      new Option('--type <verb>', 'Type of the event')
        .choices(['added', 'modified', 'deleted'])
        .default(undefined, 'added for an object without changes, else modified'),
    )
    .addOption(modeOption())
    .addOption(new Option('--dry-run', 'Print the event; publish nothing').conflicts('curl'))
    .option('--curl', 'Print a curl command; publish nothing')
    .option('--offline', 'Ask no API server: guess the resource of a kind, invent uid and resourceVersion')
    .addHelpText('after', PUBLISH_HELP)
    .action(async (kind: string | undefined, name: string | undefined, options: PublishOptions) => {
      const { publish } = await import('../commands/publish.ts')
      await publish(kind, name, options, context)
    })
}
