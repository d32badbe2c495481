import { existsSync } from 'node:fs'
import { join, normalize, posix } from 'node:path'
import { UsageError } from '#process/exit'
import { type Dependencies, dependenciesOf, manifestIn } from './dependencies.ts'
import { entriesFrom, type TarEntry } from './files.ts'
import { type Packed, packed } from './packed.ts'

/** The folder of the project in its image. */
const APP = 'app'
const COMMAND = 'node_modules/fairlead/cli/bin.js'
const TEST = /\.test\.[cm]?[jt]sx?$/
/** Files of installed packages that only editors and debuggers read: a third of what the dependencies take. */
const FOR_EDITORS = /\.(d\.[cm]?ts|map)$/

export interface Project {
  name: string
  version: string
  license?: string
  description?: string
  source?: string
  dependencies: Dependencies
  /** The files of the dependencies, with the links to them. */
  installed: Packed
  /** package.json and the included paths. */
  own: Packed
  /** The path of the script that starts `fairlead`, for Node.js. */
  command: string
  /** Files with machine code. They restrict the image to the platform of this machine. */
  native: string[]
}

/** Reads a project: package.json, its dependencies, and the included paths. */
export async function readProject(folder: string, include: readonly string[]): Promise<Project> {
  const manifest = (await manifestIn(folder)) as ProjectJson
  const dependencies = await dependenciesOf(folder)
  const fairlead = dependencies.packages.find(({ name }) => name === 'fairlead')
  if (fairlead === undefined)
    throw new UsageError(`${join(folder, 'package.json')} has no dependency on fairlead: npm install fairlead`)
  if (!existsSync(join(fairlead.folder, 'cli/index.js')))
    throw new UsageError(
      `${fairlead.folder} is not compiled, and Node.js runs no TypeScript below node_modules: install a tarball (npm run build && npm pack ./build/package)`,
    )
  const installed = await dependencyEntries(dependencies)
  const own = await functionEntries(folder, include)
  return {
    name: manifest.name ?? 'functions',
    version: manifest.version ?? '0.0.0',
    ...(manifest.license !== undefined && { license: manifest.license }),
    ...(manifest.description !== undefined && { description: manifest.description }),
    ...sourceOf(manifest),
    dependencies,
    installed,
    own,
    command: `/${posix.join(APP, COMMAND)}`,
    native: installed.entries.filter(({ path }) => path.endsWith('.node')).map(({ path }) => path),
  }
}

interface ProjectJson {
  name?: string
  version?: string
  license?: string
  description?: string
  repository?: string | { url?: string }
}

/** Packages inside of a package are listed separately. */
async function dependencyEntries({ packages, links }: Dependencies): Promise<Packed> {
  const entries: TarEntry[] = [...links].map(([path, target]) => ({
    type: 'link',
    path: posix.join(APP, path),
    target,
  }))
  const credentials: string[] = []
  for (const { folder, path } of packages) {
    // An installed package was packed by npm before. Its scripts may have added files that `files` does not name.
    const asPackage = !folder.split('/').includes('node_modules')
    const without = (name: string) => !asPackage && FOR_EDITORS.test(name)
    const found = await packed(folder, posix.join(APP, path), { asPackage, without })
    entries.push(...found.entries)
    credentials.push(...found.credentials)
  }
  return { entries, credentials }
}

/** Leaves out tests, so that a change of a test does not change the image. */
async function functionEntries(folder: string, include: readonly string[]): Promise<Packed> {
  const entries = await entriesFrom(join(folder, 'package.json'), posix.join(APP, 'package.json'))
  const credentials: string[] = []
  for (const path of include.map((one) => normalize(one))) {
    if (path.startsWith('..') || path.startsWith('/'))
      throw new UsageError(`${path} is outside of ${folder}: only files in it can be included`)
    if (!existsSync(join(folder, path)))
      throw new UsageError(`${folder} has no ${path}: name what the functions are in, --include PATH`)
    const without = (name: string) => TEST.test(name)
    const found = await packed(join(folder, path), posix.join(APP, path), { asPackage: true, without })
    entries.push(...found.entries)
    credentials.push(...found.credentials)
  }
  const named = new Set(entries.map(({ path }) => path))
  return { entries, credentials: credentials.filter((path) => !named.has(path)) }
}

function sourceOf({ repository }: ProjectJson): { source?: string } {
  const url = typeof repository === 'object' ? repository.url : repository
  return url === undefined ? {} : { source: url.replace(/^git\+/, '') }
}
