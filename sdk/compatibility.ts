import type { CustomResourceDefinition } from './crd.ts'
import { changesOf } from './schema-changes.ts'

/**
 * What an object that the one definition has admitted may lose, or be refused for, under the other: each with its path.
 * Nothing is found in a status but what would keep it from being written: a function writes it anew.
 */
export function breakingChanges(before: CustomResourceDefinition, after: CustomResourceDefinition): string[] {
  const kept = new Map(after.spec.versions.map((version) => [version.name, version]))
  const stored = after.spec.versions.find(({ storage }) => storage)
  return [
    ...(before.spec.scope === after.spec.scope ? [] : [`its scope was ${before.spec.scope}: it cannot be changed`]),
    ...before.spec.versions.flatMap(({ name, served, storage, schema }) => {
      const next = kept.get(name)
      if (next === undefined || (served && !next.served)) return [`version ${name} is not served any more`]
      const own = changesOf(schema.openAPIV3Schema, next.schema.openAPIV3Schema, '')
      // Stored in this version, read in the one that is stored from now on.
      const moved =
        storage && stored !== undefined && stored !== next
          ? changesOf(schema.openAPIV3Schema, stored.schema.openAPIV3Schema, '')
          : []
      return [...new Set([...own, ...moved])].map((what) => `${name}: ${what}`)
    }),
  ]
}
