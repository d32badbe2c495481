import { execFile } from 'node:child_process'
import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, extname, join, relative } from 'node:path'
import { promisify } from 'node:util'
import source from '../package.json' with { type: 'json' }
import { bundleModels } from './declarations.ts'
import { emptied, filesIn } from './folder.ts'
import { type Manifest, publishedManifest } from './manifest.ts'

export const ROOT = join(import.meta.dirname, '..')
/** The first version of Node.js that runs TypeScript without a warning. */
const ENGINES = '>=24.12'
/** Files that the code reads at run time, and files for users. */
export const ASSETS = [
  'README.md',
  'LICENSE',
  'cli/bin.js',
  'console/assets',
  'crds',
  'deploy',
  'local/go',
  'local/node/kwok-stages.yaml',
  'scaffold/templates',
]
/** The folders of published code: the targets of import names. */
export const ROOMS = [...new Set(Object.values(source.imports).map((path) => path.split('/')[1] ?? ''))].sort()
/**
 * References to .ts files that the compiler does not rewrite: `new URL('./worker.ts', import.meta.url)`,
 * `import('./index.ts')` of plain JavaScript, and imports of declarations.
 */
const OWN_FILE = /((?:new URL\(|import\(|from )(['"])\.{1,2}\/[\w./-]+)\.ts\2/g

/** Compiles the package into `folder`, which is replaced: JavaScript, declarations, maps, sources and assets. */
export async function buildPackage(folder: string): Promise<{ manifest: Manifest; models: number }> {
  await emptied(folder)
  await compile(folder)
  for (const path of [...ASSETS, ...(await examples())])
    await cp(join(ROOT, path), join(folder, path), { recursive: true, filter: isAsset })
  const files = await filesIn(folder)
  for (const path of files) await finish(folder, path)
  const declarations = files.filter((path) => path.endsWith('.d.ts'))
  const models = await bundleModels(folder, declarations, join(ROOT, 'node_modules'))
  const manifest = publishedManifest(source, { engines: ENGINES })
  await writeFile(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  return { manifest, models }
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
  exclude: [join(ROOT, 'scaffold/templates')],
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

/** Templates are copied instead of compiled, since users read them. */
const isAsset = (path: string): boolean => extname(path) !== '.ts' || path.includes('/scaffold/templates/')
