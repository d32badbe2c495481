import { UsageError } from '#host/exit'

/** Description of the operator, from package.json. */
export interface BundlePackage {
  /** A DNS label. */
  name: string
  /** Semantic version. */
  version: string
  description: string
  license?: string
  keywords: string[]
  provider: Person
  /** People with a name and an e-mail address. */
  maintainers: { name: string; email: string }[]
  homepage?: string
  repository?: string
  /** Where to ask for help. */
  support?: string
}

interface Person {
  name: string
  email?: string
  url?: string
}

type PersonField = string | Person

export interface PackageJson {
  name?: string
  version?: string
  description?: string
  license?: string
  keywords?: string[]
  author?: PersonField
  maintainers?: PersonField[]
  homepage?: string
  repository?: string | { url?: string }
  bugs?: string | { url?: string }
}

const SEMVER = /^\d+\.\d+\.\d+(?:[-+][\w.+-]+)?$/

/** Reads package.json; the error names all fields that are missing. */
export function bundlePackage(json: PackageJson, file: string): BundlePackage {
  const name = (json.name ?? '').replace(/^@/, '').replace('/', '-')
  const author = personOf(json.author)
  const lacks = [
    ...(/^[a-z0-9](?:[a-z0-9-]{0,40}[a-z0-9])?$/.test(name) ? [] : ['name (a DNS label of 42 characters at most)']),
    ...(SEMVER.test(json.version ?? '') ? [] : ['version (such as 1.2.0)']),
    ...(json.description ? [] : ['description']),
    ...(author === undefined ? ['author (who provides the operator, "Name <e-mail> (URL)")'] : []),
  ]
  if (lacks.length > 0 || author === undefined) throw new UsageError(`${file} lacks, for a bundle: ${lacks.join(', ')}`)
  const urlOf = (field?: string | { url?: string }) =>
    (typeof field === 'object' ? field.url : field)?.replace(/^git\+/, '').replace(/\.git$/, '')
  const [repository, support] = [urlOf(json.repository), urlOf(json.bugs) ?? author.email ?? author.url]
  const people = [author, ...(json.maintainers ?? []).flatMap((one) => personOf(one) ?? [])]
  return {
    name,
    version: json.version ?? '',
    description: json.description ?? '',
    keywords: json.keywords ?? [],
    provider: author,
    maintainers: people.flatMap(({ name: person, email }) => (email === undefined ? [] : [{ name: person, email }])),
    ...(json.license !== undefined && { license: json.license }),
    ...(json.homepage !== undefined && { homepage: json.homepage }),
    ...(repository !== undefined && { repository }),
    ...(support !== undefined && { support }),
  }
}

/** `Name <e-mail> (URL)`, as npm reads it. */
function personOf(field?: PersonField): Person | undefined {
  if (typeof field === 'object') return field.name ? field : undefined
  const [, name = '', email, url] = /^([^<(]+?)\s*(?:<([^>]+)>)?\s*(?:\(([^)]+)\))?$/.exec(field ?? '') ?? []
  return name === '' ? undefined : { name, ...(email && { email }), ...(url && { url }) }
}
