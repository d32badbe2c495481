import { AssertionError } from 'node:assert'
import { isDeepStrictEqual } from 'node:util'
import type { KubeObject, Outcome, RunInput } from '#contracts'
import { CONTESTED_ANNOTATION, deepFreeze, PAUSED, RECONCILED } from '#reconcile'
import { CONTESTS } from '#spec'
import type { Simulation } from './simulation.ts'

/** The mark of another writer. It does not count when states are compared. */
export const TOUCHED = 'testing.fairlead.dev/touched'

/** Throws the error of a broken law; a test runner shows the difference. */
export function same(actual: unknown, expected: unknown, message: string): void {
  if (isDeepStrictEqual(actual, expected)) return
  throw new AssertionError({ message, actual, expected, operator: 'deepStrictEqual' })
}

/** The state that laws compare. Versions and the time of the next retry do not count. */
export function stateOf({ memory, timer, failure, external }: Simulation): unknown {
  const objects = memory.all().map(withoutVersion).sort(byIdentity)
  const outside = external === undefined ? {} : { external: structuredClone(external) }
  return { objects, ...outside, ...(failure === undefined ? { timer } : { failure: failure.message }) }
}

const HISTORY = new Set(['uid', 'creationTimestamp', 'generation', 'observedGeneration', 'lastTransitionTime'])

/** Removes counts and times of changes, which differ between the ways to the same state. */
export const withoutHistory = (state: unknown): unknown =>
  JSON.parse(JSON.stringify(state), (field, value: unknown) => (HISTORY.has(field) ? undefined : value))

/** Removes the condition of an earlier pause. */
export const withoutPause = (state: unknown): unknown => withoutCondition(state, PAUSED)

/** Removes the condition of an earlier failed run. */
export const withoutFailure = (state: unknown): unknown => withoutCondition(state, RECONCILED)

const withoutCondition = (state: unknown, type: string): unknown =>
  JSON.parse(JSON.stringify(state), (_, value: unknown) =>
    withoutEmpty(Array.isArray(value) ? value.filter((one: { type?: unknown } | null) => one?.type !== type) : value),
  )

/** Treats an empty object as a missing one. */
const withoutEmpty = (value: unknown): unknown =>
  typeof value === 'object' && value !== null && Object.keys(value).length === 0 ? undefined : value

function withoutVersion({ metadata, ...content }: KubeObject): KubeObject {
  const { resourceVersion: _, annotations = {}, ...kept } = metadata
  const others = Object.fromEntries(
    Object.entries(annotations).filter(([name]) => name !== TOUCHED && !isContest(name)),
  )
  return { ...content, metadata: { ...kept, annotations: others } }
}

/** Returns the decision of a function, whose input must stay unchanged. `apply` is sorted, since it is a set. */
export async function decided(invoke: (input: RunInput) => Promise<Outcome>, input: RunInput): Promise<unknown> {
  try {
    const { apply, ...others } = await invoke(deepFreeze(structuredClone(input)))
    return { ...others, ...(apply && { apply: apply.toSorted(byIdentity) }) }
  } catch (error) {
    return { throws: String(error) }
  }
}

/** Returns the same input with other orders of its lists of objects. */
export function reordered(input: RunInput): RunInput[] {
  const reversed = (lists: RunInput['owned']) => mapLists(lists, (list) => list.toReversed())
  const rotated = (lists: RunInput['owned']) => mapLists(lists, (list) => [...list.slice(1), ...list.slice(0, 1)])
  return [reversed, rotated].map((change) => ({
    ...input,
    owned: change(input.owned),
    related: change(input.related),
  }))
}

const mapLists = (lists: RunInput['owned'], change: (list: KubeObject[]) => KubeObject[]): RunInput['owned'] =>
  Object.fromEntries(Object.entries(lists).map(([kind, list]) => [kind, change(list)]))

export function permutations<T>(items: readonly T[]): T[][] {
  if (items.length <= 1) return [[...items]]
  return items.flatMap((first, index) => permutations(items.toSpliced(index, 1)).map((rest) => [first, ...rest]))
}

/** The count of corrections does not count when states are compared. */
const isContest = (annotation: string): boolean =>
  annotation === CONTESTED_ANNOTATION || annotation.startsWith(CONTESTS)

const identity = ({ apiVersion, kind, metadata }: KubeObject): string =>
  JSON.stringify([kind, apiVersion, metadata.namespace, metadata.name])

const byIdentity = (one: KubeObject, other: KubeObject): number => identity(one).localeCompare(identity(other))
