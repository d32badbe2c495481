import { isRecord, type KubeObject } from '#contracts'
import {
  type AdmittedWrite,
  equal,
  type FieldPath,
  grouped,
  literal,
  nameOf,
  not,
  plainName,
  schemaAt,
  stepsOf,
  type Term,
  termOf,
  unchanged,
  valueAt,
} from './rule.ts'
import type { StructuralSchema, ValidationRule } from './rules.ts'
import { refusePattern } from './structural.ts'

/**
 * When a rule applies, and what kubectl says.
 *
 * @example
 * import { immutable, type RuleOptions } from 'fairlead'
 * const once: RuleOptions = { when: '.status.bound', message: 'the volume is bound: create another one' }
 * immutable('.spec.size', once).message // => 'the volume is bound: create another one'
 */
export interface RuleOptions {
  /**
   * The rule applies only while this field is there, or has this value. A rule about changes looks at the object before
   * the write.
   */
  when?: FieldPath | readonly [path: FieldPath, value: string | number | boolean]
  /** What kubectl says. One line. @default what the rule demands */
  message?: string
}

/** What a write does. */
export type Operation = 'CREATE' | 'UPDATE' | 'DELETE'

interface Base {
  /** What the rule demands: `immutable .spec.size`. */
  readonly title: string
  /** What kubectl says when a write breaks it. */
  readonly message: string
}

/** Keywords of the schema. */
export interface SchemaRule extends Base {
  readonly in: 'schema'
  readonly path: FieldPath
  keywords(at: StructuralSchema): Partial<StructuralSchema>
}

/** A rule in CEL of the CustomResourceDefinition. */
export interface DefinitionRule extends Base {
  readonly in: 'definition'
  /** The fields that it reads. Messages name the first. */
  readonly paths: readonly FieldPath[]
  readonly reason: NonNullable<ValidationRule['reason']>
  /** Compares with the object before the write: checked at updates only. */
  readonly isTransition: boolean
  /** The rule is on the field, and not on the object that has it. */
  readonly isOnField?: boolean
  /** Breaks also where the spec is left out. */
  readonly demands?: boolean
  readonly when?: RuleOptions['when'] | undefined
  /** The types that the fields may have. */
  readonly types?: readonly string[]
  cel(now: readonly Term[], before: readonly Term[]): string
  /** The same in code, on the values of the fields. */
  holds(now: readonly unknown[], before: readonly unknown[], schemas: readonly StructuralSchema[]): boolean
}

/** A rule of a ValidatingAdmissionPolicy: on metadata, on the user, or on deletions. */
export interface PolicyRule extends Base {
  readonly in: 'policy'
  readonly path?: FieldPath
  readonly operations: readonly Operation[]
  /** Why the CustomResourceDefinition cannot have it. */
  readonly because: string
  /** The field that it protects, which `kubectl scale` may write too. Empty: the object. */
  readonly protects?: FieldPath | ''
  /** The expression; `scale`: the same on a Scale. */
  readonly cel: string
  readonly scale?: string
  holds(write: AdmittedWrite): boolean
}

/** A default of a MutatingAdmissionPolicy. */
export interface MutationRule extends Base {
  readonly in: 'mutation'
  readonly path: FieldPath
  readonly from: FieldPath
  readonly because: string
}

/**
 * A rule on the writes of a custom resource, which the API server checks without any process of yours. Builders such as
 * `immutable`, `exactlyOneOf` and `onlyGroups` make it.
 *
 * @example
 * import { onlyGroups, type Rule } from 'fairlead'
 * const rules: Rule[] = [onlyGroups(['admins'], ['DELETE'])]
 * rules[0]?.in // => 'policy'
 */
export type Rule = SchemaRule | DefinitionRule | PolicyRule | MutationRule

const listed = (paths: readonly FieldPath[]): string =>
  paths.length < 2
    ? paths.map(nameOf).join('')
    : `${paths.slice(0, -1).map(nameOf).join(', ')} and ${nameOf(paths.at(-1) as FieldPath)}`

const FORBIDDEN = 'FieldValueForbidden'
const INVALID = 'FieldValueInvalid'
const isThere = (value: unknown): boolean => value !== undefined

type Definition = Omit<DefinitionRule, 'in' | 'title' | 'message' | 'when' | 'reason' | 'isTransition'> &
  Partial<Pick<DefinitionRule, 'reason' | 'isTransition'>>

function definition(name: string, means: string, { when, message }: RuleOptions, rule: Definition): DefinitionRule {
  for (const path of [...rule.paths, ...pathOf(when)]) stepsOf(path)
  const title = `${name} ${rule.paths.join(' ')}${when === undefined ? '' : ` when ${[when].flat().join(' is ')}`}`
  const fixed = { in: 'definition', title, message: message ?? means, when } as const
  return Object.freeze({ reason: INVALID, isTransition: false, ...rule, ...fixed })
}

/** The path of a condition, in a list. */
export const pathOf = (when: RuleOptions['when']): FieldPath[] =>
  when === undefined ? [] : [typeof when === 'string' ? when : when[0]]

const change = (
  name: string,
  means: string,
  path: FieldPath,
  options: RuleOptions,
  rule: Pick<DefinitionRule, 'cel' | 'holds' | 'types'>,
) =>
  definition(name, `${nameOf(path)} ${means}`, options, {
    paths: [path],
    reason: FORBIDDEN,
    isTransition: true,
    ...rule,
  })

/**
 * The field keeps its value, or stays absent, from the creation of the object on.
 *
 * @example
 * import { immutable } from 'fairlead'
 * immutable('.spec.zone').message // => 'spec.zone cannot be changed'
 */
export const immutable = (path: FieldPath, options: RuleOptions = {}): Rule =>
  change('immutable', 'cannot be changed', path, options, {
    cel: ([now], [before]) => unchanged(now as Term, before as Term),
    holds: ([now], [before], [schema]) => equal(now, before, schema),
  })

/**
 * The field may be set later, and then keeps its value.
 *
 * @example
 * import { setOnce } from 'fairlead'
 * setOnce('.spec.claim').message // => 'spec.claim is set once: it cannot be changed or removed'
 */
export const setOnce = (path: FieldPath, options: RuleOptions = {}): Rule =>
  change('setOnce', 'is set once: it cannot be changed or removed', path, options, {
    cel: ([now], [before]) => `${not((before as Term).isSet)} || (${both(now as Term)} == ${before?.value})`,
    holds: ([now], [before], [schema]) => before === undefined || equal(now, before, schema),
  })

const both = ({ isSet, value }: Term): string => (isSet === 'true' ? value : `${isSet} && ${value}`)

/**
 * The number may grow, and neither shrinks nor goes.
 *
 * @example
 * import { onlyGrows } from 'fairlead'
 * onlyGrows('.spec.size').message // => 'spec.size only grows'
 */
export const onlyGrows = (path: FieldPath, options: RuleOptions = {}): Rule =>
  change('onlyGrows', 'only grows', path, options, {
    types: NUMBERS,
    cel: ([now], [before]) => `${not((before as Term).isSet)} || (${both(now as Term)} >= ${before?.value})`,
    holds: ([now], [before]) => before === undefined || (now as number) >= (before as number),
  })

const NUMBERS = ['integer', 'number']

const isSetText = (terms: readonly Term[]): string[] => terms.map(({ isSet }) => grouped(isSet))

const countOf = (terms: readonly Term[]): string => `[${isSetText(terms).join(', ')}].filter(one, one).size()`
const thereIn = (values: readonly unknown[]): number => values.filter(isThere).length

/**
 * One of the fields is there, and not two, in each object that has them.
 *
 * @example
 * import { exactlyOneOf } from 'fairlead'
 * exactlyOneOf(['.spec.git', '.spec.image']).message // => 'exactly one of spec.git and spec.image has to be there'
 */
export const exactlyOneOf = (paths: readonly FieldPath[], options: RuleOptions = {}): Rule =>
  definition('exactlyOneOf', `exactly one of ${listed(paths)} has to be there`, options, {
    paths,
    demands: true,
    cel: (now) => `${countOf(now)} == 1`,
    holds: (now) => thereIn(now) === 1,
  })

/**
 * No two of the fields are there.
 *
 * @example
 * import { atMostOneOf } from 'fairlead'
 * atMostOneOf(['.spec.git', '.spec.image']).message // => 'spec.git and spec.image exclude each other'
 */
export const atMostOneOf = (paths: readonly FieldPath[], options: RuleOptions = {}): Rule =>
  definition('atMostOneOf', `${listed(paths)} exclude each other`, options, {
    paths,
    cel: (now) => (now.length === 2 ? `!(${isSetText(now).join(' && ')})` : `${countOf(now)} <= 1`),
    holds: (now) => thereIn(now) <= 1,
  })

/**
 * One of the fields is there, or several are.
 *
 * @example
 * import { atLeastOneOf } from 'fairlead'
 * atLeastOneOf(['.spec.s3'], { when: ['.spec.store', 'S3'] }).message // => 'spec.s3 has to be there'
 */
export const atLeastOneOf = (paths: readonly FieldPath[], options: RuleOptions = {}): Rule =>
  definition('atLeastOneOf', `${paths.length > 1 ? 'one of ' : ''}${listed(paths)} has to be there`, options, {
    paths,
    reason: 'FieldValueRequired',
    demands: true,
    cel: (now) => isSetText(now).join(' || '),
    holds: (now) => thereIn(now) > 0,
  })

/**
 * All of the fields are there, or none is.
 *
 * @example
 * import { together } from 'fairlead'
 * together(['.spec.user', '.spec.password']).message // => 'spec.user and spec.password need each other'
 */
export const together = (paths: readonly FieldPath[], options: RuleOptions = {}): Rule =>
  definition('together', `${listed(paths)} need each other`, options, {
    paths,
    cel: (now) => (now.length === 2 ? isSetText(now).join(' == ') : `${countOf(now)} in [0, ${now.length}]`),
    holds: (now) => [0, now.length].includes(thereIn(now)),
  })

/**
 * The number is not above another one, if both are there.
 *
 * @example
 * import { atMost } from 'fairlead'
 * atMost('.spec.min', '.spec.max').message // => 'spec.min is above spec.max'
 */
export const atMost = (path: FieldPath, other: FieldPath, options: RuleOptions = {}): Rule =>
  definition('atMost', `${nameOf(path)} is above ${nameOf(other)}`, options, {
    paths: [path, other],
    types: NUMBERS,
    cel: ([low, high]) => `!(${low?.isSet} && ${high?.isSet}) || ${low?.value} <= ${high?.value}`,
    holds: ([low, high]) => low === undefined || high === undefined || (low as number) <= (high as number),
  })

/**
 * The record has none of these keys. `*` at the end stands for any rest: `example.com/*`.
 *
 * @example
 * import { reserved } from 'fairlead'
 * reserved('.spec.labels', ['app', 'etcd_*']).message // => 'spec.labels cannot have the keys app, etcd_*'
 */
export function reserved(path: FieldPath, keys: readonly string[], options: RuleOptions = {}): Rule {
  const isTaken = (key: string): boolean =>
    keys.some((one) => (one.endsWith('*') ? key.startsWith(one.slice(0, -1)) : key === one))
  const tests = keys.map((one) =>
    one.endsWith('*') ? `!key.startsWith(${literal(one.slice(0, -1))})` : `key != ${literal(one)}`,
  )
  return definition('reserved', `${nameOf(path)} cannot have the keys ${keys.join(', ')}`, options, {
    paths: [path],
    isOnField: true,
    types: ['object'],
    cel: ([record]) =>
      `${record?.isSet === 'true' ? '' : `${not(record?.isSet ?? '')} || `}${record?.value}.all(key, ${tests.join(' && ')})`,
    holds: ([record]) => !Object.keys(isRecord(record) ? record : {}).some(isTaken),
  })
}

function refuseRegExp({ source, flags }: RegExp, where: string): void {
  refusePattern(source, `the pattern of ${where}`)
  if (flags !== '') throw new Error(`the pattern of ${where} has flags, /${source}/${flags}: write it without`)
}

/**
 * The name of the object matches the pattern. Objects of before keep their names.
 *
 * @example
 * import { named } from 'fairlead'
 * named(/^[a-z]{1,20}$/, { message: 'the name is 1 to 20 letters' }).title // => 'named .metadata.name'
 */
export function named(pattern: RegExp, options: RuleOptions = {}): Rule {
  refuseRegExp(pattern, 'named()')
  if (pattern.source.length > 120)
    throw new Error('the pattern of named() has more than 120 characters: the API server would refuse it for its cost')
  return definition('named', `the name has to match ${pattern.source}`, options, {
    paths: ['.metadata.name'],
    cel: ([name]) => `${name?.value}.matches(${literal(pattern.source)})`,
    holds: ([name]) => pattern.test(String(name)),
  })
}

/**
 * The elements of a list differ: as a whole, or in the field that is their key. Server-side apply then merges the list
 * element by element, and rules about changes may name fields of its elements.
 *
 * @example
 * import { unique } from 'fairlead'
 * unique('.spec.ports', 'name').title // => 'unique .spec.ports by name'
 */
export function unique(path: FieldPath, key?: string): Rule {
  stepsOf(path)
  return Object.freeze({
    in: 'schema' as const,
    title: `unique ${path}${key === undefined ? '' : ` by ${key}`}`,
    message: 'Duplicate value',
    path,
    keywords({ items }: StructuralSchema): Partial<StructuralSchema> {
      if (items === undefined) throw new Error(`${nameOf(path)} is not a list`)
      const isObject = items.type === 'object'
      if (key === undefined && isObject) throw new Error(`the elements of ${nameOf(path)} are objects: name their key`)
      if (key === undefined) return { 'x-kubernetes-list-type': 'set' }
      const field = schemaAt(items, [key], `${nameOf(path)}[].${key}`)
      if (!items.required?.includes(key) && field['default'] === undefined)
        throw new Error(`${nameOf(path)}[].${key} may be left out, so it cannot be the key: make it required`)
      return { 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': [key] }
    },
  })
}

const policy = (rule: Omit<PolicyRule, 'in'>): Rule => Object.freeze({ in: 'policy' as const, ...rule })

/**
 * The object has a label with such a value. An object of before may keep the label that it has.
 *
 * @example
 * import { labelled } from 'fairlead'
 * labelled('team', /^[a-z]+$/).message // => 'the label team has to match ^[a-z]+$'
 */
export function labelled(key: string, pattern: RegExp, { message }: Pick<RuleOptions, 'message'> = {}): Rule {
  refuseRegExp(pattern, 'labelled()')
  const name = literal(key)
  const has = (of: string): string => `(has(${of}.metadata.labels) && ${name} in ${of}.metadata.labels)`
  const value = (of: string): string => `${of}.metadata.labels[${name}]`
  const same = `${has('object')} == ${has('oldObject')} && (!${has('object')} || ${value('object')} == ${value('oldObject')})`
  const labelOf = (object?: KubeObject): string | undefined => object?.metadata.labels?.[key]
  return policy({
    title: `labelled ${key}`,
    message: message ?? `the label ${key} has to match ${pattern.source}`,
    because: 'it reads a label',
    operations: ['CREATE', 'UPDATE'],
    cel: `(oldObject != null && ${same}) || (${has('object')} && ${value('object')}.matches(${literal(pattern.source)}))`,
    holds({ object, old }) {
      const label = labelOf(object)
      return (old !== undefined && label === labelOf(old)) || (label !== undefined && pattern.test(label))
    },
  })
}

/**
 * Only members of these groups may do this: create, update or delete objects, or change the field. Who may not delete an
 * object may not change its owners either. It does not concern the functions of the resource, writes of the status, and
 * the deletion of a namespace or of an owner.
 *
 * @example
 * import { onlyGroups } from 'fairlead'
 * onlyGroups(['admins'], '.spec.quota').message // => 'only admins may change spec.quota'
 */
export function onlyGroups(
  groups: readonly string[],
  what: readonly Operation[] | FieldPath,
  { message }: Pick<RuleOptions, 'message'> = {},
): Rule {
  const isMember = `request.userInfo.groups.exists(group, group in [${groups.map(literal).join(', ')}])`
  const isIn = ({ groups: own = [] }: AdmittedWrite): boolean => own.some((group) => groups.includes(group))
  const who = groups.join(' or ')
  const because = 'it reads the groups of the user'
  if (typeof what !== 'string') {
    const title = `onlyGroups ${who} ${what.join(' ')}`
    const means = `only ${who} may ${what.join(' or ').toLowerCase()} it`
    const rule = { title, message: message ?? means, because, operations: what, cel: isMember, holds: isIn }
    return policy(what.includes('UPDATE') ? { ...rule, protects: '', scale: isMember } : rule)
  }
  const steps = stepsOf(what)
  if (steps[0] !== 'spec') throw new Error(`onlyGroups() protects a field of the spec, not ${what}`)
  const [now, before] = ['object', 'oldObject'].map((root) => termOf(root, steps, plainName))
  const replicas = ['object', 'oldObject'].map((root) => termOf(root, ['spec', 'replicas']))
  return policy({
    title: `onlyGroups ${who} ${what}`,
    message: message ?? `only ${who} may change ${nameOf(what)}`,
    because,
    path: what,
    operations: ['UPDATE'],
    protects: what,
    cel: `(${unchanged(now as Term, before as Term)}) || ${isMember}`,
    scale: `(${unchanged(replicas[0] as Term, replicas[1] as Term)}) || ${isMember}`,
    holds: (write) => equal(valueAt(write.object, steps), valueAt(write.old, steps), undefined) || isIn(write),
  })
}

/**
 * The object cannot be deleted, and its owners cannot be changed, while the field has this value. The deletion of its
 * namespace or of an owner deletes it. It does not concern the functions of the resource.
 *
 * @example
 * import { notDeletedWhile } from 'fairlead'
 * notDeletedWhile('.spec.protected', true).message // => 'it cannot be deleted while spec.protected is true'
 */
export function notDeletedWhile(
  path: FieldPath,
  value: string | number | boolean,
  { message }: Pick<RuleOptions, 'message'> = {},
): Rule {
  const steps = stepsOf(path)
  const old = termOf('oldObject', steps, plainName)
  return policy({
    title: `notDeletedWhile ${path} is ${value}`,
    message: message ?? `it cannot be deleted while ${nameOf(path)} is ${value}`,
    because: 'it is about a deletion',
    path,
    operations: ['DELETE'],
    cel: `!(${old.isSet} && ${old.value} == ${literal(value)})`,
    holds: ({ old: object }) => valueAt(object, steps) !== value,
  })
}

/**
 * A field that is left out at creation gets the value of another one: the default is computed, where `.default()` is a
 * constant.
 *
 * @example
 * import { defaultFrom } from 'fairlead'
 * defaultFrom('.spec.host', '.metadata.name').in // => 'mutation'
 */
export function defaultFrom(path: FieldPath, from: FieldPath): Rule {
  for (const one of [path, from]) stepsOf(one).forEach(plainName)
  if (!path.startsWith('.spec.')) throw new Error(`defaultFrom() fills in a field of the spec, not ${path}`)
  const title = `defaultFrom ${path} from ${from}`
  return Object.freeze({
    in: 'mutation' as const,
    title,
    message: title,
    path,
    from,
    because: 'its default is another field',
  })
}
