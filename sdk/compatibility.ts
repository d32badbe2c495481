import type { CustomResourceDefinition } from './crd.ts'
import { changesOf } from './schema-changes.ts'

/**
 * Compares two versions of a CustomResourceDefinition. Returns one line, with a path, for each way in which a stored
 * object would lose data or be rejected under the second; an empty list if there is none. Changes of `status` count
 * only if they keep the function from writing it.
 *
 * @example
 * import { breakingChanges, resource, z } from 'fairlead'
 * import { Website } from './website.ts'
 * const names = { group: 'example.com', version: 'v1', kind: 'Website', plural: 'websites' }
 * const after = resource({ ...names, spec: z.object({ html: z.int32() }), status: z.object({ ready: z.int32() }) })
 * breakingChanges(Website.crd(), after.crd())[0] // => 'v1: spec.html was string, and would be integer'
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
      // Objects that are stored in this version are read in the new storage version.
      const moved =
        storage && stored !== undefined && stored !== next
          ? changesOf(schema.openAPIV3Schema, stored.schema.openAPIV3Schema, '')
          : []
      return [...new Set([...own, ...moved])].map((what) => `${name}: ${what}`)
    }),
  ]
}
