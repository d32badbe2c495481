import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { entriesFrom, tar } from '#image'
import { ROOT } from './build.ts'

const CHARTS = join(ROOT, 'deploy/chart')

/** Packs the charts as `helm package` does, into `to`, and returns the paths of the archives. */
export async function packCharts(version: string, to: string): Promise<string[]> {
  const archives: string[] = []
  await mkdir(to, { recursive: true })
  for (const name of (await readdir(CHARTS)).sort()) {
    // Helm takes the folder of a chart from the first part of the paths.
    const entries = (await entriesFrom(join(CHARTS, name), name)).filter(({ type }) => type === 'file')
    const sorted = entries.toSorted((one, other) => (one.path < other.path ? -1 : 1))
    const archive = join(to, `${name}-${version}.tgz`)
    await writeFile(archive, gzipSync(tar(sorted), { level: 9 }))
    archives.push(archive)
  }
  return archives
}
