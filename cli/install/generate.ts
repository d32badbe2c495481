import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { builtins } from '#functions'
import { version } from '#process/version'
import { definitionsOf, manifest } from '#sdk'
import { functionsChart, platformChart } from './chart/chart.ts'
import { yamlOf } from './chart/templated.ts'
import { consoleRbac, consoleWritesRbac } from './rbac.ts'
import { reconcilerCrd } from './reconciler.ts'

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

const HEADER = '# Generated from the schemas in the code: change those, then npm run generate.\n'

/** Returns the contents of all generated files that are committed, keyed by their paths from the root of the repository. */
export async function generatedFiles(): Promise<Map<string, string>> {
  const functions = await builtins()
  const crds = [reconcilerCrd(), ...definitionsOf(functions)]
  const files: [string, object | readonly object[]][] = [
    ...crds.map((crd): [string, object] => [`crds/${crd.spec.group}_${crd.spec.names.plural}.yaml`, crd]),
    ...functions.map((one): [string, object] => [
      `functions/${one.name.replace('-', '/')}/reconciler.yaml`,
      manifest(one),
    ]),
    ['deploy/console/rbac.yaml', consoleRbac()],
    ['deploy/console/writes/rbac.yaml', consoleWritesRbac()],
  ]
  const manifests = files.map(async ([path, content]) => [path, HEADER + (await yamlOf(content))] as const)
  return new Map(await Promise.all(manifests))
}

/** Returns all files of both charts, keyed by their paths below the folder of the charts. */
export async function charts(): Promise<Map<string, string>> {
  const functions = await functionsChart(await builtins(), {
    name: 'fairlead-functions',
    version,
    description:
      'The functions that are built into Fairlead, with their kinds and rights. The values enable each of them',
    image: { repository: 'fairlead', tag: 'latest', digest: '' },
    modules: [],
    builtin: ['all'],
    optIn: true,
  })
  const both = { fairlead: await platformChart(version), 'fairlead-functions': functions }
  return new Map(
    Object.entries(both).flatMap(([name, files]) =>
      [...files].map(([path, text]) => [`${name}/${path}`, text] as const),
    ),
  )
}

// Writes the generated files that are committed, and the charts to build/chart. With --check it only compares the former,
// with --charts it only writes the charts, to another folder.
if (import.meta.main) {
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
}
