import { apiVersionOf, isRecord, type KubeObject, placesOf, publicNames, type Scrub, scrubbedError } from '#contracts'
import type { ReconcilerSpec } from '#spec'
import type { Consequence } from './errors.ts'
import { OUTCOME_FIELDS } from './outcome.ts'
import type { Reconciled, Run } from './progress.ts'
import { type Contents, scrubber } from './scrub.ts'
import type { Failure } from './status.ts'
import type { World } from './world.ts'

/** Notes what a pass observes: failures of the run are scrubbed of its confidential contents, and may have its names. */
export function noteObserved(run: Run, world: World): void {
  run.seen = world
  noteConfidential(run, objectsOf(world))
}

/** Notes the confidential ones among these objects, so that failures of the run are scrubbed of their contents. */
export function noteConfidential({ of, confidential }: Run, objects: readonly Contents[]): void {
  confidential.push(...objects.filter((object) => isConfidential(of, object)))
}

const objectsOf = ({ object, owned, related, patched }: World): KubeObject[] => [
  object,
  ...owned.map((child) => child.object),
  ...related,
  ...patched,
]

const plainKinds = new WeakMap<Reconciled, ReadonlySet<string>>()

/**
 * Whether the contents of objects of this kind are confidential. A function may also return a kind that its Reconciler
 * does not declare. Which resource that is, and so whether only references to it are stored, is not known: it counts as
 * confidential.
 */
export function isConfidential(of: Reconciled, { apiVersion, kind }: Contents): boolean {
  const plain = plainKinds.get(of) ?? plainKindsOf(of)
  plainKinds.set(of, plain)
  return !plain.has(`${apiVersion} ${kind}`)
}

/** Returns the declared kinds whose contents are not confidential. */
function plainKindsOf({ spec, isReferenceOnly }: Reconciled): Set<string> {
  const declared = kindsOf(spec)
  const named = (one: (typeof declared)[number]) => `${apiVersionOf(one)} ${one.kind}`
  const plain = new Set(declared.map(named))
  for (const resource of declared) if (isReferenceOnly(resource)) plain.delete(named(resource))
  plain.delete('v1 Secret')
  return plain
}

const kindsOf = (spec: ReconcilerSpec) => [spec.for, ...spec.owns, ...spec.related, ...(spec.patches ?? [])]

/**
 * Returns the names that texts of a run may have: those of the Reconciler, of its kinds, and of observed objects. The name of a
 * Secret is public too.
 */
export const namesOf = ({ name, spec }: Reconciled, observed: readonly KubeObject[]): string[] =>
  publicNames(name, kindsOf(spec), observed)

/**
 * Returns the objects in what a function returned, and its unknown fields as one more object. It may be anything: an
 * outcome that is not valid fails the run, and its contents are confidential all the same.
 */
export function contentsReturned(returned: unknown): Contents[] {
  if (!isRecord(returned)) return []
  const { apply, patch, act } = returned
  const acted = [act].flat().map((one) => (isRecord(one) ? one['on'] : undefined))
  const objects = [apply, patch, acted].flat().filter(isRecord) as Contents[]
  const unknown = Object.entries(returned).filter(([field]) => !OUTCOME_FIELDS.has(field))
  return unknown.length === 0 ? objects : [...objects, Object.fromEntries(unknown) as unknown as Contents]
}

/** Returns a function that removes confidential contents from a text. */
export function scrubberOf({ of, confidential, seen }: Run): Scrub {
  if (confidential.length === 0) return (text) => text
  return scrubber(confidential, () => (seen === undefined ? [] : namesOf(of, objectsOf(seen))))
}

/** Returns the consequence of a failure, and the error as a log may show it, both without confidential contents. */
export function withheld(run: Run, error: unknown, consequence: Consequence): Consequence & { shown: unknown } {
  if (run.confidential.length === 0) return { ...consequence, shown: error }
  const { finish, report, readyUnknown } = consequence
  const scrubber = scrubberOf(run)
  const places = placesOf(error)
  const scrub: Scrub = (text) => scrubber(text, places)
  const told = (failure: Failure | undefined) => failure && { ...failure, message: scrub(failure.message) }
  return {
    finish: 'message' in finish ? { ...finish, message: scrub(finish.message) } : finish,
    report: told(report),
    readyUnknown: told(readyUnknown),
    shown: scrubbedError(error, scrub),
  }
}
