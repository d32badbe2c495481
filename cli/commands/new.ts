import { type Command, Option } from 'commander'
import type { NewKindOptions, NewOptions } from '../actions/new.ts'
import type { CommandContext } from '../options.ts'

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
      const { newProject } = await import('../actions/new.ts')
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
      const { newKind } = await import('../actions/new.ts')
      await newKind(kind, own.optsWithGlobals<NewKindOptions>(), context)
    })
}
