import type { InstalledPackage } from './dependencies.ts'

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
