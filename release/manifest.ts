/** The fields of the repository's package.json that are used or published. */
export interface Manifest {
  name: string
  version: string
  exports: Record<string, string>
  imports: Record<string, string>
  bin: Record<string, string>
  [field: string]: unknown
}

const PUBLISHED = ['name', 'version', 'description', 'license', 'repository', 'type', 'bin'] as const
const DEPENDENCIES = ['dependencies', 'peerDependencies', 'peerDependenciesMeta'] as const

/**
 * Returns the package.json of the package: exports point to compiled files and their declarations. It has no scripts,
 * so an installation runs no code.
 */
export function publishedManifest(source: Manifest, { engines }: { engines: string }): Manifest {
  const kept = Object.fromEntries(
    [...PUBLISHED, ...DEPENDENCIES].flatMap((field) => (field in source ? [[field, source[field]]] : [])),
  )
  return {
    ...kept,
    engines: { node: engines },
    sideEffects: false,
    exports: mapValues(source.exports, (path) =>
      path.endsWith('.ts') ? { types: declaration(path), default: compiled(path) } : path,
    ),
    imports: mapValues(source.imports, compiled),
  } as unknown as Manifest
}

const compiled = (path: string): string => path.replace(/\.ts$/, '.js')
const declaration = (path: string): string => path.replace(/\.ts$/, '.d.ts')

const mapValues = <T, U>(record: Record<string, T>, map: (value: T) => U): Record<string, U> =>
  Object.fromEntries(Object.entries(record).map(([key, value]) => [key, map(value)]))
