import { isRecord } from '#contracts'
import { plain } from './options.ts'
import {
  type FieldPath,
  isEach,
  nameOf,
  type Step as PathStep,
  propertyAt,
  schemaAt,
  stepsOf,
  valueAt,
} from './rule.ts'
import type { StructuralSchema } from './rules.ts'

/** `spec` and `status` of an object. A conversion gets nothing else. */
export interface Body {
  spec?: unknown
  status?: unknown
}

/**
 * A field that means the same in two versions, and is written otherwise. `moved`, `wrapped`, `mapped` and `scaled` make
 * it. `From` is its path in the served version, `To` its path in the storage version.
 *
 * @example
 * import { type ConversionStep, moved } from 'fairlead'
 * const steps: ConversionStep[] = [moved('.spec.url', '.spec.http.url')]
 * steps[0]?.step // => 'moved'
 */
export interface ConversionStep<From extends FieldPath = FieldPath, To extends FieldPath = FieldPath> {
  readonly step: 'moved' | 'wrapped' | 'mapped' | 'scaled'
  readonly from: From
  readonly to: To
  /** Returns the value for the schema of the other side; undefined if the other side cannot hold it. */
  readonly up: (value: unknown, there: StructuralSchema) => unknown
  readonly down: (value: unknown, there: StructuralSchema) => unknown
}

type Way = Pick<ConversionStep, 'up' | 'down'>

function step<From extends FieldPath, To extends FieldPath>(
  name: ConversionStep['step'],
  from: From,
  to: To,
  way: Way,
): ConversionStep<From, To> {
  for (const path of [from, to])
    if (!/^\.(?:spec|status)\./.test(path) || stepsOf(path).some(isEach))
      throw new Error(`${name} ${path}: it takes fields of spec and status, and no elements of lists or records`)
  if (stepsOf(from)[0] !== stepsOf(to)[0])
    throw new Error(`${name} ${from} ${to}: who may write the status could write the spec: a field stays in its part`)
  return Object.freeze({ step: name, from, to, ...way })
}

/**
 * The field has another path in the storage version, with the same values.
 *
 * @example
 * import { moved } from 'fairlead'
 * moved('.spec.url', '.spec.http.url').to // => '.spec.http.url'
 */
export const moved = <const From extends FieldPath, const To extends FieldPath>(
  from: From,
  to: To,
): ConversionStep<From, To> => step('moved', from, to, { up: (value) => value, down: (value) => value })

/**
 * The storage version has a list of what the served version has once. The served version shows the first element; the
 * others stay as they are while it is edited or removed. An element that is edited keeps no fields that the served version
 * does not have.
 *
 * @example
 * import { wrapped } from 'fairlead'
 * wrapped('.spec.port', '.spec.ports').to // => '.spec.ports'
 */
export const wrapped = <const From extends FieldPath, const To extends FieldPath>(
  from: From,
  to: To,
): ConversionStep<From, To> =>
  step('wrapped', from, to, {
    up: (value) => (value === null ? undefined : [value]),
    down: (list) => (list as unknown[])[0],
  })

/**
 * The value has another form. `up` returns that of the storage version, `down` that of the served version, both
 * undefined if there is none. They are called with values of the type of the schema alone. If one throws, the object is
 * shown in part, and cannot be written in the served version.
 *
 * @example
 * import { mapped } from 'fairlead'
 * const upper = mapped('.spec.mode', '.spec.mode', (mode: string) => mode.toUpperCase(), (mode: string) => mode.toLowerCase())
 * upper.from // => '.spec.mode'
 */
export const mapped = <const From extends FieldPath, const To extends FieldPath, Old, Now>(
  from: From,
  to: To,
  up: (old: Old) => Now | undefined,
  down: (now: Now) => Old | undefined,
): ConversionStep<From, To> =>
  step('mapped', from, to, {
    // An author may sort a list in its place.
    up: (value) => up(plain(value, from) as Old),
    down: (value) => down(plain(value, to) as Now),
  })

/**
 * The number has another unit: in the storage version it is `factor` times as large. It is rounded where the schema has an
 * integer; what rounding takes away stays until the served version is edited. Throws an Error for a factor that is not
 * above 0.
 *
 * @example
 * import { scaled } from 'fairlead'
 * scaled('.spec.seconds', '.spec.ms', 1000).from // => '.spec.seconds'
 */
export function scaled<const From extends FieldPath, const To extends FieldPath>(
  from: From,
  to: To,
  factor: number,
): ConversionStep<From, To> {
  if (!(Number.isFinite(factor) && factor > 0)) throw new Error(`scaled ${from} ${to}: the factor is ${factor}`)
  const numberFor = (value: number, { type }: StructuralSchema) => {
    const whole = type === 'integer' ? Math.round(value) : value
    return Number.isFinite(whole) && (type !== 'integer' || Number.isSafeInteger(whole)) ? whole : undefined
  }
  return step('scaled', from, to, {
    up: (value, there) => numberFor((value as number) * factor, there),
    down: (value, there) => numberFor((value as number) / factor, there),
  })
}

/** What a conversion has made, and why it could not make all of it. */
export interface Made {
  body: Body
  problem?: string
}

/** Converts bodies, and never throws. */
export interface Ways {
  readonly up: (old: Body) => Made
  readonly down: (now: Body) => Made
}

interface Fitted {
  step: ConversionStep['step']
  title: string
  from: PathStep[]
  to: PathStep[]
  old: StructuralSchema
  now: StructuralSchema
  way: Way
}

/**
 * Returns the conversion of steps. Fields without a step keep their paths. Throws an Error for a step that does not fit
 * the schemas, and for two steps on one field.
 */
export function waysOf(steps: readonly ConversionStep[], old: StructuralSchema, now: StructuralSchema): Ways {
  const fitted = steps.map((one) => fittedTo(one, old, now))
  for (const side of ['from', 'to'] as const)
    for (const [index, one] of fitted.entries())
      for (const other of fitted.slice(0, index))
        if (isWithin(one[side], other[side]) || isWithin(other[side], one[side]))
          throw new Error(`${one.title} and ${other.title} are about the same field`)
  refuseLeftBehind(fitted, 'from', 'to', old)
  refuseLeftBehind(fitted, 'to', 'from', now)
  return { up: (body) => walk(fitted, 'up', body), down: (body) => walk(fitted, 'down', body) }
}

function fittedTo(
  { step: kind, from, to, up, down }: ConversionStep,
  old: StructuralSchema,
  now: StructuralSchema,
): Fitted {
  const title = `${kind} ${from} ${to}`
  const [fromSteps, toSteps] = [stepsOf(from), stepsOf(to)]
  const schemaOf = (schema: StructuralSchema, steps: PathStep[], path: FieldPath): StructuralSchema => {
    try {
      return schemaAt(schema, steps, nameOf(path))
    } catch (error) {
      throw new Error(`${title}: ${(error as Error).message}`, { cause: error })
    }
  }
  const there = { old: schemaOf(old, fromSteps, from), now: schemaOf(now, toSteps, to) }
  const demand = (isMet: boolean, what: string): void => {
    if (!isMet) throw new Error(`${title}: ${what}`)
  }
  const types = [there.old.type, there.now.type]
  if (kind === 'moved') demand(types[0] === types[1], `it is ${types[0]} and becomes ${types[1]}: use mapped()`)
  if (kind === 'wrapped')
    demand(types[1] === 'array' && there.now.items?.type === types[0], `${nameOf(to)} is no list of ${types[0]}`)
  if (kind === 'scaled')
    demand(
      types.every((type) => /^(?:integer|number)$/.test(type ?? '')),
      'it takes two numbers',
    )
  return { step: kind, title, from: fromSteps, to: toSteps, ...there, way: { up, down } }
}

const isWithin = (path: readonly string[], outer: readonly string[]): boolean =>
  outer.every((part, index) => path[index] === part)

/** A field may not mean two things: where a step puts its value, the version has no other field of that path. */
function refuseLeftBehind(
  fitted: readonly Fitted[],
  here: 'from' | 'to',
  there: 'from' | 'to',
  schema: StructuralSchema,
): void {
  for (const { title, [there]: target } of fitted) {
    const isTaken = fitted.some((one) => isWithin(target, one[here]))
    const isThere = propertyAt(schema, target) !== undefined
    if (!isTaken && isThere)
      throw new Error(`${title}: the other version has a field ${target.join('.')} too: it needs a step of its own`)
  }
}

function walk(fitted: readonly Fitted[], way: 'up' | 'down', body: Body): Made {
  const isUp = way === 'up'
  let rest: unknown = body
  for (const { from, to } of fitted) for (const path of [from, to]) rest = without(rest, path)
  const problems: string[] = []
  for (const { step: kind, title, from, to, old, now, way: made } of fitted) {
    const [source, target] = isUp ? [old, now] : [now, old]
    const value = valueAt(body, isUp ? from : to)
    if (value === undefined || (kind !== 'moved' && !fits(value, source))) continue
    try {
      const other = made[way](value, target)
      if (other === undefined) continue
      const text = `what ${title} returns`
      if (kind === 'wrapped' && !fits(other, target)) continue
      if (kind !== 'moved' && !fits(other, target)) throw new TypeError(`${text} is no ${target.type}`)
      rest = withValue(rest, isUp ? to : from, plain(other, text))
    } catch (error) {
      problems.push(`${title}: ${error instanceof Error ? error.message : String(error)}`)
    }
  }
  return { body: rest as Body, ...(problems.length > 0 && { problem: problems.join('; ') }) }
}

/** Whether a value has the type of the schema. What has not, stays where it is. */
function fits(value: unknown, schema: StructuralSchema): boolean {
  if (value === null) return schema['nullable'] === true
  switch (schema.type) {
    case 'object':
      return isRecord(value)
    case 'array':
      return Array.isArray(value)
    case 'integer':
      return Number.isInteger(value)
    case undefined:
      return true
    default:
      return typeof value === schema.type
  }
}

/** Removes a field, and the objects around it that become empty by that, but not spec and status. */
function without(value: unknown, [part = '', ...rest]: readonly string[], isRoot = true): unknown {
  if (!isRecord(value) || !Object.hasOwn(value, part)) return value
  const left = rest.length === 0 ? undefined : without(value[part], rest, false)
  if (left === value[part]) return value
  const isGone = left === undefined || (!isRoot && isRecord(left) && Object.keys(left).length === 0)
  const others = Object.entries(value).filter(([name]) => name !== part)
  return Object.fromEntries(isGone ? others : [...others, [part, left]])
}

/** Sets a field. Where an object on the way is no object, the field is left out. */
function withValue(value: unknown, [part, ...rest]: readonly string[], field: unknown): unknown {
  if (part === undefined) return field
  if (value !== undefined && !isRecord(value)) return value
  const inner = value !== undefined && Object.hasOwn(value, part) ? value[part] : undefined
  return { ...value, [part]: withValue(inner, rest, field) }
}
