import type { Command } from 'commander'
import type { CrdsOptions, KnativeOfOptions, ManifestsOptions, RbacOptions } from '../actions/generate.ts'
import type { BundleCommandOptions } from '../actions/generate-bundle.ts'
import type { ChartOptions } from '../actions/generate-chart.ts'
import {
  builtinOption,
  type CommandContext,
  collect,
  functionOption,
  namespacesOption,
  objectName,
  streamPrefixes,
} from '../options.ts'

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
      const { generateCrds } = await import('../actions/generate.ts')
      print(await generateCrds(options))
    })

  generate
    .command('rbac')
    .description('what the functions may do, each with an account of its own, and bridge and dispatcher for them')
    .addOption(functionOption())
    .addOption(builtinOption())
    .addOption(namespacesOption())
    .option('--no-platform', 'without what bridge and dispatcher need whatever the functions')
    .action(async (options: RbacOptions) => {
      const { generateRbac } = await import('../actions/generate.ts')
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
      const { generateManifests } = await import('../actions/generate.ts')
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
      const { generateKnative } = await import('../actions/generate.ts')
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
      const { generateChart } = await import('../actions/generate-chart.ts')
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
    .option('--channels <list>', 'with commas between; the first is the default', 'stable')
    .option('--category <name>', 'of catalogs', 'Integration & Delivery')
    .option('--capabilities <level>', 'of the operator, as catalogs know them', 'Basic Install')
    .option('--icon <file>', 'SVG, PNG, JPEG or GIF')
    .option('--replaces <version>', 'of the bundle that this one is an upgrade of')
    .action(async (options: BundleCommandOptions) => {
      const { generateBundle } = await import('../actions/generate-bundle.ts')
      for (const file of await generateBundle(options)) print(file)
    })
}
