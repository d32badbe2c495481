import { join } from 'node:path'
import { pack, writeDigests } from './archive.ts'
import { ROOT } from './build.ts'
import { packCharts } from './charts.ts'
import { emptied } from './folder.ts'
import { follow, outputOf, requireClean, running, type Step } from './steps.ts'

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
  const charts = await packCharts(version, join(release, 'charts'))
  const steps: Step[] = [
    { does: `${release}/SHA256SUMS`, changes: false, act: () => writeDigests(release) },
    ...tarballs.map((tarball) =>
      running('npm', 'publish', '--access', 'public', ...(provenance ? ['--provenance'] : []), tarball),
    ),
    ...(registry === undefined ? [] : imageAndCharts(registry, version, tarballs[0] ?? '', charts)),
  ]
  await follow(steps, { dryRun, say })
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
