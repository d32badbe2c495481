import { isDeepStrictEqual } from 'node:util'
import { isRecord, type KubeObject } from '#contracts'
import { type Kept, keptOf, readKept, restored, writeKept } from './kept.ts'
import { plain } from './options.ts'
import { fieldOf } from './rule.ts'
import { PRESERVE, type StructuralSchema } from './rules.ts'
import type { Body, Made, Ways } from './steps.ts'

/** The annotation with what a version cannot hold. */
export const KEPT = 'fairlead.dev/kept'
/** The annotation of an object that a version shows in part: it cannot be written in this version. */
export const PARTIAL = 'fairlead.dev/partial'
/** The limit of the API server for the keys and values of all annotations of an object, in bytes. */
const MOST_ANNOTATIONS = 256 * 1024
const LONGEST_PROBLEM = 1024

/** A version with its way to the storage version. */
interface VersionWays extends Ways {
  version: string
  schema: StructuralSchema
}

export interface Conversions {
  group: string
  kind: string
  /** The storage version. */
  version: string
  schema: StructuralSchema
  others: readonly VersionWays[]
}

/** An object cannot be written in a version, or is not of this kind. */
class ConversionError extends Error {
  override readonly name = 'ConversionError'
}

/**
 * Returns an object in another version. Reading a version never fails: what it cannot show is in an annotation, or the
 * object has the mark that it is shown in part. Writing one fails rather than lose a field. `before`: the object before the
 * write, in the same version, which knows what is kept.
 */
export function converted(kinds: Conversions, object: KubeObject, version: string, before?: KubeObject): KubeObject {
  const { group, kind, others } = kinds
  const { apiVersion, metadata } = object
  const fail = (what: string): never => {
    const name = [metadata?.namespace, metadata?.name].filter((part) => part !== undefined).join('/')
    throw new ConversionError(`${kind} ${name} of ${apiVersion}: ${what}`)
  }
  const from = apiVersion.slice(group.length + 1)
  const isKnown = (name: string): boolean => name === kinds.version || others.some((one) => one.version === name)
  const names = [kinds.version, ...others.map((one) => one.version)].join(', ')
  if (object.kind !== kind || apiVersion !== `${group}/${from}` || !isKnown(from))
    fail(`it is no ${kind} of ${group} in a version that is declared: ${names}`)
  if (!isKnown(version)) fail(`${kind} has no version ${version}: it has ${names}`)
  if (before !== undefined && before.apiVersion !== apiVersion)
    fail(`the object before the write is of ${before.apiVersion}: give it in the same version`)
  const whole = before === undefined ? object : withKeptOf(object, before)
  if (from === version) return whole
  try {
    const copy = JSON.parse(JSON.stringify(whole)) as KubeObject
    const old = others.find((one) => one.version === from)
    const now = old === undefined ? copy : toStored(kinds, old, copy)
    const target = others.find((one) => one.version === version)
    return target === undefined ? now : fromStored(kinds, target, now)
  } catch (error) {
    return fail(messageOf(error))
  }
}

function messageOf(error: unknown): string {
  if (error instanceof RangeError && error.message.includes('call stack')) return 'a value is nested too deep'
  return error instanceof Error ? error.message : String(error)
}

/** Clients that do not know annotations drop them, and nobody else writes these. */
function withKeptOf(object: KubeObject, before: KubeObject): KubeObject {
  const { [KEPT]: kept, [PARTIAL]: partial } = before.metadata?.annotations ?? {}
  return withAnnotations(object, { [KEPT]: kept, [PARTIAL]: partial })
}

const bodyOf = ({ spec, status }: KubeObject): Body => ({
  ...(spec !== undefined && { spec }),
  ...(status !== undefined && { status }),
})

function toStored({ group, version, schema }: Conversions, old: VersionWays, object: KubeObject): KubeObject {
  const { [KEPT]: text, [PARTIAL]: partial } = object.metadata?.annotations ?? {}
  if (partial !== undefined)
    throw new Error(`it is shown in part, and cannot be written in this version: use ${group}/${version} (${partial})`)
  const kept = readKept(text)
  const shown = bodyOf(object)
  refuseRounded(shown)
  const body: Body = restored(demanded(made(old.up, shown, schema)), kept.get(version) ?? [], schema)
  const back = demanded(made(old.down, body, old.schema))
  kept.delete(version)
  kept.set(old.version, keptOf(back, shown, old.schema))
  return withKept({ ...object, apiVersion: `${group}/${version}` }, body, kept)
}

/** The API server has integers of 64 bits. JavaScript has already rounded those above 2^53, and would store another number. */
function refuseRounded(value: unknown): void {
  if (Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value as number) <= 2 ** 63)
    throw new Error(`the number ${String(value)} is larger than JavaScript can hold exactly`)
  if (typeof value === 'object' && value !== null) for (const part of Object.values(value)) refuseRounded(part)
}

function demanded({ body, problem }: Made): Body {
  if (problem !== undefined) throw new Error(problem)
  return body
}

function fromStored({ group, version, schema }: Conversions, old: VersionWays, object: KubeObject): KubeObject {
  const stored = bodyOf(object)
  const named = { ...object, apiVersion: `${group}/${old.version}` }
  let shown: Made = { body: {} }
  try {
    const kept = readKept(object.metadata?.annotations?.[KEPT])
    refuseRounded(stored)
    shown = made(old.down, stored, old.schema)
    const body: Body = restored(demanded(shown), kept.get(old.version) ?? [], old.schema)
    const back = demanded(made(old.up, body, schema))
    kept.delete(old.version)
    kept.set(version, keptOf(back, stored, schema))
    return withKept(named, body, kept)
  } catch (error) {
    const problem = messageOf(error).slice(0, LONGEST_PROBLEM)
    const marked = withAnnotations(withBody(named, shown.body), { [KEPT]: undefined, [PARTIAL]: problem })
    // The API server would refuse it, and so each list. Nobody writes a part back.
    const { annotations, ...metadata } = marked.metadata
    return bytesOf(annotations) <= MOST_ANNOTATIONS
      ? marked
      : { ...marked, metadata: { ...metadata, annotations: { [PARTIAL]: problem } } }
  }
}

/** Calls a way, prunes what it returns as the API server does, and keeps spec and status where they were. */
function made(way: (body: Body) => Made, body: Body, schema: StructuralSchema): Made {
  const given = Object.fromEntries(Object.entries(body).filter(([, part]) => isRecord(part)))
  const others = Object.fromEntries(Object.entries(body).filter(([, part]) => !isRecord(part)))
  if (Object.keys(given).length === 0) return { body: others }
  const { body: returned, ...problem } = way(given)
  const parts = ROOTS.flatMap((root) => {
    const part = pruned(returned[root], schema.properties?.[root])
    const isNew = !(root in given) && (!isRecord(part) || Object.keys(part).length === 0)
    return isNew ? [] : [[root, part ?? {}] as const]
  })
  return { body: { ...Object.fromEntries(parts), ...others }, ...problem }
}

const ROOTS = ['spec', 'status'] as const

function withKept(object: KubeObject, body: Body, kept: ReadonlyMap<string, readonly Kept[]>): KubeObject {
  refuseRounded(body)
  const whole = withAnnotations(withBody(object, body), { [KEPT]: writeKept(kept), [PARTIAL]: undefined })
  const bytes = bytesOf(whole.metadata?.annotations)
  if (bytes > MOST_ANNOTATIONS)
    throw new Error(
      `with what another version cannot hold its annotations have ${bytes} bytes, and the API server takes ${MOST_ANNOTATIONS}`,
    )
  return whole
}

const bytesOf = (annotations: Record<string, string> = {}): number =>
  Object.entries(annotations).reduce(
    (sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(value),
    0,
  )

function withBody(object: KubeObject, body: Body): KubeObject {
  const { spec: _, status: __, ...others } = object
  return { ...others, ...body }
}

function withAnnotations(object: KubeObject, values: Record<string, string | undefined>): KubeObject {
  const { annotations: before, ...metadata } = object.metadata ?? {}
  const kept = Object.entries(before ?? {}).filter(([name]) => !Object.hasOwn(values, name))
  const set = Object.entries(values).filter(([, value]) => value !== undefined)
  const annotations = Object.fromEntries([...kept, ...set])
  if (isDeepStrictEqual(annotations, before ?? {})) return object
  const isEmpty = Object.keys(annotations).length === 0
  return { ...object, metadata: { ...metadata, ...(!isEmpty && { annotations }) } as KubeObject['metadata'] }
}

/** Removes the fields that a schema does not have, as the API server does with a converted object. Returns the value if it has none. */
function pruned(value: unknown, schema: StructuralSchema | undefined, isKept = false): unknown {
  const keeps = schema?.[PRESERVE] === true || isKept
  if (Array.isArray(value)) {
    const items = value.map((item) => pruned(item, schema?.items, keeps))
    return items.every((item, index) => item === value[index]) ? value : items
  }
  if (!isRecord(value)) return value
  const ofObject = schema?.['x-kubernetes-embedded-resource'] === true ? ['apiVersion', 'kind', 'metadata'] : []
  let isWhole = true
  const fields: [name: string, field: unknown][] = []
  for (const [name, field] of Object.entries(value)) {
    const known = ofObject.includes(name) ? undefined : fieldOf(schema, name)
    const isThere = known !== undefined || keeps || ofObject.includes(name)
    const part = known === undefined ? field : pruned(field, known)
    if (isThere) fields.push([name, part])
    isWhole &&= isThere && part === field
  }
  return isWhole ? value : Object.fromEntries(fields)
}

/** What an author writes: two functions on bodies. */
export interface ConversionPair {
  up(old: unknown): unknown
  down(now: unknown): unknown
}

/** Makes an author's functions total: what they throw, or return in a wrong form, is a problem. */
export function waysOfPair(pair: ConversionPair): Ways {
  const total = (name: string, way: (body: unknown) => unknown) => (body: Body) => {
    try {
      const returned = plain(way(JSON.parse(JSON.stringify(body))), name)
      if (!isRecord(returned)) throw new TypeError('it is no object')
      const part = ROOTS.find((root) => returned[root] !== undefined && !isRecord(returned[root]))
      if (part !== undefined) throw new TypeError(`${part} is no object`)
      return { body: returned }
    } catch (error) {
      return { body: {}, problem: `${name} of its conversion fails: ${messageOf(error)}` }
    }
  }
  return { up: total('up', (old) => pair.up(old)), down: total('down', (now) => pair.down(now)) }
}
