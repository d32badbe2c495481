import { type Command, InvalidArgumentError, Option } from 'commander'
import type { TriggerUser } from '#install'
import type { Selection } from '#process/functions'
import type {
  BundleCommandOptions,
  ChartOptions,
  CrdsOptions,
  KnativeOfOptions,
  ManifestsOptions,
  WebhookOptions,
} from '../commands/generate.ts'
import type { ImageCommandOptions } from '../commands/image.ts'
import type { InstallOptions } from '../commands/install.ts'
import type { UninstallCommandOptions } from '../commands/uninstall.ts'
import type { VersionsOptions } from '../commands/versions.ts'
import {
  adapterOption,
  builtinOption,
  type CommandContext,
  clusterUsersOption,
  functionOption,
  kindsOption,
  namespacesOption,
  objectName,
  outputOption,
  repeatable,
  revisionOption,
  streamPrefixes,
  whole,
} from '../options.ts'

/** Declares the commands that bring functions to a cluster. */
export function installCommands(program: Command, context: CommandContext): void {
  program.commandsGroup('Install:')
  installCommand(program, context)
  versionsCommand(program, context)
  uninstallCommand(program, context)
  generateCommands(program, context)
  imageCommand(program, context)
}

function installCommand(program: Command, context: CommandContext): void {
  program
    .command('install')
    .description('Apply the platform, and accounts, permissions, CRDs and Reconcilers of functions; idempotent')
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(adapterOption())
    .addOption(namespacesOption())
    .addOption(kindsOption())
    .addOption(outputOption('table', 'json'))
    .addOption(revisionOption())
    .option(
      '--url <url>',
      'URL of functions that are served over HTTP; {name} becomes the name of each function (default: functions run in dispatchers)',
    )
    .option('--force', 'Apply even if stored objects would lose fields or become invalid', false)
    .option(
      '--team',
      'Apply only functions within namespaces, with the permissions of a team of the chart (docs/deploy/teams.md)',
      false,
    )
    .option(
      '--nats-certificates',
      'Apply also the Secrets that deploy/fairlead needs: certificates of the clients of NATS',
      false,
    )
    .option('--check', 'Apply nothing; fail if stored objects would lose fields or become invalid', false)
    .option('--only-nats-certificates', 'Apply only these Secrets', false)
    .addOption(clusterUsersOption())
    .option(
      '--only-conversions',
      'Apply only the certificates of the webhook; then, if the API server reaches it, the CRDs with conversions of these functions',
      false,
    )
    .action(async (options: InstallOptions) => {
      const { installFunctions } = await import('../commands/install.ts')
      await installFunctions(options, context)
    })
}

function versionsCommand(program: Command, context: CommandContext): void {
  program
    .command('versions')
    .argument('[resource]', 'Resource of the functions, e.g. websites or websites.example.com', objectName)
    .description('Show the versions of resources in the cluster, and the next step to those that functions declare')
    .addOption(functionOption())
    .addOption(builtinOption())
    .option('--next', 'Take the next step', false)
    .option('--back', 'Store in the version of before again, until the migration has ended', false)
    .addOption(outputOption('table', 'json'))
    .action(async (resource: string | undefined, options: VersionsOptions) => {
      const { versions } = await import('../commands/versions.ts')
      await versions(resource, options, context)
    })
}

function uninstallCommand(program: Command, context: CommandContext): void {
  program
    .command('uninstall')
    .description('Remove what install has applied; fails while objects have finalizers of the functions')
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(adapterOption())
    .addOption(outputOption('table', 'json'))
    .option('--reconciler <name>', 'Name of one function (default: all)', objectName)
    .option('--dry-run', 'Remove nothing; show what would be removed, what would stay, and why', false)
    .option('--crds', 'Remove also CRDs without stored objects', false)
    .option('--team', 'Remove what install --team has applied', false)
    .option(
      '--wait <seconds>',
      'Seconds to wait until no object has finalizers of the functions (default: 0)',
      whole(1, 86_400),
    )
    .option(
      '--release-finalizers',
      'Remove the finalizers from objects; what the functions would have cleaned up stays',
      false,
    )
    .action(async (options: UninstallCommandOptions) => {
      const { uninstallFunctions } = await import('../commands/uninstall.ts')
      await uninstallFunctions(options, context)
    })
}

/** Parses `USER=RECONCILER,RECONCILER`. */
function triggerUser(text: string, before: TriggerUser[]): TriggerUser[] {
  const [, name, list = ''] = /^([a-z0-9-]{1,40})=([a-z0-9.,-]+)$/.exec(text) ?? []
  if (name === undefined) throw new InvalidArgumentError('give a name and Reconcilers: billing=orders,invoices.')
  return [...before, { name, reconcilers: list.split(',').map(objectName) }]
}

function generateCommands(program: Command, { config, print }: CommandContext): void {
  const shard = async () => (await config()).FAIRLEAD_SHARD
  const generate = program
    .command('generate')
    .description('Generate manifests of functions: CRDs, permissions, charts, bundles')

  generate
    .command('crds')
    .description('Print the CustomResourceDefinitions of the functions')
    .addOption(functionOption())
    .addOption(builtinOption())
    .option('--platform', 'Include the CustomResourceDefinition of Reconciler', false)
    .addOption(
      repeatable(
        '--compatible-with <file>',
        'File with the earlier definitions; fails if stored objects would lose fields or become invalid',
      ),
    )
    .addOption(
      repeatable('--new <name>', 'Name of a definition that none of these files has yet, e.g. shops.example.com'),
    )
    .action(async (options: CrdsOptions) => {
      const { generateCrds } = await import('../commands/generate.ts')
      print(await generateCrds(options))
    })

  generate
    .command('rbac')
    .description('Print the accounts and permissions of functions, bridge and dispatcher')
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(namespacesOption())
    .addOption(kindsOption())
    .action(async (options: Selection) => {
      const { generateRbac } = await import('../commands/generate.ts')
      print(await generateRbac(options))
    })

  generate
    .command('manifests')
    .description('Write what kubectl apply -k needs; fails if stored objects would lose fields or become invalid')
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(namespacesOption())
    .addOption(kindsOption())
    .requiredOption('--to <folder>', 'Folder to write to; its crds.yaml has the earlier definitions')
    .option('--force', 'Write even if stored objects would lose fields or become invalid', false)
    .action(async (options: ManifestsOptions) => {
      const { generateManifests } = await import('../commands/generate.ts')
      for (const file of await generateManifests(options, await shard(), console.error)) print(file)
    })

  generate
    .command('webhook')
    .description('Print the Deployment of the webhook that converts objects, and the CronJob of its certificates')
    .addOption(functionOption())
    .addOption(builtinOption())
    .requiredOption('--image <image>', 'Image with the functions, and with the command fairlead as entrypoint')
    .option('--module <path>', 'Path of the functions in the image (default: that of -f)')
    .action(async (options: WebhookOptions) => {
      const { generateWebhook } = await import('../commands/generate.ts')
      print(await generateWebhook(options))
    })

  generate
    .command('knative')
    .description('Print Knative Services of the functions, and Reconcilers that call them')
    .argument('[name]', 'Name of the function (default: all)')
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(kindsOption())
    .requiredOption('--image <image>', 'Image with the functions, and with the command fairlead as entrypoint')
    .option('-n, --namespace <name>', 'Namespace of the Services', objectName, 'fairlead-functions')
    .option('--module <path>', 'Path of the functions in the image (default: that of -f)')
    .action(async (name: string | undefined, options: KnativeOfOptions) => {
      const { generateKnative } = await import('../commands/generate.ts')
      print(await generateKnative(name, options, await shard()))
    })

  generate
    .command('nats-users')
    .description('Print users.conf of NATS with the permissions for shards and prefixes')
    .argument('[name...]', 'Values of FAIRLEAD_SHARD or FAIRLEAD_PREFIX; PREFIX-SHARD if both are set', streamPrefixes)
    .addOption(
      new Option(
        '--trigger <user=reconcilers>',
        'Add a user who may cause runs of these Reconcilers: billing=orders,invoices; may be repeated',
      )
        .argParser(triggerUser)
        .default([] as TriggerUser[], 'none'),
    )
    .addOption(clusterUsersOption())
    .action(async (names: string[], { trigger, clusterUsers }: { trigger: TriggerUser[]; clusterUsers?: string[] }) => {
      const { natsUsers } = await import('#install')
      print((await natsUsers(names, trigger, clusterUsers)).trimEnd())
    })

  generate
    .command('chart')
    .description('Write a Helm chart of the functions: CRDs, permissions and Reconcilers')
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(namespacesOption())
    .addOption(kindsOption())
    .requiredOption('--to <folder>', 'Folder to write to; other files in it are kept')
    .requiredOption('--image <image>', 'Image with the functions; it checks the CRDs before each upgrade')
    .option('--module <path>', 'Path of the functions in the image (default: that of -f)')
    .option('--name <name>', 'Name of the chart (default: name in package.json, or functions)', objectName)
    .option('--chart-version <version>', 'Version of the chart (default: version in package.json, or 0.1.0)')
    .action(async (options: ChartOptions) => {
      const { generateChart } = await import('../commands/generate.ts')
      for (const file of await generateChart(options, await shard())) print(file)
    })

  generate
    .command('bundle')
    .description('Write a bundle for the Operator Lifecycle Manager (OLM), which runs the functions over HTTP')
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(kindsOption())
    .requiredOption('--to <folder>', 'Folder to write to; manifests and metadata are replaced, other files are kept')
    .requiredOption('--image <image>', 'Image with the functions, and with the command fairlead as entrypoint')
    .option('--module <path>', 'Path of the functions in the image (default: that of -f)')
    .option('--package <file>', 'File with name, version, description, author and links', 'package.json')
    .addOption(repeatable('--examples <file>', 'File or folder with example objects of each kind'))
    .option('-n, --namespace <name>', 'Namespace that OLM installs into', objectName, 'fairlead-functions')
    .option('--icon <file>', 'Icon file: SVG, PNG, JPEG or GIF')
    .option('--replaces <version>', 'Version of the bundle that this one upgrades')
    .action(async (options: BundleCommandOptions) => {
      const { generateBundle } = await import('../commands/generate.ts')
      for (const file of await generateBundle(options, await shard())) print(file)
    })
}

const EPILOGUE = `
Prints only the reference of the image, by digest. Uses the credentials of
docker login and podman login. Runs nothing: adds package.json, the installed
dependencies and the functions to the base image. Packs linked packages as
npm pack does (files, .npmignore). Leaves out files with names of credentials
(.env*, .npmrc, kubeconfig, *.pem, *.key, id_rsa …), if --include does not name
them.
`

function imageCommand(program: Command, { print }: CommandContext): void {
  program
    .command('image')
    .description('Build an image of the functions of a project, without a container engine')
    .argument('[folder]', 'Folder of the project', '.')
    .option('--push <reference>', 'Reference to push to, e.g. registry.example.com/team/my-operator:1')
    .option('--output <file>', 'OCI archive to write')
    .option(
      '--base <reference>',
      'Base image with Node.js: a reference by digest, or an OCI layout or archive (default: distroless, Node.js 24)',
    )
    .addOption(repeatable('--include <path>', 'File or folder of the project to pack', 'src'))
    .addOption(repeatable('--add <file:path>', 'Additional file, e.g. bin/helm-{arch}:/usr/local/bin/helm'))
    .option('--platform <list>', 'Platforms, separated by commas', 'linux/amd64,linux/arm64')
    .option('--start <arguments>', 'Default arguments of the image (CMD), e.g. "serve -f src/index.ts"')
    .option('--bundle', 'Pack only the files of a bundle for OLM (generate bundle), without a base', false)
    .option('--list', 'Print the paths of all packed files; build nothing', false)
    .option('--plain-http', 'Use HTTP for registries; registries on this machine always use it', false)
    .addHelpText('after', EPILOGUE)
    .action(async (folder: string, options: ImageCommandOptions) => {
      const { image } = await import('../commands/image.ts')
      await image(folder, options, print)
    })
}
