import { isDeepStrictEqual } from 'node:util'
import { isRecord, type KubeObject } from '#contracts'
import type { StructuralSchema } from './rules.ts'

/**
 * The path of a field: `.spec.size`. `[]` stands for each element of a list, and `.*` for each value of a record:
 * `.spec.ports[].name`.
 *
 * @example
 * import { type FieldPath, immutable } from 'fairlead'
 * const path: FieldPath = '.spec.ports[].name'
 * immutable(path).title // => 'immutable .spec.ports[].name'
 */
export type FieldPath = `.${string}`

/**
 * A write as the API server admits it.
 *
 * @example
 * import type { AdmittedWrite } from 'fairlead'
 * import { Website } from './website.ts'
 * const creation: AdmittedWrite = { object: Website.of({ metadata: { name: 'a' }, spec: { html: 'hi' } }) }
 * Website.admit(creation).violations // => []
 */
export interface AdmittedWrite {
  /** The object after the write. Left out: it is deleted. */
  object?: KubeObject
  /** The object before the write. Left out: it is created. */
  old?: KubeObject
  /**
   * The groups of the user. Left out: the write is one that policies do not check, such as a write of the function or
   * of the status.
   */
  groups?: readonly string[]
}

/**
 * A rule that a write breaks.
 *
 * @example
 * import { immutable, resource, type Violation, z } from 'fairlead'
 * const Disk = resource({
 *   group: 'example.com', version: 'v1', kind: 'Disk', plural: 'disks', rules: [immutable('.spec.zone')],
 *   spec: z.object({ zone: z.string() }), status: z.object({}),
 * })
 * const [old, object] = ['a', 'b'].map((zone) => Disk.of({ metadata: { name: 'd' }, spec: { zone } }))
 * const [violation]: readonly Violation[] = Disk.admit({ old: old!, object: object! }).violations
 * violation // => { path: 'spec.zone', message: 'spec.zone cannot be changed', reason: 'FieldValueForbidden' }
 */
export interface Violation {
  /** The field that kubectl names: `spec.zone`, `spec.ports[2].name`. Empty: the object. */
  path: string
  message: string
  reason: string
}

/** A part of a path: the name of a field, `[]` or `.*`. */
export type Step = string

export const ELEMENT = '[]'
const VALUE = '.*'

const STEP = /\.\*|\[\]|\.([A-Za-z_$][\w$-]*)|\['([^']+)'\]/g

/** Throws an Error for a text that is not a path. */
export function stepsOf(path: FieldPath): Step[] {
  const found = [...path.matchAll(STEP)]
  if (path === '.' || found.map(([whole]) => whole).join('') !== path)
    throw new Error(`"${path}" is not the path of a field: write .spec.size, or .spec.ports[].name`)
  return found.map(([whole, plain, quoted]) => plain ?? quoted ?? whole)
}

/** `spec.ports[].name`, as messages name it. */
export const nameOf = (path: FieldPath): string => path.slice(1)

export const isEach = (step: Step): boolean => step === ELEMENT || step === VALUE

/** Returns the schema of a field. Throws an Error if the schema has no such field. */
export function schemaAt(schema: StructuralSchema, steps: readonly Step[], path: string): StructuralSchema {
  let at: StructuralSchema | undefined = schema
  for (const step of steps)
    at = step === ELEMENT ? at?.items : step === VALUE ? at?.additionalProperties : at?.properties?.[step]
  if (at === undefined) throw new Error(`the schema has no field ${path}`)
  return at
}

/** Returns the schema of a property of properties; undefined if there is none. */
export const propertyAt = (schema: StructuralSchema, names: readonly string[]): StructuralSchema | undefined =>
  names.reduce<StructuralSchema | undefined>((at, name) => at?.properties?.[name], schema)

/** Returns the value of a field; undefined if it or an object on the way is not there. */
export const valueAt = (value: unknown, steps: readonly Step[]): unknown =>
  steps.reduce<unknown>((at, step) => (isRecord(at) && Object.hasOwn(at, step) ? at[step] : undefined), value)

/** The symbols that the lexer of CEL reserves. */
const RESERVED =
  /^(?:true|false|null|in|as|break|const|continue|else|for|function|if|import|let|loop|package|namespace|return|var|void|while)$/

/** Names a field in the CEL of a definition. Throws an Error for a name that CEL cannot have. */
function escaped(name: string): string {
  if (!/^[A-Za-z_][\w./-]*$/.test(name))
    throw new Error(`a rule cannot read the field "${name}": CEL has no such names`)
  if (RESERVED.test(name)) return `__${name}__`
  const escapes: Record<string, string> = { __: '__underscores__', '.': '__dot__', '-': '__dash__', '/': '__slash__' }
  return name.replaceAll(/__|[-./]/g, (found) => escapes[found] ?? found)
}

/** A field in CEL: whether it is there, and its value. */
export interface Term {
  isSet: string
  value: string
}

/** Returns a field below `root`, in a definition or in a policy, whose objects have the plain names. */
export function termOf(root: string, steps: readonly Step[], name: (step: Step) => string = escaped): Term {
  const texts = steps.map((_, index) => [root, ...steps.slice(0, index + 1).map(name)].join('.'))
  return { isSet: texts.map((text) => `has(${text})`).join(' && ') || 'true', value: texts.at(-1) ?? root }
}

/** Names a field in a policy, where CEL takes names as they are. */
export function plainName(name: string): string {
  if (/^[A-Za-z_]\w*$/.test(name) && !/^(?:true|false|null|in)$/.test(name)) return name
  throw new Error(`a policy cannot read the field "${name}": it takes names of letters, digits and _`)
}

/** Puts an expression with operators into parentheses. */
export const grouped = (expression: string): string =>
  / (?:&&|\|\||==|\?) /.test(expression) ? `(${expression})` : expression

export const not = (expression: string): string =>
  expression.includes(' ') || expression.startsWith('!') ? `!(${expression})` : `!${expression}`

/** The field is as before: with the same value, or absent again. */
export const unchanged = (now: Term, before: Term): string =>
  now.isSet === 'true'
    ? `${now.value} == ${before.value}`
    : `${grouped(now.isSet)} == ${grouped(before.isSet)} && (${not(now.isSet)} || ${now.value} == ${before.value})`

/** A text or a number in CEL. */
export const literal = (value: unknown): string =>
  typeof value === 'string'
    ? `'${value.replaceAll('\\', '\\\\').replaceAll("'", String.raw`\'`).replaceAll('\n', String.raw`\n`)}'`
    : String(value)

type Keyed = Record<string, unknown>

/** The keys of a list whose elements can be told apart, before and after a write. */
export const keysOfList = (schema: StructuralSchema | undefined): string[] | undefined =>
  schema?.['x-kubernetes-list-type'] === 'map' ? (schema['x-kubernetes-list-map-keys'] as string[]) : undefined

const elementLike = (one: unknown, list: unknown, keys: readonly string[]): unknown =>
  Array.isArray(list)
    ? list.find((other: Keyed) => keys.every((key) => other?.[key] === (one as Keyed)?.[key]))
    : undefined

/**
 * Compares as CEL does in a definition: times by their instant, sets and lists with keys in any order. `asCel` false: as
 * the API server does to find out whether a write leaves a value as it was.
 */
export function equal(one: unknown, other: unknown, schema: StructuralSchema | undefined, asCel = true): boolean {
  if (Array.isArray(one) && Array.isArray(other))
    return one.length === other.length && equalLists(one, other, schema, asCel)
  if (isRecord(one) && isRecord(other)) {
    const names = Object.keys(one)
    const isSame = (name: string): boolean => {
      const field = fieldOf(schema, name)
      return name in other && (asCel || field !== undefined) && equal(one[name], other[name], field, asCel)
    }
    return names.length === Object.keys(other).length && names.every(isSame)
  }
  const isTime = asCel && (schema?.['format'] === 'date-time' || schema?.['format'] === 'date')
  return one === other || (isTime && instantOf(String(one)) === instantOf(String(other)))
}

export const fieldOf = (schema: StructuralSchema | undefined, name: string): StructuralSchema | undefined =>
  (Object.hasOwn(schema?.properties ?? {}, name) ? schema?.properties?.[name] : undefined) ??
  schema?.additionalProperties

function equalLists(one: unknown[], other: unknown[], schema: StructuralSchema | undefined, asCel: boolean): boolean {
  const isSame = (item: unknown, old: unknown): boolean => equal(item, old, schema?.items, asCel)
  const keys = keysOfList(schema)
  // A list that was stored before it got keys may have a key twice: CEL looks up the old elements.
  if (keys !== undefined && asCel) return other.every((old) => isSame(elementLike(old, one.toReversed(), keys), old))
  if (keys !== undefined) return one.every((item) => isSame(item, elementLike(item, other, keys)))
  if (asCel && schema?.['x-kubernetes-list-type'] === 'set')
    return other.every((old) => one.some((item) => isSame(item, old)))
  return isDeepStrictEqual(one, other) || (asCel && one.every((item, index) => isSame(item, other[index])))
}

/** The milliseconds of a time, and the digits of its fraction. */
function instantOf(time: string): string {
  const [, fraction = ''] = /\.(\d+)/.exec(time) ?? []
  return `${Date.parse(time.replace(/\.\d+/, ''))}.${fraction.replace(/0+$/, '')}`
}

/** A value that has a rule, and the value before the write. */
interface Found {
  now: unknown
  before: unknown
  path: string
  /** The API server then keeps quiet about a rule on the value. */
  isUnchanged: boolean
}

/**
 * Finds the values at a place of an object, each with its old one: by key in a list that has keys. A null has no rules, as
 * a field that is not there.
 */
export function* valuesAt(
  { now, before, path, isUnchanged }: Found,
  schema: StructuralSchema,
  [step, ...rest]: readonly Step[],
): Generator<Found> {
  if (now === undefined || now === null) return
  if (step === undefined) return yield { now, before: before ?? undefined, path, isUnchanged }
  const next = schemaAt(schema, [step], path)
  const found = (value: unknown, old: unknown, at: string): Found => ({
    now: value,
    before: old,
    path: at,
    isUnchanged: isUnchanged || (old !== undefined && equal(value, old, next, false)),
  })
  if (step === ELEMENT) {
    const keys = keysOfList(schema)
    for (const [index, item] of (Array.isArray(now) ? now : []).entries())
      yield* valuesAt(found(item, keys && elementLike(item, before, keys), `${path}[${index}]`), next, rest)
  } else {
    const names = step === VALUE ? Object.keys(isRecord(now) ? now : {}) : [step]
    for (const name of names)
      yield* valuesAt(found(valueAt(now, [name]), valueAt(before, [name]), `${path}.${name}`), next, rest)
  }
}

/** Fills in the defaults of the schema, as the API server does before it checks rules. */
export function withDefaults(value: unknown, schema: StructuralSchema | undefined): unknown {
  if (Array.isArray(value)) return value.map((item) => withDefaults(item, schema?.items))
  if (!isRecord(value)) return value
  const filled = Object.entries(schema?.properties ?? {}).flatMap(([name, field]) =>
    value[name] === undefined && field['default'] !== undefined ? [[name, field['default']] as const] : [],
  )
  const all = Object.entries({ ...Object.fromEntries(filled), ...value })
  return Object.fromEntries(all.map(([name, field]) => [name, withDefaults(field, fieldOf(schema, name))]))
}
