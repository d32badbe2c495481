import { IncompatibleError } from '#host/exit'
import { breakingChanges, type CustomResourceDefinition } from '#sdk'

/** Throws an Error with all breaking changes for objects that are stored under the earlier definition. */
export function refuseBreaking(before: CustomResourceDefinition, after: CustomResourceDefinition): void {
  const found = breakingChanges(before, after)
  if (found.length === 0) return
  const { name } = after.metadata
  const cure = 'keep the field as it was and add a new field, or apply it all the same: install --force'
  throw new IncompatibleError(
    [`${name} would break objects that are stored:`, ...found.map((one) => `  ${one}`), cure].join('\n'),
  )
}
