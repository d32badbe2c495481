import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { generatedFiles } from './files.ts'

const ROOT = join(import.meta.dirname, '..')

/** Generated files that differ from what the code says, and manifests in crds/ that it no longer generates. */
async function staleFiles(expected: Map<string, string>): Promise<string[]> {
  const present = (await readdir(join(ROOT, 'crds'))).filter((name) => name.endsWith('.yaml'))
  const paths = new Set([...expected.keys(), ...present.map((name) => `crds/${name}`)])
  const contents = await Promise.all([...paths].map(async (path) => [path, await contentOf(path)] as const))
  return contents.filter(([path, content]) => content !== expected.get(path)).map(([path]) => path)
}

const contentOf = (path: string): Promise<string | undefined> =>
  readFile(join(ROOT, path), 'utf8').catch(undefinedIfMissing)

function undefinedIfMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error
}

async function write(path: string, content: string | undefined): Promise<void> {
  await (content === undefined ? rm(join(ROOT, path)) : writeFile(join(ROOT, path), content))
}

const expected = generatedFiles()
const stale = await staleFiles(expected)

if (process.argv.includes('--check')) {
  for (const path of stale) console.error(`${path} is stale: run npm run generate`)
  if (stale.length > 0) process.exitCode = 1
} else {
  for (const path of stale) await write(path, expected.get(path))
  console.log(stale.length === 0 ? 'all generated files are fresh' : `wrote ${stale.join(', ')}`)
}
