import { type Command, Option } from 'commander'
import type { GetOptions, ReplayOptions } from '../actions/events.ts'
import { FORMATS, modeOption, momentFrom, target, verbsFrom } from '../events/options.ts'
import type { CommandContext } from '../options.ts'

const HELP = `
KIND is a resource that a bridge watches: pods, pod, Pod, po, ats.cnat.programming-kubernetes.info, or several with
commas between. Short names are known of Kubernetes' own resources only. EVENTS keeps the last event of each object, and deletions for an hour; docs/events.md has details.`

type GetFlags = Omit<GetOptions, 'kinds' | 'name'>
type ReplayFlags = Omit<ReplayOptions, 'kinds' | 'name'>

export function eventsCommands(program: Command, context: CommandContext): void {
  const events = program.command('events').description('the changes of the cluster, as CloudEvents in NATS')
  const selecting = (command: Command) =>
    command
      .argument('[kind]', 'only of these resources', (text: string) => text.split(','))
      .argument('[name]', 'only of this object')
      .option('-n, --namespace <name>', 'only of this namespace')
      .addOption(new Option('-A, --all-namespaces', 'of all of them, as without -n').conflicts('namespace'))
      .option('--type <verbs>', 'of added, modified, deleted, moved; with commas between', verbsFrom, [] as string[])
      .option('--since <time>', 'stored then or later: 10m, 2h, or a time', (text) => momentFrom(text))
      .addHelpText('after', HELP)
  const format = () => new Option('-o, --output <format>', 'one event a line').choices(FORMATS).default('text')

  selecting(events.command('tail'))
    .description('changes as they come')
    .addOption(format())
    .action(async (kinds: string[] = [], name: string | undefined, options: GetFlags) => {
      const { tail } = await import('../actions/events.ts')
      await tail({ ...options, kinds, name }, context)
    })

  selecting(events.command('get'))
    .description('the last event of each object')
    .addOption(format())
    .addHelpText(
      'after',
      '\nIf nothing is found, a message is on standard error; the exit code is 1 if a name was given, else 0.',
    )
    .action(async (kinds: string[] = [], name: string | undefined, options: GetFlags) => {
      const { get } = await import('../actions/events.ts')
      await get({ ...options, kinds, name }, context)
    })

  selecting(events.command('replay'))
    .description('send the last event of each object somewhere, oldest first')
    .requiredOption('--to <target>', 'http://…, https://… or nats:SUBJECT', target)
    .addOption(modeOption())
    .option('--follow', 'then every later one, as it comes')
    .action(async (kinds: string[] = [], name: string | undefined, options: ReplayFlags) => {
      const { replay } = await import('../actions/events.ts')
      await replay({ ...options, kinds, name }, context)
    })
}
