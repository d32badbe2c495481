import { isDeepStrictEqual } from 'node:util'
import type { KubeObject } from 'fairlead'
import { isRecord } from './protocol.ts'

/** The annotation with what Metacontroller has applied last, and what a recreated child was made of. */
export const LAST_APPLIED = 'metacontroller.k8s.io/last-applied-configuration'

/** Returns the child with what it is made of, so that a field that goes is noticed. A Secret does not get its contents there. */
export function withLastApplied(child: KubeObject): KubeObject {
  if (child.kind === 'Secret' && child.apiVersion === 'v1') return child
  const annotations = { ...child.metadata.annotations, [LAST_APPLIED]: textInGo(child) }
  return { ...child, metadata: { ...child.metadata, annotations } }
}

/** Returns JSON as Go writes it. Metacontroller compares the text, and would recreate a child with another one. */
function textInGo(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(textInGo).join(',')}]`
  if (isRecord(value)) {
    const fields = Object.keys(value).sort()
    return `{${fields.map((field) => `${textInGo(field)}:${textInGo(value[field])}`).join(',')}}`
  }
  return JSON.stringify(value).replace(
    /[<>&\u2028\u2029]/g,
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/**
 * Whether an apply of Metacontroller would change the observed object: fields that are wanted have other values, or fields that
 * were wanted before are still there. Other fields do not count, nor does the status.
 */
export function differs(observed: KubeObject, wanted: KubeObject): boolean {
  const before = comparable(observed)
  return !isDeepStrictEqual(
    comparable(merged(before, lastAppliedIn(observed), comparable(wanted)) as KubeObject),
    before,
  )
}

/** For how long a child stays that was made of the same answer. */
const CALM_S = 60

/**
 * Returns for how many seconds a child that differs stays: a value that the API server stores in another form would have it deleted
 * without end.
 */
export function calmSeconds(observed: KubeObject, wanted: KubeObject, now: Date): number {
  const last = lastAppliedIn(observed) ?? undefined
  if (last !== undefined && !isDeepStrictEqual(last, comparable(wanted))) return 0
  const age = (now.getTime() - Date.parse(String(observed.metadata.creationTimestamp))) / 1000
  return Number.isNaN(age) ? 0 : Math.max(0, Math.ceil(CALM_S - age))
}

function lastAppliedIn({ metadata: { annotations = {} } }: KubeObject): unknown {
  try {
    return comparable(JSON.parse(annotations[LAST_APPLIED] ?? 'null'))
  } catch {
    return undefined
  }
}

const OF_THE_SERVER = [
  'uid',
  'resourceVersion',
  'generation',
  'creationTimestamp',
  'deletionTimestamp',
  'deletionGracePeriodSeconds',
  'managedFields',
  'selfLink',
  'ownerReferences',
  'namespace',
]

/** Returns the object without what no apply changes. */
function comparable<T>(object: T): T {
  if (!isRecord(object)) return object
  const { status: _, metadata, ...content } = object
  const { annotations, ...others } = isRecord(metadata) ? metadata : {}
  const own = isRecord(annotations) ? Object.entries(annotations).filter(([name]) => !isPlatforms(name)) : []
  const kept = Object.entries(others).filter(([field, value]) => !OF_THE_SERVER.includes(field) && value !== null)
  const fields = { ...Object.fromEntries(kept), ...(own.length > 0 && { annotations: Object.fromEntries(own) }) }
  return { ...content, metadata: fields } as T
}

const isPlatforms = (annotation: string): boolean =>
  annotation === LAST_APPLIED || annotation.startsWith('fairlead.dev/')

/** By which lists of objects are merged, the first one that all have. */
const MERGE_KEYS = ['containerPort', 'port', 'mountPath', 'name', 'uid', 'ip', 'path']

function merged(observed: unknown, last: unknown, wanted: unknown): unknown {
  if (isRecord(observed) && isRecord(wanted)) return mergedFields(observed, isRecord(last) ? last : {}, wanted)
  if (!Array.isArray(observed) || !Array.isArray(wanted)) return wanted
  const before = Array.isArray(last) ? last : []
  const all: unknown[] = [...observed, ...before, ...wanted]
  const key = all.every(isRecord)
    ? MERGE_KEYS.find((name) => all.every((one) => Object.hasOwn(one as object, name)))
    : undefined
  if (key === undefined) return wanted
  const [there, former, desired] = [observed, before, wanted].map((list) => byKey(list as Fields[], key)) as [
    Fields,
    Fields,
    Fields,
  ]
  return Object.values(mergedFields(there, former, desired))
}

type Fields = Record<string, unknown>

const byKey = (list: readonly Fields[], key: string): Fields =>
  Object.fromEntries(list.map((one) => [`key ${String(one[key])}`, one]))

function mergedFields(observed: Fields, last: Fields, wanted: Fields): Fields {
  const gone = Object.keys(last).filter((field) => !Object.hasOwn(wanted, field))
  const kept = Object.entries(observed).filter(([field]) => !gone.includes(field))
  const set = Object.entries(wanted).map(([field, value]) => [field, merged(observed[field], last[field], value)])
  return Object.fromEntries([...kept, ...set]) as Fields
}
