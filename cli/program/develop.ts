import { type Command, Option } from 'commander'
import type { CommonOptions } from '#process/config'
import { UsageError } from '#process/exit'
import type { Selection } from '#process/functions'
import type { DevOptions } from '../commands/dev.ts'
import type { DiffOptions } from '../commands/diff.ts'
import type {
  BundleCommandOptions,
  ChartOptions,
  CrdsOptions,
  KnativeOfOptions,
  ManifestsOptions,
} from '../commands/generate.ts'
import type { ImageCommandOptions } from '../commands/image.ts'
import type { NewKindOptions, NewOptions } from '../commands/new.ts'
import type { PublishOptions } from '../commands/publish.ts'
import type { RunOptions } from '../commands/run.ts'
import type { ServeOptions } from '../commands/serve.ts'
import {
  builtinOption,
  type CommandContext,
  collect,
  dirOption,
  functionOption,
  modeOption,
  namedFunctionOption,
  namespacesOption,
  nodeOption,
  objectName,
  outputOption,
  revisionOption,
  streamPrefixes,
  target,
  whole,
} from '../options.ts'

const TEMPLATES = `
Templates:
  resource      a custom resource of yours, and its function (default)
  objects       a function for objects that others create, here Namespaces
  existing      a function for a custom resource that is defined already: give --crd
  http-python   a function in Python, over HTTP
  http-go       a function in Go, over HTTP
`

/** `fairlead new NAME` and `fairlead new kind NAME` */
export function newCommands(program: Command, context: CommandContext): void {
  const command = program
    .command('new')
    .description('a project for functions of yours, in a new folder')
    .argument('<folder>', 'to make; . for this one, if it is empty')
    .addOption(
      new Option('--template <name>', 'what to begin with')
        .choices(['resource', 'objects', 'existing', 'http-python', 'http-go'])
        .default('resource'),
    )
    .option('--kind <Name>', 'of the custom resource (default: Website)')
    .option('--plural <name>', 'of the kind, where adding an s is wrong')
    .option('--group <domain>', 'API group of the kind (default: example.com)')
    .option(
      '--crd <file or name>',
      'the definition that exists: a file, or its name on the cluster, e.g. shops.example.com',
    )
    .option('--fairlead <version>', 'what npm installs: a version, or file:PATH (default: this version)')
    .addHelpText('after', TEMPLATES)
    .action(async (folder: string, options: NewOptions) => {
      const { newProject } = await import('../commands/new.ts')
      await newProject(folder, options, context)
    })

  command
    .command('kind')
    .description('one more kind in the project of this folder: its function, tests and example')
    .argument('<Name>', 'e.g. Shop')
    .option('--plural <name>', 'where adding an s is wrong')
    .option('--group <domain>', 'API group of the kind', 'example.com')
    // The parent command parses the options of the same names.
    .action(async (kind: string, _: NewKindOptions, own: Command) => {
      const { newKind } = await import('../commands/new.ts')
      await newKind(kind, own.optsWithGlobals<NewKindOptions>(), context)
    })
}

export function devCommand(program: Command): void {
  program
    .command('dev')
    .description('work on a function: runs it on the local cluster, and starts it again at each change of its files')
    .addOption(dirOption())
    .addOption(functionOption())
    .addOption(nodeOption())
    .option(
      '--apply <file>',
      'also apply its objects, or those of a folder, and show their conditions; may be repeated',
      collect,
      [],
    )
    .option('--open', 'open the console in a browser', false)
    .action(async (options: DevOptions) => {
      const { dev } = await import('../commands/dev.ts')
      await dev(options, program.opts<CommonOptions>())
    })
}

/** `fairlead run NAME OBJECT --dry-run` */
export function runCommand(program: Command, context: CommandContext): void {
  program
    .command('run')
    .description('what a function would do for one object, on the cluster as it is now')
    .argument('<function>', 'its name, e.g. at', objectName)
    .argument('<object>', 'the name of the object', objectName)
    .option('-n, --namespace <name>', 'of the object (default: default)', objectName)
    .option('--dry-run', 'write nothing: show the outcome, and what would differ')
    .addOption(namedFunctionOption())
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

export function serveCommand(program: Command, context: CommandContext): void {
  program
    .command('serve')
    .description('one function over HTTP, as in a Knative Service: a dispatcher calls it')
    .argument('[name]', 'of the function, where there are several')
    .addOption(namedFunctionOption())
    .addOption(new Option('--port <n>', 'to listen on').env('PORT').argParser(whole(0, 65_535)).default(8080))
    .addOption(revisionOption())
    .option('--grace-seconds <n>', 'for requests under way at a stop', whole(0, 3600), 20)
    .action(async (name: string | undefined, options: ServeOptions) => {
      const { serveFunction } = await import('../commands/serve.ts')
      await serveFunction(name, options, context)
    })
}

export function generateCommands(program: Command, { print }: CommandContext): void {
  const generate = program.command('generate').description('manifests from the functions’ code, as YAML')

  generate
    .command('crds')
    .description('the custom resources of the functions')
    .addOption(functionOption())
    .addOption(builtinOption())
    .option('--platform', 'and Reconciler, the custom resource of Fairlead itself', false)
    .option('--compatible-with <file>', 'fail if objects stored under that definition would not survive', collect, [])
    .option('--new <name>', 'a definition that is in none of those files yet, e.g. shops.example.com', collect, [])
    .action(async (options: CrdsOptions) => {
      const { generateCrds } = await import('../commands/generate.ts')
      print(await generateCrds(options))
    })

  generate
    .command('rbac')
    .description('what the functions may do, each with an account of its own, and bridge and dispatcher for them')
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(namespacesOption())
    .action(async (options: Selection) => {
      const { generateRbac } = await import('../commands/generate.ts')
      print(await generateRbac(options))
    })

  generate
    .command('manifests')
    .description('crds.yaml and rbac.yaml of the functions, in a folder; fails if stored objects would not survive')
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(namespacesOption())
    .requiredOption('--to <folder>', 'whose crds.yaml has the earlier definitions')
    .option('--force', 'also where stored objects would lose something or be refused', false)
    .action(async (options: ManifestsOptions) => {
      const { generateManifests } = await import('../commands/generate.ts')
      for (const file of await generateManifests(options)) print(file)
    })

  generate
    .command('knative')
    .description('Knative Services that run the functions, and the Reconcilers that call them there')
    .argument('[name]', 'only of this function')
    .addOption(functionOption())
    .addOption(builtinOption())
    .requiredOption('--image <image>', 'with the fairlead command as its entrypoint, and the functions’ modules')
    .option('-n, --namespace <name>', 'of the Services', objectName, 'fairlead-functions')
    .option('--module <path>', 'of the functions inside the image; left out: built-in functions')
    .action(async (name: string | undefined, options: KnativeOfOptions) => {
      const { generateKnative } = await import('../commands/generate.ts')
      print(await generateKnative(name, options))
    })

  generate
    .command('nats-users')
    .description('users.conf of NATS, with the permissions for these shards or prefixes too')
    .argument(
      '<name...>',
      'values of FAIRLEAD_SHARD or FAIRLEAD_PREFIX; PREFIX-SHARD where both are set',
      streamPrefixes,
    )
    .action(async (names: string[]) => {
      const { natsUsers } = await import('#install')
      print((await natsUsers(names)).trimEnd())
    })

  generate
    .command('chart')
    .description('a Helm chart of the functions: definitions, rights and Reconcilers, with values for each of them')
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(namespacesOption())
    .requiredOption('--to <folder>', 'its files are written again, and others there are left')
    .requiredOption('--image <image>', 'with the functions, which checks the definitions before each upgrade')
    .option('--module <path>', 'of the functions inside the image; left out: built-in functions')
    .option('--name <name>', 'of the chart', objectName, 'functions')
    .option('--chart-version <version>', 'of the chart', '0.1.0')
    .action(async (options: ChartOptions) => {
      const { generateChart } = await import('../commands/generate.ts')
      for (const file of await generateChart(options)) print(file)
    })

  generate
    .command('bundle')
    .description('a bundle of the functions for the Operator Lifecycle Manager (OLM), which runs them over HTTP')
    .addOption(functionOption())
    .addOption(builtinOption())
    .requiredOption('--to <folder>', 'its manifests and metadata are made again, and other files there are left')
    .requiredOption('--image <image>', 'with the fairlead command as its entrypoint, and the functions’ modules')
    .option('--module <path>', 'of the functions inside the image; left out: built-in functions')
    .option('--package <file>', 'with name, version, description, author and links', 'package.json')
    .option('--examples <file>', 'objects of each kind, or a folder of such files; may be repeated', collect, [])
    .option('-n, --namespace <name>', 'where OLM is to install it', objectName, 'fairlead-functions')
    .option('--icon <file>', 'SVG, PNG, JPEG or GIF')
    .option('--replaces <version>', 'of the bundle that this one is an upgrade of')
    .action(async (options: BundleCommandOptions) => {
      const { generateBundle } = await import('../commands/generate.ts')
      for (const file of await generateBundle(options)) print(file)
    })
}

const EPILOGUE = `
The reference of the pushed image, by its digest, is all that is printed. Credentials are those of docker login and podman login.
Nothing is run, so that no container engine is needed: package.json, the dependencies as they are installed here, and the
functions are put on top of the base. Linked packages are packed as npm pack does it (files, .npmignore). Files whose names are those of
credentials (.env*, .npmrc, kubeconfig, *.pem, *.key, id_rsa …) are left out, unless --include names the file.
`

export function imageCommand(program: Command, { print }: CommandContext): void {
  program
    .command('image')
    .description('make an image of the functions of a project, without a container engine')
    .argument('[folder]', 'of the project', '.')
    .option('--push <reference>', 'store it in a registry, e.g. registry.example.com/team/my-operator:1')
    .option('--output <file>', 'store it as an OCI archive')
    .option(
      '--base <reference>',
      'with Node.js, by digest; or an OCI layout or archive (default: distroless, Node.js 24)',
    )
    .option('--include <path>', 'of the project, that the functions need; may be repeated (default: src)', collect, [])
    .option('--add <file:path>', 'another file, e.g. bin/helm-{arch}:/usr/local/bin/helm; may be repeated', collect, [])
    .option('--platform <list>', 'with commas between', 'linux/amd64,linux/arm64')
    .option('--start <arguments>', 'of fairlead, where a pod gives none, e.g. "serve -f src/index.ts"')
    .option('--bundle', 'the folder is a bundle for OLM, by generate bundle: its files alone, without a base', false)
    .option('--list', 'print the paths of all files that are packed, and make nothing', false)
    .option('--plain-http', 'talk to registries without TLS; those of this machine are talked to so anyway', false)
    .addHelpText('after', EPILOGUE)
    .action(async (folder: string, options: ImageCommandOptions) => {
      const { image } = await import('../commands/image.ts')
      await image(folder, options, print)
    })
}

const DIFF_HELP = `
Exit codes: 0 nothing would change, 1 something would change, 5 a run would fail or the schema refuses an object.
In a pipeline:
  fairlead diff -f website.ts --all -o json > diff.json || test $? = 1`

/** `fairlead diff -f website.ts --all` */
export function diffCommand(program: Command, context: CommandContext): void {
  program
    .command('diff')
    .description('what a new version of functions would change, over all objects of the cluster')
    .argument('[objects...]', 'names of objects; left out: those that --all, -n or -l select')
    .option('--all', 'all objects of all namespaces')
    .option('-n, --namespace <name>', 'of the objects', objectName)
    .option('-l, --selector <labels>', "of the objects, e.g. 'tier=web'")
    .option('--reconciler <name>', 'one of the functions of the file', objectName)
    .option('--concurrency <number>', 'dry runs at a time', whole(1, 64), 8)
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(outputOption('text', 'json'))
    .addHelpText('after', DIFF_HELP)
    .action(async (names: string[], options: DiffOptions) => {
      const { printDiff } = await import('../commands/diff.ts')
      await printDiff(names, options, context)
    })
}

const PUBLISH_HELP = `
Publishes the event that the bridge would publish:
  fairlead publish at example-at                           the object in the cluster, into EVENTS
  fairlead publish pod web-0 --to http://localhost:8080    … to a function, or whatever takes CloudEvents
  fairlead publish -f at.yaml --to nats:trial.ats          a manifest as the API server would have it
  fairlead publish -f at.yaml --offline --curl             the same as a command, without any server`

export function publishCommand(program: Command, context: CommandContext): void {
  program
    .command('publish')
    .description('the event that the bridge would publish of an object, to NATS or over HTTP')
    .argument('[kind]', 'as kubectl takes it')
    .argument('[name]', 'of the object')
    .option('-f, --file <file>', 'YAML or JSON instead of an object in the cluster; - is standard input')
    .option('-n, --namespace <name>', 'of the object (default: that of the file, else default)')
    .option('--to <target>', 'http://…, https://… or nats:SUBJECT (default: EVENTS)', target)
    .addOption(
      new Option(
        '--type <verb>',
        'what happened to it (default: added if it has not changed since its creation)',
      ).choices(['added', 'modified', 'deleted']),
    )
    .addOption(modeOption())
    .addOption(new Option('--dry-run', 'print the event instead').conflicts('curl'))
    .option('--curl', 'print a curl command instead')
    .option('--offline', 'ask no API server: guess the resource of a kind, make uid and version up')
    .addHelpText('after', PUBLISH_HELP)
    .action(async (kind: string | undefined, name: string | undefined, options: PublishOptions) => {
      const { publish } = await import('../commands/publish.ts')
      await publish(kind, name, options, context)
    })
}
