import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** Packs a built package as `npm publish` would send it, and returns the path of the tarball in `to`. */
export async function pack(folder: string, to: string): Promise<string> {
  const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', to, folder], { maxBuffer: 2 ** 26 })
  const [{ filename } = { filename: '' }] = JSON.parse(stdout) as { filename: string }[]
  return join(to, filename)
}

/** Folders that no process of a cluster loads. */
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

/** The code of a built package without types, maps and tools: with it the next release shows that both serve side by side. */
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

/** `SHA256SUMS`, in the format of sha256sum, of all files of a folder. */
export async function writeDigests(folder: string): Promise<void> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name))
  const lines: string[] = []
  for (const file of files.sort())
    lines.push(
      `${createHash('sha256')
        .update(await readFile(file))
        .digest('hex')}  ${relative(folder, file)}\n`,
    )
  await writeFile(join(folder, 'SHA256SUMS'), lines.join(''))
}

/** An empty folder of that name. */
export async function emptied(folder: string): Promise<string> {
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  return folder
}
