import { join } from 'node:path'
import { Command, CommanderError } from 'commander'
import { buildCreatePackage, buildPackage, ROOT } from './build.ts'
import { prepare } from './prepare.ts'
import { publish } from './publish.ts'

const say = (line: string): void => console.log(line)

async function build(): Promise<{ folders: string[]; version: string }> {
  const [folder, create] = [join(ROOT, 'build/package'), join(ROOT, 'build/create-fairlead')]
  const manifest = await buildPackage(folder)
  await buildCreatePackage(folder, manifest, create)
  say(`fairlead ${manifest.version}: ${folder}`)
  say(`create-fairlead ${manifest.version}: ${create}`)
  return { folders: [folder, create], version: manifest.version }
}

const dryRun = ['--dry-run', 'print what would be changed or published, and do only the rest'] as const
const program = new Command('release').description('the npm packages: build them, prepare a release, publish it')
program
  .command('build', { isDefault: true })
  .description('build/package and build/create-fairlead')
  .action(async () => void (await build()))
program
  .command('prepare')
  .description('version, changelog, commit and tag of a release; pushes nothing')
  .argument('<version>', 'major, minor, patch, or three numbers')
  .option(...dryRun)
  .action((wanted: string, options: { dryRun?: boolean }) =>
    prepare({ wanted, dryRun: options.dryRun === true, say, today: new Date() }),
  )
program
  .command('publish')
  .description('publishes the commit that has the tag of its version')
  .option(...dryRun)
  .option('--no-provenance', 'without the statement of where it was built: npm makes one only in CI')
  .option('--registry <host/path>', 'where the image and the charts go; without it, only the packages are published')
  .action(async ({ dryRun = false, ...given }: { dryRun?: boolean; provenance: boolean; registry?: string }) =>
    publish({ ...(await build()), dryRun, ...given, say }),
  )
try {
  await program.exitOverride().parseAsync()
} catch (error) {
  if (!(error instanceof CommanderError)) console.error(`release: ${(error as Error).message}`)
  process.exitCode = error instanceof CommanderError ? error.exitCode : 1
}
