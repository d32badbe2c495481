import { isRecord, type KubeObject } from '#contracts'
import { type Resource, type ResourceVersion, z } from '#sdk'
import { changesBetween, LawBroken } from './broken.ts'
import { PRESERVE, type Schema, Values } from './values.ts'

/**
 * What the laws of a conversion may know.
 *
 * @example
 * import type { ConversionCase } from 'fairlead/testing'
 * const once: ConversionCase = { kept: ['.spec.legacy'], seed: 7 }
 * once.seed // => 7
 */
export interface ConversionCase {
  /**
   * Valid objects of any version. Their values are used as well, which is necessary where a schema has a pattern: no text
   * for it is made up.
   *
   * @default none
   */
  examples?: readonly KubeObject[]
  /**
   * The fields that one version has and the other one cannot hold, or only in another form. They are kept in the annotation,
   * and are no loss. `.spec.ports[].name`: a field of the elements of a list.
   *
   * @default none
   */
  kept?: readonly string[]
  /**
   * The seed of the values.
   *
   * @default 1
   */
  seed?: number
  /**
   * The number of objects for each law, of each of the two versions.
   *
   * @default 300
   */
  runs?: number
}

/**
 * Returns the laws of the conversions of a resource, for each version with `convert`, as rows of a test runner. Each
 * converts objects of the schemas: valid ones, and such with absent, null and wrong fields. It rejects with the version,
 * the path, and the smallest object that it has found. Throws an Error for a resource without conversions.
 *
 * @example
 * import { mapped, resource, z } from 'fairlead'
 * import { conversionLawsOf } from 'fairlead/testing'
 * const Page = resource({
 *   group: 'example.com', version: 'v1', kind: 'Page', plural: 'pages',
 *   spec: z.object({ lines: z.array(z.string()) }), status: z.object({}),
 *   served: [{
 *     version: 'v1beta1', spec: z.object({ text: z.string() }),
 *     convert: [mapped('.spec.text', '.spec.lines', (text: string) => text.split('\n'), (lines: string[]) => lines.join('\n'))],
 *   }],
 * })
 * const rows = conversionLawsOf(Page)
 * for (const [, holds] of rows) await holds()
 * rows[0]?.[0] // => 'v1beta1: each object converts, also one with absent, null or wrong fields'
 */
export function conversionLawsOf(
  resource: Resource,
  options: ConversionCase = {},
): [law: string, holds: () => Promise<void>][] {
  const [stored, ...others] = resource.versions()
  const found = others.filter(({ convert }) => convert !== undefined)
  if (stored === undefined || found.length === 0)
    throw new Error(`resource ${resource.kind} has no version with "convert": it has no laws of conversions`)
  return found.flatMap((old) =>
    Object.entries(LAWS).map(([law, check]): [string, () => Promise<void>] => [
      `${old.version}: ${law}`,
      async () => check(new Pair(resource, stored, old, options)),
    ]),
  )
}

type Body = Record<string, unknown>
type Side = 'stored' | 'old'

const LAWS: Record<string, (pair: Pair) => void> = {
  'each object converts, also one with absent, null or wrong fields': (pair) =>
    pair.demand(true, ({ from, to, object }) => {
      const { error } = pair.convert(object, to.version)
      return error === undefined ? undefined : { what: `${from.version} does not become ${to.version}: ${error}` }
    }),

  'a field that both versions could hold is not lost': (pair) =>
    pair.demand(false, ({ side, from, to, object }) => {
      const [path] = pair.lost(object, side)
      if (path === undefined) return undefined
      const why = hasField(to.schema, path) ? 'both versions have it' : `${to.version} has no such field`
      const advice = `convert it, or name it in "kept" if ${to.version} cannot hold it`
      return { what: `${from.version} ${path} is lost in ${to.version}: ${why}. ${advice}`, path }
    }),

  'each object comes back as it was': (pair) =>
    pair.demand(true, ({ from, to, object }) => {
      const there = pair.convert(object, to.version)
      const back = there.object && pair.convert(there.object, from.version)
      if (back?.object === undefined) return undefined
      const lines = changesBetween(bodyOf(object), bodyOf(back.object))
      return lines.length === 0 ? undefined : { what: `${from.version} comes back from ${to.version} otherwise`, lines }
    }),

  'what is valid stays valid': (pair) =>
    pair.demand(false, ({ from, to, object }) => {
      const { object: there } = pair.convert(object, to.version)
      const fault = there && faultOf(to, bodyOf(there))
      return fault === undefined
        ? undefined
        : { what: `${from.version} is valid, and ${to.version} is not: ${fault.what}`, path: fault.path }
    }),

  'what is absent stays absent': (pair) =>
    pair.demand(false, ({ from, to, object }) => {
      const bare = { ...object, ...(skeleton(bodyOf(object)) as Body) }
      const { object: there } = pair.convert(bare, to.version)
      const [path, value] = [...leavesOf(there === undefined ? {} : bodyOf(there))][0] ?? []
      return path === undefined
        ? undefined
        : { what: `${to.version} ${path} is ${JSON.stringify(value)}, and ${from.version} has no value at all`, path }
    }),

  'an object gives the same at any time, in any order': (pair) => pair.demandPure(),

  'an edit wins and changes nothing else, also by a client that drops annotations': (pair) =>
    pair.demand(false, ({ side, object, values }) => (side === 'old' ? undefined : pair.edited(object, values()))),
}

interface Case {
  side: Side
  from: ResourceVersion
  to: ResourceVersion
  object: KubeObject
  /** The same ones at each call. */
  values: () => Values
}

interface Found {
  what: string
  /** Two faults with the same path are the same fault. */
  path?: string
  lines?: string[]
}

const SHRINKS = 200
const LONGEST = 2000

/** A served version and the stored one. */
class Pair {
  readonly #resource: Resource
  readonly #versions: Record<Side, ResourceVersion>
  readonly #case: ConversionCase
  /** Fields that a version may hold in another form. */
  readonly #kept: readonly string[]

  constructor(resource: Resource, stored: ResourceVersion, old: ResourceVersion, options: ConversionCase) {
    this.#resource = resource
    this.#versions = { stored, old }
    this.#case = options
    const steps = old.convert === undefined || 'up' in old.convert ? [] : old.convert
    const others = steps.filter((one) => one.step !== 'moved').flatMap((one) => [one.from, one.to])
    this.#kept = [...(options.kept ?? []), ...others]
  }

  convert(object: KubeObject, version: string, before?: KubeObject): { object?: KubeObject; error?: string } {
    try {
      const made = this.#resource.convert(object, version, before)
      const partial = made.metadata.annotations?.['fairlead.dev/partial']
      return partial === undefined ? { object: made } : { error: partial }
    } catch (error) {
      return { error: (error as Error).message }
    }
  }

  /** Throws for the first object of either version in which `find` finds a fault, after it is made smaller. */
  demand(isBroken: boolean, find: (one: Case) => Found | undefined): void {
    for (const one of this.#cases(isBroken)) {
      const found = find(one)
      if (found !== undefined) throw this.#broken(one, found, isBroken, find)
    }
  }

  demandPure(): void {
    const cases = [...this.#cases(true)]
    const all = () => cases.map(({ object, to }) => this.convert(object, to.version))
    const first = all()
    for (const before = Date.now(); Date.now() === before; );
    const again = cases
      .toReversed()
      .map(({ object, to }) => this.convert(object, to.version))
      .reverse()
    for (const [index, one] of cases.entries()) {
      const lines = changesBetween(first[index], again[index])
      if (lines.length > 0)
        throw this.#error(one, { what: `${one.to.version} differs between two conversions of one object`, lines })
    }
  }

  /** The fields that the other version loses without the annotation. */
  lost(object: KubeObject, side: Side): string[] {
    const { old, stored } = this.#versions
    const [from, to] = side === 'old' ? [old, stored] : [stored, old]
    const { object: there } = this.convert(object, to.version)
    const back = there && this.convert(withoutAnnotations(there), from.version).object
    if (back === undefined) return []
    const found = missing(object, back).filter((path) => side === 'old' || hasField(to.schema, path))
    return found.filter(
      (path) => !this.#kept.some((one) => path === one || path.startsWith(`${one}.`) || path.startsWith(`${one}[`)),
    )
  }

  /** One edit of the served version, by a client that keeps annotations and by one that drops them. */
  edited(object: KubeObject, values: Values): Found | undefined {
    const { old, stored } = this.#versions
    const { object: shown } = this.convert(object, old.version)
    const body = shown && bodyOf(shown)
    const root = body && values.pick(Object.keys(body))
    if (shown === undefined || body === undefined || root === undefined) return undefined
    const edit = { ...body, [root]: values.edited(body[root], schemaAt(old.schema, `.${root}`) ?? {}, `.${root}`) }
    if (faultOf(old, edit) !== undefined) return undefined
    const edited = { ...shown, ...edit }
    const [before, after] = [shown, edited].map((one) => this.convert(withoutAnnotations(one), stored.version).object)
    for (const [one, last] of [[edited], [withoutAnnotations(edited), shown]] as const) {
      const { object: written } = this.convert(one, stored.version, last)
      const { object: read } = written === undefined ? {} : this.convert(written, old.version)
      if (before === undefined || after === undefined || written === undefined || read === undefined) return undefined
      const lines = changesBetween(body, edit)
      if (changesBetween(edit, bodyOf(read)).length > 0)
        return { what: `an edit of ${old.version} is not what is read: ${lines.join(', ')}`, path: root }
      const [gone, come] = [missing(before, after), missing(after, before)]
      const isConcerned = (path: string): boolean => [...gone, ...come].some((near) => this.#isNear(path, near, gone))
      const other = [...missing(object, written), ...missing(written, object)].find((path) => !isConcerned(path))
      if (other !== undefined)
        return { what: `an edit of ${old.version} changes ${stored.version} ${other}`, path: other, lines }
    }
    return undefined
  }

  /**
   * Whether a field may change with another one: in a list without keys an edited element is a new one. In a list with
   * keys an element has to be gone.
   */
  #isNear(path: string, edit: string, gone: readonly string[]): boolean {
    if (path === edit || edit.startsWith(`${path}[]`)) return true
    return [...edit.matchAll(/\[\]/g)].some(({ index }) => {
      const list = edit.slice(0, index)
      const keys = schemaAt(this.#versions.stored.schema, list)?.['x-kubernetes-list-map-keys'] as string[] | undefined
      return path.startsWith(`${list}[]`) && (keys?.some((key) => gone.includes(`${list}[].${key}`)) ?? true)
    })
  }

  *#cases(isBroken: boolean): Generator<Case> {
    const { seed = 1, runs = 300, examples = [] } = this.#case
    for (const side of ['old', 'stored'] as const) {
      const [from, to] = this.#sides(side)
      const known = examples.map(bodyOf)
      const values = new Values(seed, known)
      let index = 0
      const one = (body: Body): Case => {
        const own = seed + index++
        return { side, from, to, object: this.#object(from, body), values: () => new Values(own, known) }
      }
      for (const example of examples) if (example.apiVersion.endsWith(`/${from.version}`)) yield one(bodyOf(example))
      let valid = 0
      let fault = ''
      for (let round = 0; round < runs; round++) {
        const body = values.admitted(from.schema) as Body
        const wrong = faultOf(from, body)
        if (wrong === undefined) valid++
        else fault = wrong.what
        if (wrong === undefined || isBroken) yield one(body)
        if (isBroken)
          yield one(Object.fromEntries(Object.entries(body).map(([root, part]) => [root, values.broken(part)])))
      }
      if (valid === 0 && runs > 0)
        throw new Error(`no valid object of ${this.#resource.kind} ${from.version} is found: ${fault}. Give "examples"`)
    }
  }

  #sides(side: Side): [from: ResourceVersion, to: ResourceVersion] {
    const { old, stored } = this.#versions
    return side === 'old' ? [old, stored] : [stored, old]
  }

  #object({ version }: ResourceVersion, body: Body): KubeObject {
    const { group, kind } = this.#resource
    const parts = Object.entries(body).filter(([name]) => name === 'spec' || name === 'status')
    return { apiVersion: `${group}/${version}`, kind, metadata: { name: 'a' }, ...Object.fromEntries(parts) }
  }

  /** Leaves out fields as long as the fault is the same. */
  #broken(one: Case, found: Found, isBroken: boolean, find: (one: Case) => Found | undefined): LawBroken {
    const [body, fault] = shrunk(bodyOf(one.object), found, (less) => {
      if (!isBroken && faultOf(one.from, less) !== undefined) return undefined
      const again = find({ ...one, object: this.#object(one.from, less) })
      return again?.path === found.path ? again : undefined
    })
    return this.#error({ ...one, object: this.#object(one.from, body) }, fault)
  }

  #error({ object }: Case, { what, lines }: Found): LawBroken {
    const { seed = 1 } = this.#case
    const shown = JSON.stringify(bodyOf(object))
    const smallest = shown.length > LONGEST ? `${shown.slice(0, LONGEST)}…` : shown
    return new LawBroken(
      `resource ${this.#resource.kind}: ${what}\n  ${object.apiVersion} ${smallest} (seed ${seed})`,
      lines === undefined ? {} : { lines, sides: ['before', 'after'] },
    )
  }
}

const bodyOf = ({ spec, status }: KubeObject | Body): Body =>
  JSON.parse(JSON.stringify({ ...(spec !== undefined && { spec }), ...(status !== undefined && { status }) })) as Body

function withoutAnnotations(object: KubeObject): KubeObject {
  const { annotations: _, ...metadata } = object.metadata
  return { ...object, metadata }
}

/** Why an object is invalid. No field of a status is required, as in a CustomResourceDefinition. */
function faultOf(version: ResourceVersion, body: Body): { what: string; path: string } | undefined {
  const schema = wholes.get(version) ?? wholeOf(version)
  wholes.set(version, schema)
  const [issue] = schema.safeParse({ spec: {}, ...body }).error?.issues ?? []
  if (issue === undefined) return undefined
  const path = issue.path.map((part) => (typeof part === 'number' ? '[]' : `.${String(part)}`)).join('')
  return { what: `${path}: ${issue.message}`, path }
}

const wholes = new WeakMap<ResourceVersion, z.ZodType>()

function wholeOf({ spec, status }: ResourceVersion): z.ZodType {
  const own = Object.entries(status.shape).map(([name, field]) => [name, z.optional(field as z.ZodType)] as const)
  return z.object({ spec, status: z.object(Object.fromEntries(own)).optional() })
}

/** The values that are no objects and no lists with elements, each with its path: `.spec.ports[].name`. */
function* leavesOf(value: unknown, path = ''): Generator<[path: string, value: unknown]> {
  if (Array.isArray(value) && value.length > 0) for (const item of value) yield* leavesOf(item, `${path}[]`)
  else if (isRecord(value)) for (const [name, field] of Object.entries(value)) yield* leavesOf(field, `${path}.${name}`)
  else yield [path, value]
}

function schemaAt(schema: Schema, path: string): Schema | undefined {
  let at: Schema | undefined = schema
  for (const [, name] of path.matchAll(/\.([^.[]*)|\[\]/g))
    at = name === undefined ? at?.items : (at?.properties?.[name] ?? at?.additionalProperties)
  return at
}

/** A schema that keeps unknown fields has each field. */
export const hasField = (schema: Schema, path: string): boolean =>
  schemaAt(schema, path) !== undefined ||
  [...path.matchAll(/[.[]/g)].some(({ index }) => schemaAt(schema, path.slice(0, index))?.[PRESERVE] === true)

/** The objects and lists of a value, without other values. */
function skeleton(value: unknown): unknown {
  if (Array.isArray(value)) return value.filter((item) => isRecord(item) || Array.isArray(item)).map(skeleton)
  if (!isRecord(value)) return undefined
  const fields = Object.entries(value).map(([name, field]) => [name, skeleton(field)] as const)
  return Object.fromEntries(fields.filter(([, field]) => field !== undefined && !isEmptyList(field)))
}

const isEmptyList = (value: unknown): boolean => Array.isArray(value) && value.length === 0

/** The paths of the values that the first object has, and the second one has not, or less often. */
function missing(one: KubeObject, other: KubeObject): string[] {
  const left = [...leavesOf(bodyOf(other))].map(([path, value]) => `${path} ${JSON.stringify(value)}`)
  return [...leavesOf(bodyOf(one))].flatMap(([path, value]) => {
    const index = left.indexOf(`${path} ${JSON.stringify(value)}`)
    if (index >= 0) left.splice(index, 1)
    return index >= 0 ? [] : [path]
  })
}

/** Leaves out fields as long as there is a fault. `find` returns undefined where there is none, or the value is not to be tried. */
export function shrunk<T, Fault>(value: T, fault: Fault, find: (less: T) => Fault | undefined): [smallest: T, Fault] {
  let [smallest, found, left] = [value, fault, SHRINKS]
  for (let isSmaller = true; isSmaller; ) {
    isSmaller = false
    for (const less of smallerThan(smallest)) {
      if (left-- <= 0) break
      const again = find(less as T)
      if (again === undefined) continue
      ;[smallest, found, isSmaller] = [less as T, again, true]
      break
    }
  }
  return [smallest, found]
}

/** Each value with one field or element less. */
function* smallerThan(value: unknown): Generator<unknown> {
  if (Array.isArray(value)) {
    for (const index of value.keys()) yield value.toSpliced(index, 1)
    for (const [index, item] of value.entries()) for (const less of smallerThan(item)) yield value.with(index, less)
  } else if (isRecord(value)) {
    const fields = Object.entries(value)
    for (const [name] of fields) yield Object.fromEntries(fields.filter(([other]) => other !== name))
    for (const [name, field] of fields) for (const less of smallerThan(field)) yield { ...value, [name]: less }
  }
}
