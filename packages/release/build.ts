import { execFile } from 'node:child_process'
import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, extname, join, relative } from 'node:path'
import { promisify } from 'node:util'
import source from '../../package.json' with { type: 'json' }
import { DOCUMENTS, isPacked, relink } from './documents.ts'

export const ROOT = join(import.meta.dirname, '../..')
/** Files that the code reads at run time, and files for users. */
export const ASSETS = [
  ...DOCUMENTS,
  'LICENSE',
  'cli/bin.js',
  'packages/console/assets',
  'crds',
  'deploy',
  'packages/lab/go',
  'packages/lab/node/kwok-stages.yaml',
  'packages/scaffold/templates',
]
/** The folders of published code: those of the import names. Each of `packages/` stands for itself. */
export const ROOMS = [
  ...new Set(Object.values(source.imports).map((path) => /^\.\/((?:packages\/)?[^/]+)/.exec(path)?.[1] ?? '')),
].sort()
/**
 * References to .ts files that the compiler does not rewrite: `new URL('./worker.ts', import.meta.url)`,
 * `import('./index.ts')` of plain JavaScript, and imports of declarations.
 */
const OWN_FILE = /((?:new URL\(|import\(|from )(['"])\.{1,2}\/[\w./-]+)\.ts\2/g

/** Compiles the package into `folder`, which is replaced: JavaScript, declarations, maps, sources and assets. */
export async function buildPackage(folder: string): Promise<Manifest> {
  await emptied(folder)
  await compile(folder)
  for (const path of [...ASSETS, ...(await examples())])
    await cp(join(ROOT, path), join(folder, path), { recursive: true, filter: isAsset })
  // In another process: this one may have loaded the code of an earlier version.
  await promisify(execFile)(process.execPath, ['cli/install/generate.ts', '--charts', join(folder, 'deploy/chart')], {
    cwd: ROOT,
  })
  for (const path of await filesIn(folder)) await finish(folder, path)
  for (const path of await filesIn(folder))
    if (path.endsWith('.md') && !path.startsWith(TEMPLATES)) await relink(folder, path)
  const manifest = publishedManifest({
    ...source,
    dependencies: await dependenciesOf(source),
    ...(await peersOf(source)),
  })
  await writeFile(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  return manifest
}

async function compile(folder: string): Promise<void> {
  const tsc = join(ROOT, 'node_modules/.bin/tsc')
  const project = `${folder}.tsconfig.json`
  await writeFile(project, JSON.stringify({ extends: join(ROOT, 'tsconfig.json'), ...compilation(folder) }))
  try {
    await promisify(execFile)(tsc, ['-p', project, '--pretty', 'false'])
  } catch (error) {
    const { stdout = '', message } = error as Error & { stdout?: string }
    throw new Error(`the package does not compile: ${stdout.trim() || message}`, { cause: error })
  } finally {
    await rm(project, { force: true })
  }
}

const compilation = (folder: string) => ({
  compilerOptions: {
    noEmit: false,
    incremental: false,
    rootDir: ROOT,
    outDir: folder,
    typeRoots: [join(ROOT, 'node_modules/@types')],
    declaration: true,
    declarationMap: true,
    sourceMap: true,
    rewriteRelativeImportExtensions: true,
    resolveJsonModule: true,
  },
  include: ROOMS.map((room) => join(ROOT, room)),
  exclude: [join(ROOT, 'packages/scaffold/templates')],
})

/** Rewrites import names to relative paths, and maps to the sources in `src`. */
async function finish(folder: string, path: string): Promise<void> {
  const file = join(folder, path)
  if (path.endsWith('.map')) {
    const map = JSON.parse(await readFile(file, 'utf8')) as { sources: string[] }
    const [source = ''] = map.sources
    const original = relative(ROOT, join(dirname(file), source))
    const copy = join(folder, 'src', original)
    await mkdir(dirname(copy), { recursive: true })
    await cp(join(ROOT, original), copy)
    await writeFile(file, JSON.stringify({ ...map, sources: [relative(dirname(file), copy)] }))
  }
  if (!/\.(js|d\.ts)$/.test(path)) return
  const text = await readFile(file, 'utf8')
  const named = text.replaceAll(OWN_FILE, '$1.js$2')
  if (named !== text) await writeFile(file, named)
}

async function examples(): Promise<string[]> {
  const files = await readdir(join(ROOT, 'functions'), { recursive: true })
  return files.filter((path) => /\.(md|yaml)$/.test(path)).map((path) => join('functions', path))
}

const TEMPLATES = 'packages/scaffold/templates/'

/** Templates and examples are copied instead of compiled, since users read them. */
function isAsset(source: string): boolean {
  const path = relative(ROOT, source)
  return isPacked(path) && (extname(path) !== '.ts' || path.startsWith(TEMPLATES) || path.startsWith('docs/examples/'))
}

/** The fields of the repository's package.json that are used or published. */
export interface Manifest {
  name: string
  version: string
  dependencies?: Record<string, string>
  exports: Record<string, string>
  imports: Record<string, string>
  bin: Record<string, string>
  [field: string]: unknown
}

const PUBLISHED = [
  'name',
  'version',
  'description',
  'license',
  'repository',
  'type',
  'engines',
  'bin',
  'dependencies',
  'peerDependencies',
  'peerDependenciesMeta',
] as const

/** Returns the dependencies of the repository and of its workspaces, whose files the package contains. */
async function dependenciesOf({ name, workspaces, dependencies }: typeof source): Promise<Record<string, string>> {
  const all: Record<string, string> = { ...dependencies }
  for (const folder of workspaces) {
    const workspace = await manifestIn(folder)
    for (const [dependency, version] of Object.entries(workspace.dependencies ?? {}))
      if (dependency !== name && (all[dependency] ??= version) !== version)
        throw new Error(
          `${folder} depends on ${dependency} ${version}, and another on ${all[dependency]}: use one version`,
        )
  }
  return Object.fromEntries(Object.entries(all).toSorted(([one], [other]) => (one < other ? -1 : 1)))
}

/** Returns what users install beside the package for some of its functions. */
async function peersOf({ workspaces }: typeof source): Promise<Record<string, object>> {
  const manifests = await Promise.all(workspaces.map(manifestIn))
  const all = (field: 'peerDependencies' | 'peerDependenciesMeta'): object =>
    Object.assign({}, ...manifests.map((manifest) => manifest[field]))
  return { peerDependencies: all('peerDependencies'), peerDependenciesMeta: all('peerDependenciesMeta') }
}

const manifestIn = async (folder: string): Promise<Manifest> =>
  JSON.parse(await readFile(join(ROOT, folder, 'package.json'), 'utf8')) as Manifest

/** Doors that only workspaces of the repository use. In the package, all files belong to one package. */
const isInner = (door: string): boolean => door.startsWith('./internal/')

/**
 * Returns the package.json of the package: exports point to compiled files and their declarations. It has no scripts,
 * so an installation runs no code.
 */
function publishedManifest(source: Manifest): Manifest {
  const kept = Object.fromEntries(PUBLISHED.flatMap((field) => (field in source ? [[field, source[field]]] : [])))
  return {
    ...kept,
    sideEffects: false,
    exports: mapValues(Object.fromEntries(Object.entries(source.exports).filter(([door]) => !isInner(door))), (path) =>
      path.endsWith('.ts') ? { types: declaration(path), default: compiled(path) } : path,
    ),
    imports: mapValues(source.imports, compiled),
  } as unknown as Manifest
}

const compiled = (path: string): string => path.replace(/\.ts$/, '.js')
const declaration = (path: string): string => path.replace(/\.ts$/, '.d.ts')

const mapValues = <T, U>(record: Record<string, T>, map: (value: T) => U): Record<string, U> =>
  Object.fromEntries(Object.entries(record).map(([key, value]) => [key, map(value)]))

/** Creates an empty folder, or empties it. */
export async function emptied(folder: string): Promise<string> {
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  return folder
}

/** Returns the files below a folder, relative to it. */
export async function filesIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  return entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => relative(folder, join(parentPath, name)))
}

const SCAFFOLD = 'packages/scaffold'

/** Builds the package of `npm create fairlead` from the files of a built package. It contains only the scaffolder. */
export async function buildCreatePackage(
  from: string,
  { version, license, engines }: Manifest,
  folder: string,
): Promise<void> {
  await emptied(folder)
  for (const name of await readdir(join(from, SCAFFOLD)))
    if (!/\.(map|d\.ts)$/.test(name)) await cp(join(from, SCAFFOLD, name), join(folder, name), { recursive: true })
  await cp(join(from, 'LICENSE'), join(folder, 'LICENSE'))
  await cp(join(ROOT, SCAFFOLD, 'README.md'), join(folder, 'README.md'))
  const { private: _, bin, ...own } = await manifestIn(SCAFFOLD)
  const manifest = { ...own, version, license, engines, bin: mapValues(bin, compiled) }
  await writeFile(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
}
