import { breakingChanges, type CustomResourceDefinition } from '#sdk'
import { IncompatibleError } from './exit.ts'

/** Throws, with all that is found, where objects stored under the earlier definition would be lost or refused. */
export function refuseBreaking(before: CustomResourceDefinition, after: CustomResourceDefinition): void {
  const found = breakingChanges(before, after)
  if (found.length === 0) return
  const { name } = after.metadata
  throw new IncompatibleError(
    `${name} would break objects that are stored:\n${found.map((one) => `  ${one}`).join('\n')}`,
  )
}
