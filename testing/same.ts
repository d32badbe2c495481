import { AssertionError } from 'node:assert'
import { isDeepStrictEqual } from 'node:util'
import type { KubeObject, Outcome, RunInput } from '#contracts'
import { CONTESTED_ANNOTATION, deepFreeze, PAUSED, RECONCILED } from '#reconcile'
import { CONTESTS } from '#spec'
import type { Simulation } from './simulation.ts'

/** The mark of somebody who writes first. It says nothing of the end. */
export const TOUCHED = 'testing.fairlead.dev/touched'

/** A law that does not hold; a test runner shows the difference. */
export function same(actual: unknown, expected: unknown, message: string): void {
  if (isDeepStrictEqual(actual, expected)) return
  throw new AssertionError({ message, actual, expected, operator: 'deepStrictEqual' })
}

/** All that counts at an end: versions do not, nor when a failure is retried. */
export function stateOf({ memory, timer, failure, external }: Simulation): unknown {
  const objects = memory.all().map(withoutVersion).sort(byIdentity)
  const outside = external === undefined ? {} : { external: structuredClone(external) }
  return { objects, ...outside, ...(failure === undefined ? { timer } : { failure: failure.message }) }
}

const HISTORY = new Set(['uid', 'creationTimestamp', 'generation', 'observedGeneration', 'lastTransitionTime'])

/** How often and when something was made or changed is no part of an end that can be reached in several ways. */
export const withoutHistory = (state: unknown): unknown =>
  JSON.parse(JSON.stringify(state), (field, value: unknown) => (HISTORY.has(field) ? undefined : value))

/** That it was paused once is no part of an end. */
export const withoutPause = (state: unknown): unknown => withoutCondition(state, PAUSED)

/** That a run has failed before is no part of an end. */
export const withoutFailure = (state: unknown): unknown => withoutCondition(state, RECONCILED)

const withoutCondition = (state: unknown, type: string): unknown =>
  JSON.parse(JSON.stringify(state), (_, value: unknown) =>
    withoutEmpty(Array.isArray(value) ? value.filter((one: { type?: unknown } | null) => one?.type !== type) : value),
  )

/** What held nothing but that is as if it were not there. */
const withoutEmpty = (value: unknown): unknown =>
  typeof value === 'object' && value !== null && Object.keys(value).length === 0 ? undefined : value

function withoutVersion({ metadata, ...content }: KubeObject): KubeObject {
  const { resourceVersion: _, annotations = {}, ...kept } = metadata
  const others = Object.fromEntries(
    Object.entries(annotations).filter(([name]) => name !== TOUCHED && !isContest(name)),
  )
  return { ...content, metadata: { ...kept, annotations: others } }
}

/** What a function says to that input, which it must leave as it is; `apply` is a set. */
export async function decided(invoke: (input: RunInput) => Promise<Outcome>, input: RunInput): Promise<unknown> {
  try {
    const { apply, ...others } = await invoke(deepFreeze(structuredClone(input)))
    return { ...others, ...(apply && { apply: apply.toSorted(byIdentity) }) }
  } catch (error) {
    return { throws: String(error) }
  }
}

/** The same observed state, its lists of objects in other orders. */
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

/** The count of corrections does not belong to an end. */
const isContest = (annotation: string): boolean =>
  annotation === CONTESTED_ANNOTATION || annotation.startsWith(CONTESTS)

const identity = ({ apiVersion, kind, metadata }: KubeObject): string =>
  JSON.stringify([kind, apiVersion, metadata.namespace, metadata.name])

const byIdentity = (one: KubeObject, other: KubeObject): number => identity(one).localeCompare(identity(other))
