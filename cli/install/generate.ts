import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { charts, generatedFiles } from './files.ts'

// Writes the generated files that are committed, and the charts to build/chart. With --check it only compares the former,
// with --charts it only writes the charts, to another folder.
const ROOT = join(import.meta.dirname, '../..')

/** Returns the generated files that are out of date, and definitions that are no longer generated. */
async function staleFiles(expected: Map<string, string>): Promise<string[]> {
  const paths = new Set([...expected.keys(), ...(await manifestsIn('crds'))])
  const contents = await Promise.all([...paths].map(async (path) => [path, await contentOf(path)] as const))
  return contents.filter(([path, content]) => content !== expected.get(path)).map(([path]) => path)
}

async function manifestsIn(folder: string): Promise<string[]> {
  const names = (await readdir(join(ROOT, folder)).catch(undefinedIfMissing)) ?? []
  return names.filter((name) => name.endsWith('.yaml')).map((name) => `${folder}/${name}`)
}

const contentOf = (path: string): Promise<string | undefined> =>
  readFile(join(ROOT, path), 'utf8').catch(undefinedIfMissing)

function undefinedIfMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error
}

async function write(path: string, content: string | undefined): Promise<void> {
  if (content === undefined) return rm(join(ROOT, path))
  return writeInto(join(ROOT, path), content)
}

async function writeInto(file: string, content: string): Promise<void> {
  await mkdir(dirname(file), { recursive: true })
  await writeFile(file, content)
}

/** Replaces the folder. */
async function writeCharts(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true })
  for (const [path, text] of await charts()) await writeInto(join(folder, path), text)
}

const { check, charts: to } = parseArgs({
  options: { check: { type: 'boolean', default: false }, charts: { type: 'string' } },
}).values
const expected = await generatedFiles()
const stale = to === undefined ? await staleFiles(expected) : []

if (to !== undefined) {
  await writeCharts(to)
} else if (check) {
  for (const path of stale) console.error(`${path} is stale: run npm run generate`)
  if (stale.length > 0) process.exitCode = 1
} else {
  for (const path of stale) await write(path, expected.get(path))
  await writeCharts(join(ROOT, 'build/chart'))
  console.log(stale.length === 0 ? 'all generated files are fresh' : `wrote ${stale.join(', ')}`)
}
