import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { generatedFiles } from './files.ts'

const ROOT = join(import.meta.dirname, '../..')

/** Folders that contain only generated manifests. */
const GENERATED = ['crds', 'deploy/rbac', 'deploy/chart/fairlead-functions/templates']

/** Returns the generated files that are out of date, and manifests that are no longer generated. */
async function staleFiles(expected: Map<string, string>): Promise<string[]> {
  const present = (await Promise.all(GENERATED.map(manifestsIn))).flat()
  const paths = new Set([...expected.keys(), ...present])
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
  await mkdir(dirname(join(ROOT, path)), { recursive: true })
  await writeFile(join(ROOT, path), content)
}

const expected = await generatedFiles()
const stale = await staleFiles(expected)

if (process.argv.includes('--check')) {
  for (const path of stale) console.error(`${path} is stale: run npm run generate`)
  if (stale.length > 0) process.exitCode = 1
} else {
  for (const path of stale) await write(path, expected.get(path))
  console.log(stale.length === 0 ? 'all generated files are fresh' : `wrote ${stale.join(', ')}`)
}
