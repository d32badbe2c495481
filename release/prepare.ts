import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { packForTests } from './archive.ts'
import { ROOT } from './build.ts'
import { releaseChangelog } from './changelog.ts'
import { emptied } from './folder.ts'
import { follow, outputOf, requireClean, running, type Step } from './steps.ts'
import { nextVersion } from './version.ts'

/** The folder of the tarball that the tests of the next release run beside the new version. */
const KEPT = 'test/release/previous'

export interface Preparation {
  /** `major`, `minor`, `patch`, or a version of three numbers. */
  wanted: string
  dryRun: boolean
  say: (line: string) => void
  today: Date
}

/** Makes the commit and the tag of a release in this checkout. Pushes and publishes nothing. */
export async function prepare({ wanted, dryRun, say, today }: Preparation): Promise<void> {
  const { version: current } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as { version: string }
  const version = nextVersion(current, wanted)
  const changelog = join(ROOT, 'CHANGELOG.md')
  const date = today.toISOString().slice(0, 10)
  const { text, changes } = releaseChangelog(await readFile(changelog, 'utf8'), version, date)
  await requireClean({ dryRun, say })
  const tag = `v${version}`
  if ((await outputOf('git', 'tag', '--list', tag)).trim() !== '')
    throw new Error(`the tag ${tag} exists: choose a higher version, or remove the tag if it was never pushed`)
  say(`fairlead ${current} -> ${version}\n\n${changes}\n`)
  const steps: Step[] = [
    running('npm', 'version', version, '--no-git-tag-version'),
    { does: `CHANGELOG.md: ${version} (${date})`, changes: true, act: () => writeFile(changelog, text) },
    {
      does: `${KEPT}: the code of ${version}`,
      changes: true,
      async act() {
        // Runs in another process, since this one has loaded the earlier version.
        await outputOf('npm', 'run', 'build')
        await packForTests(join(ROOT, 'build/package'), await emptied(join(ROOT, KEPT)))
      },
    },
    running('npm', 'run', 'generate'),
    running('git', 'add', '--all'),
    running('git', 'commit', '--message', `Release ${version}`),
    running('git', 'tag', '--annotate', tag, '--message', `fairlead ${version}`),
  ]
  await follow(steps, { dryRun, say })
  say(`Push it, and the package is published from there: git push origin HEAD ${tag}`)
}
