import { IncompatibleError } from '#host/exit'
import { breakingChanges, type CustomResourceDefinition } from '#sdk'

/** Throws, with all that is found, where objects stored under the earlier definition would be lost or refused. */
export function refuseBreaking(before: CustomResourceDefinition, after: CustomResourceDefinition): void {
  const found = breakingChanges(before, after)
  if (found.length === 0) return
  const { name } = after.metadata
  const cure = 'keep the field as it was and add a new field, or apply it all the same: install --force'
  throw new IncompatibleError(
    [`${name} would break objects that are stored:`, ...found.map((one) => `  ${one}`), cure].join('\n'),
  )
}
