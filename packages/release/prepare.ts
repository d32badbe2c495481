import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { emptied, ROOT } from './build.ts'
import { follow, outputOf, packForTests, requireClean, running, type Step } from './publish.ts'

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
    running(
      'npm',
      'version',
      version,
      '--no-git-tag-version',
      '--workspace=create-fairlead',
      '--include-workspace-root',
    ),
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

const UNRELEASED = '## Unreleased\n'

/**
 * Returns the changelog with the unreleased section under `version`, and the text of that section. Throws an Error if
 * the section is empty.
 */
export function releaseChangelog(text: string, version: string, date: string): { text: string; changes: string } {
  const begins = text.indexOf(UNRELEASED)
  if (begins < 0) throw new Error('CHANGELOG.md has no heading "## Unreleased": add it above the releases')
  const after = begins + UNRELEASED.length
  const next = text.indexOf('\n## ', after)
  const changes = text.slice(after, next < 0 ? undefined : next).trim()
  if (changes === '') throw new Error(`CHANGELOG.md has nothing under "Unreleased": write the changes of ${version}`)
  const released = `${UNRELEASED}\n## ${version} (${date})\n\n${changes}\n`
  return { text: text.slice(0, begins) + released + (next < 0 ? '' : text.slice(next)), changes }
}

/** The parts of a version that can be raised. */
const PARTS = ['major', 'minor', 'patch'] as const

const numbersOf = (version: string): number[] | undefined =>
  /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$/.exec(version)?.slice(1).map(Number)

/** The version after `current`: `wanted` is `major`, `minor`, `patch`, or three numbers. Throws unless it is higher. */
export function nextVersion(current: string, wanted: string): string {
  const now = numbersOf(current)
  if (now === undefined) throw new Error(`package.json has the version ${current}: write three numbers, such as 0.1.0`)
  const index = PARTS.indexOf(wanted as (typeof PARTS)[number])
  if (index >= 0) return now.map((number, at) => (at < index ? number : at === index ? number + 1 : 0)).join('.')
  const next = numbersOf(wanted)
  if (next === undefined)
    throw new Error(`${wanted} is not a version: give major, minor, patch or three numbers, such as 0.2.0`)
  if (compareVersions(next, now) <= 0)
    throw new Error(`${wanted} is not higher than ${current}: a version is released once`)
  return wanted
}

/** Returns a number below 0 if the first version is lower. */
function compareVersions(one: readonly number[], other: readonly number[]): number {
  const differences = one.map((number, at) => number - (other[at] ?? 0))
  return differences.find((difference) => difference !== 0) ?? 0
}
