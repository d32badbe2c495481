import { apiVersionOf, type KubeObject } from '#contracts'
import type { Consequence } from './consequence.ts'
import type { Progress, Reconciled } from './progress.ts'
import { type Contents, scrubbedError, scrubber } from './scrub.ts'
import type { World } from './world.ts'

/**
 * Returns the run with the confidential ones among these objects, so that its failures are scrubbed of their contents.
 */
export function noting<P extends Progress>(run: P, objects: readonly Contents[]): P {
  const found = objects.filter((object) => isConfidential(run.of, object))
  return found.length === 0 ? run : { ...run, confidential: [...run.confidential, ...found] }
}

export const objectsOf = ({ object, owned, related }: World): KubeObject[] => [
  object,
  ...owned.map((child) => child.object),
  ...related,
]

/** Whether the contents of objects of this kind are confidential. */
export function isConfidential({ spec, isReferenceOnly }: Reconciled, { apiVersion, kind }: Contents): boolean {
  return [spec.for, ...spec.owns, ...spec.related].some(
    (resource) => resource.kind === kind && apiVersionOf(resource) === apiVersion && isReferenceOnly(resource),
  )
}

/** Returns a function that removes confidential contents from a text. */
export const scrubberOf = ({ confidential }: Progress): ((text: string) => string) =>
  confidential.length === 0 ? (text) => text : scrubber(confidential)

/** Returns the consequence of a failure, and the error as a log may show it, both without confidential contents. */
export function withheld(
  run: Progress,
  error: unknown,
  { finish, report }: Consequence,
): Consequence & { shown: unknown } {
  if (run.confidential.length === 0) return { finish, report, shown: error }
  const scrub = scrubberOf(run)
  return {
    finish: 'message' in finish ? { ...finish, message: scrub(finish.message) } : finish,
    report: report && { ...report, message: scrub(report.message) },
    shown: scrubbedError(error, scrub),
  }
}
