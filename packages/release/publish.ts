import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { entriesFrom, tar } from '#image'
import { funcPack } from '#scaffold'
import { emptied, filesIn, ROOT } from './build.ts'

export interface Publication {
  /** The folders of the built packages `fairlead` and `create-fairlead`. */
  folders: string[]
  version: string
  dryRun: boolean
  /** Whether npm signs the provenance. This requires the identity of a CI job. */
  provenance: boolean
  /** The destination of the image and the charts: `HOST/PATH`. */
  registry?: string
  say: (line: string) => void
  /** The folder in which the published files are collected. */
  to?: string
}

/**
 * Collects the files of a release in one folder, and publishes them. A dry run makes the files and publishes nothing.
 */
export async function publish(publication: Publication): Promise<void> {
  const { folders, version, dryRun, provenance, registry, say, to } = publication
  await requireClean({ dryRun, say })
  const tags = (await outputOf('git', 'tag', '--points-at', 'HEAD')).split('\n')
  if (!tags.includes(`v${version}`)) {
    const message = `the commit does not have the tag v${version}: npm run release -- prepare makes it`
    if (!dryRun) throw new Error(message)
    say(`a release would be refused: ${message}`)
  }
  const release = await emptied(to ?? join(ROOT, 'build/release'))
  const tarballs: string[] = []
  for (const folder of folders) tarballs.push(await pack(folder, release))
  const charts = await packCharts(folders[0] ?? '', version, join(release, 'charts'))
  const steps: Step[] = [
    { does: `${release}/SHA256SUMS`, changes: false, act: () => writeDigests(release) },
    ...tarballs.map((tarball) =>
      running('npm', 'publish', '--access', 'public', ...(provenance ? ['--provenance'] : []), tarball),
    ),
    ...languagePack(await buildFuncPack(join(ROOT, 'build/func'), version), version),
    ...(registry === undefined ? [] : imageAndCharts(registry, version, tarballs[0] ?? '', charts)),
  ]
  await follow(steps, { dryRun, say })
}

/** Builds the repository of templates that Knative's `func` reads, in a folder, which is replaced. */
export async function buildFuncPack(folder: string, version: string): Promise<string> {
  await emptied(folder)
  const files = [['manifest.yaml', `name: fairlead\nversion: ${version}\n`] as const, ...(await funcPack(version))]
  for (const [path, text] of files) {
    await mkdir(dirname(join(folder, path)), { recursive: true })
    await writeFile(join(folder, path), text)
  }
  return folder
}

/** `func` clones a branch of this repository, which has only the language pack, in one commit without history. */
function languagePack(folder: string, version: string): Step[] {
  const author = ['-c', 'user.name=fairlead', '-c', 'user.email=fairlead@localhost']
  return [
    running('git', 'init', '--quiet', folder),
    running('git', '-C', folder, 'add', '--all'),
    running('git', '-C', folder, ...author, 'commit', '--quiet', '--message', `fairlead ${version}`),
    running('git', 'fetch', '--quiet', folder, 'HEAD'),
    running('git', 'push', '--force', 'origin', 'FETCH_HEAD:refs/heads/func'),
  ]
}

/** The image contains the package as npm installs it. */
function imageAndCharts(registry: string, version: string, tarball: string, charts: string[]): Step[] {
  const project = join(ROOT, 'build/image')
  return [
    running('npm', 'install', '--prefix', project, '--ignore-scripts', tarball),
    running(process.execPath, 'cli/bin.js', ...imageOf(project), '--push', `${registry}/fairlead:${version}`),
    ...charts.map((chart) => running('helm', 'push', chart, `oci://${registry}/charts`)),
  ]
}

const imageOf = (project: string): string[] => ['image', project, '--include', 'package.json']

/** Packs the charts of a built package as `helm package` does, into `to`, and returns the paths of the archives. */
async function packCharts(built: string, version: string, to: string): Promise<string[]> {
  const archives: string[] = []
  const charts = join(built, 'deploy/chart')
  await mkdir(to, { recursive: true })
  for (const name of (await readdir(charts)).sort()) {
    // Helm takes the folder of a chart from the first part of the paths.
    const entries = (await entriesFrom(join(charts, name), name)).filter(({ type }) => type === 'file')
    const sorted = entries.toSorted((one, other) => (one.path < other.path ? -1 : 1))
    const archive = join(to, `${name}-${version}.tgz`)
    await writeFile(archive, gzipSync(await tar(sorted), { level: 9 }))
    archives.push(archive)
  }
  return archives
}

/** Packs a built package as `npm publish` would send it, and returns the path of the tarball in `to`. */
export async function pack(folder: string, to: string): Promise<string> {
  const printed = await outputOf('npm', 'pack', '--json', '--pack-destination', to, folder)
  const [{ filename } = { filename: '' }] = JSON.parse(printed) as { filename: string }[]
  return join(to, filename)
}

/** Folders that processes in a cluster do not load. */
const LEFT_OUT = [
  'src',
  'packages/scaffold',
  'sdk/testing',
  'packages/lab/go',
  'packages/lab/node',
  'deploy/images',
  'docs',
  'README.md',
  'CHANGELOG.md',
]

/**
 * Packs the code of a built package without types, maps and tools. The tests of the next release run it beside the new
 * version.
 */
export async function packForTests(folder: string, to: string): Promise<string> {
  const copy = join(to, 'code')
  await cp(folder, copy, { recursive: true, filter: (path) => !/\.(map|d\.ts)$/.test(path) })
  for (const path of LEFT_OUT) await rm(join(copy, path), { recursive: true, force: true })
  try {
    return await pack(copy, to)
  } finally {
    await rm(copy, { recursive: true })
  }
}

/** Writes `SHA256SUMS` for all files of a folder, in the format of sha256sum. */
async function writeDigests(folder: string): Promise<void> {
  const lines: string[] = []
  for (const name of (await filesIn(folder)).sort()) {
    const digest = createHash('sha256').update(await readFile(join(folder, name)))
    lines.push(`${digest.digest('hex')}  ${name}\n`)
  }
  await writeFile(join(folder, 'SHA256SUMS'), lines.join(''))
}

const execute = promisify(execFile)

export interface Step {
  does: string
  /** Whether the step changes the checkout, or publishes. A dry run prints such a step without running it. */
  changes: boolean
  act: () => Promise<unknown>
}

/** Returns a step that changes something: a program with its arguments, run in the checkout. */
export const running = (program: string, ...args: string[]): Step => ({
  does: [program, ...args.map((arg) => (/\s/.test(arg) ? JSON.stringify(arg) : arg))].join(' '),
  changes: true,
  act: () => outputOf(program, ...args),
})

/** Returns the standard output of a program. Rejects with its error output. */
export async function outputOf(program: string, ...args: string[]): Promise<string> {
  try {
    return (await execute(program, args, { cwd: ROOT, maxBuffer: 2 ** 26 })).stdout
  } catch (error) {
    const { stderr = '', message } = error as Error & { stderr?: string }
    throw new Error(`${program} ${args.join(' ')} failed: ${stderr.trim() || message}`, { cause: error })
  }
}

/** Runs the steps in order, and prints each one before it begins. */
export async function follow(
  steps: readonly Step[],
  { dryRun, say }: { dryRun: boolean; say: (line: string) => void },
): Promise<void> {
  for (const { does, changes, act } of steps) {
    say(changes && dryRun ? `would: ${does}` : does)
    if (!changes || !dryRun) await act()
  }
}

/** Rejects uncommitted changes, since a release consists of committed files. A dry run accepts them. */
export async function requireClean({ dryRun, say }: { dryRun: boolean; say: (line: string) => void }): Promise<void> {
  const changed = (await outputOf('git', 'status', '--porcelain')).trim()
  if (changed === '') return
  const message = `the checkout has changes that are not committed:\n${changed}`
  if (!dryRun) throw new Error(`${message}\ncommit or remove them: a release is made of commits`)
  say(`a release would be refused: ${message}`)
}
