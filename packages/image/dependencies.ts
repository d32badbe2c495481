import { existsSync } from 'node:fs'
import { readFile, realpath } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import { UsageError } from '#process/exit'

/** A package that the functions need at run time. */
interface InstalledPackage {
  name: string
  version: string
  license?: string
  /** The folder with its files. */
  folder: string
  /** Its path in the image, from the root of the project. */
  path: string
}

/** Packages, and the links through which Node.js finds packages that are not below the folder of their importer. */
export interface Dependencies {
  packages: InstalledPackage[]
  /** Targets, keyed by path. Both are relative to the root of the project. */
  links: Map<string, string>
}

interface PackageJson {
  name?: string
  version?: string
  license?: string | { type?: string }
  dependencies?: Record<string, string>
  optionalDependencies?: Record<string, string>
  peerDependencies?: Record<string, string>
  peerDependenciesMeta?: Record<string, { optional?: boolean }>
}

/** Packages that fairlead uses on workstations only: with all that it needs, this one has 90 MB. */
const NOT_IN_PODS = new Set(['@kubernetes/client-node'])

/**
 * Returns the dependencies of a project without those for development, as npm, pnpm or Yarn have installed them. A
 * package that no pod needs is left out, unless the project or another package depends on it.
 */
export async function dependenciesOf(project: string): Promise<Dependencies> {
  const root = await realpath(project)
  const byFolder = new Map<string, InstalledPackage>()
  const byPath = new Map<string, string>()
  const links = new Map<string, string>()

  const follow = async (importer: { folder: string; path: string; manifest: PackageJson }): Promise<void> => {
    for (const { name, optional } of neededBy(importer.manifest)) {
      if (importer.manifest.name === 'fairlead' && NOT_IN_PODS.has(name)) continue
      const found = nearest(importer.folder, name)
      if (found === undefined) {
        if (optional) continue
        const of = importer.manifest.name ?? importer.folder
        throw new UsageError(
          `${name}, which ${of} depends on, is not in a node_modules folder: install the dependencies of ${project}`,
        )
      }
      const folder = await realpath(found)
      const path = placeOf({ root, folder, found, name, importer: importer.path, byPath })
      if (isBelow(root, folder) && found !== folder) links.set(relative(root, found), relative(dirname(found), folder))
      if (byPath.has(path)) continue
      const manifest = await manifestIn(folder)
      byPath.set(path, folder)
      byFolder.set(path, { name, version: manifest.version ?? '0.0.0', ...licenseOf(manifest), folder, path })
      await follow({ folder, path, manifest })
    }
  }
  await follow({ folder: root, path: '', manifest: await manifestIn(root) })
  const packages = [...byFolder.values()].sort((a, b) => (a.path < b.path ? -1 : 1))
  return { packages, links }
}

export async function manifestIn(folder: string): Promise<PackageJson> {
  const file = join(folder, 'package.json')
  try {
    return JSON.parse(await readFile(file, 'utf8')) as PackageJson
  } catch (cause) {
    const isMissing = (cause as NodeJS.ErrnoException).code === 'ENOENT'
    throw new UsageError(
      isMissing ? `${folder} has no package.json` : `${file} cannot be read: ${(cause as Error).message}`,
      { cause },
    )
  }
}

function neededBy({
  dependencies = {},
  optionalDependencies = {},
  peerDependencies = {},
  peerDependenciesMeta = {},
}: PackageJson): { name: string; optional: boolean }[] {
  const wanted = new Map<string, boolean>()
  // An optional peer dependency is added only by another package that depends on it.
  for (const name of Object.keys(peerDependencies))
    if (peerDependenciesMeta[name]?.optional !== true) wanted.set(name, false)
  for (const name of Object.keys(dependencies)) wanted.set(name, false)
  for (const name of Object.keys(optionalDependencies)) wanted.set(name, true)
  return [...wanted].map(([name, optional]) => ({ name, optional })).sort((a, b) => (a.name < b.name ? -1 : 1))
}

/** Finds a package as Node.js does: in node_modules of this folder and of its parents. */
function nearest(folder: string, name: string): string | undefined {
  for (let at = folder; ; at = dirname(at)) {
    const candidate = join(at, 'node_modules', name)
    if (existsSync(candidate)) return candidate
    if (at === dirname(at)) return undefined
  }
}

interface Found {
  root: string
  folder: string
  found: string
  name: string
  importer: string
  byPath: ReadonlyMap<string, string>
}

/**
 * Returns the path of a package. Packages outside of the project, such as those of a workspace, go to its node_modules.
 */
function placeOf({ root, folder, found, name, importer, byPath }: Found): string {
  if (isBelow(root, folder)) return relative(root, folder)
  if (isBelow(root, found)) return relative(root, found)
  const top = join('node_modules', name)
  return (byPath.get(top) ?? folder) === folder ? top : join(importer, top)
}

const isBelow = (root: string, path: string): boolean => path.startsWith(`${root}/`)

function licenseOf({ license }: PackageJson): { license?: string } {
  const text = typeof license === 'object' ? license.type : license
  return text === undefined ? {} : { license: text }
}

/** The subject of a bill of materials. */
export interface Described {
  name: string
  version: string
  license?: string
  packages: readonly InstalledPackage[]
  base: { name: string; digest: string }
  /** The digest of the layers' contents: the same contents have the same document. */
  digest: string
  /** RFC 3339 */
  created: string
  tool: string
}

const PROJECT = 'SPDXRef-project'
const BASE = 'SPDXRef-base'

/** Returns an SPDX 2.3 document as JSON: the project, its packages, and the base image. */
export function sbomOf({ name, version, license, packages, base, digest, created, tool }: Described): object {
  const idOf = (one: InstalledPackage) => `SPDXRef-${one.path.replaceAll(/[^A-Za-z0-9.-]/g, '-')}`
  const relationship = (from: string, type: string, to: string) => ({
    spdxElementId: from,
    relationshipType: type,
    relatedSpdxElement: to,
  })
  return {
    spdxVersion: 'SPDX-2.3',
    dataLicense: 'CC0-1.0',
    SPDXID: 'SPDXRef-DOCUMENT',
    name,
    documentNamespace: `https://fairlead.dev/sbom/${name.replaceAll(/[^\w.-]/g, '-')}-${version}/${digest.replace(':', '-')}`,
    creationInfo: { created, creators: [`Tool: ${tool}`] },
    packages: [
      packageOf(PROJECT, { name, version, license }),
      packageOf(BASE, { name: base.name, version: base.digest }),
      ...packages.map((one) => packageOf(idOf(one), one, `pkg:npm/${one.name.replace('@', '%40')}@${one.version}`)),
    ],
    relationships: [
      relationship('SPDXRef-DOCUMENT', 'DESCRIBES', PROJECT),
      relationship(PROJECT, 'DESCENDANT_OF', BASE),
      ...packages.map((one) => relationship(PROJECT, 'DEPENDS_ON', idOf(one))),
    ],
  }
}

const packageOf = (
  id: string,
  { name, version, license }: { name: string; version: string; license?: string | undefined },
  locator?: string,
): object => ({
  SPDXID: id,
  name,
  versionInfo: version,
  downloadLocation: 'NOASSERTION',
  filesAnalyzed: false,
  licenseConcluded: 'NOASSERTION',
  licenseDeclared: license !== undefined && IDENTIFIER.test(license) ? license : 'NOASSERTION',
  copyrightText: 'NOASSERTION',
  ...(locator !== undefined && {
    externalRefs: [{ referenceCategory: 'PACKAGE-MANAGER', referenceType: 'purl', referenceLocator: locator }],
  }),
})

/** An SPDX expression. package.json files contain other texts too. */
const IDENTIFIER = /^[\w.+()-]+(?: (?:AND|OR|WITH) [\w.+()-]+)*$/
