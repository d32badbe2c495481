import { type Command, Option } from 'commander'
import type { PublishOptions } from '../actions/publish.ts'
import { modeOption, target } from '../events/options.ts'
import type { CommandContext } from '../options.ts'

const HELP = `
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
    .addHelpText('after', HELP)
    .action(async (kind: string | undefined, name: string | undefined, options: PublishOptions) => {
      const { publish } = await import('../actions/publish.ts')
      await publish(kind, name, options, context)
    })
}
