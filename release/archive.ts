import { createHash } from 'node:crypto'
import { cp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { filesIn } from './folder.ts'
import { outputOf } from './steps.ts'

/** Packs a built package as `npm publish` would send it, and returns the path of the tarball in `to`. */
export async function pack(folder: string, to: string): Promise<string> {
  const printed = await outputOf('npm', 'pack', '--json', '--pack-destination', to, folder)
  const [{ filename } = { filename: '' }] = JSON.parse(printed) as { filename: string }[]
  return join(to, filename)
}

/** Folders that processes in a cluster do not load. */
const LEFT_OUT = [
  'src',
  'kubernetes-models',
  'scaffold',
  'testing',
  'local/go',
  'local/node',
  'deploy/images',
  'README.md',
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
export async function writeDigests(folder: string): Promise<void> {
  const lines: string[] = []
  for (const name of (await filesIn(folder)).sort()) {
    const digest = createHash('sha256').update(await readFile(join(folder, name)))
    lines.push(`${digest.digest('hex')}  ${name}\n`)
  }
  await writeFile(join(folder, 'SHA256SUMS'), lines.join(''))
}
