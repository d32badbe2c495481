import { type KubeObject, withValueAt } from '#contracts'
import { policyNameOf } from '#spec'
import {
  type DefinitionRule,
  type MutationRule,
  type Operation,
  type PolicyRule,
  pathOf,
  type Rule,
} from './builders.ts'
import {
  type AdmittedWrite,
  ELEMENT,
  equal,
  type FieldPath,
  grouped,
  isEach,
  keysOfList,
  literal,
  nameOf,
  not,
  plainName,
  type Step,
  schemaAt,
  stepsOf,
  termOf,
  unchanged,
  VALUE,
  type Violation,
  valueAt,
  valuesAt,
  withDefaults,
} from './rule.ts'
import { RULES, type StructuralSchema, type ValidationRule, withObjectRules } from './rules.ts'

/** Returns the schema of an object with the rules that a definition can have. Throws an Error that names the rule. */
export function withRules(
  schema: StructuralSchema,
  rules: readonly Rule[],
  validations: readonly ValidationRule[] | undefined,
): StructuralSchema {
  const root = structuredClone(schema)
  const ofObject = [...(validations ?? [])]
  let cost = 0
  // Rules about changes need the keys of lists.
  for (const rule of rules.toSorted((one, other) => Number(other.in === 'schema') - Number(one.in === 'schema')))
    try {
      cost += include(root, rule, ofObject)
      if (cost > MOST_COST_OF_ALL)
        throw new Error('all rules together cost the API server too much: give lists a lower .max()')
    } catch (error) {
      throw new Error(`rules: ${rule.title}: ${(error as Error).message}`, { cause: error })
    }
  return validations === undefined && ofObject.length === 0 ? root : withObjectRules(root, ofObject)
}

/** Returns what the rule costs the API server. */
function include(root: StructuralSchema, rule: Rule, ofObject: ValidationRule[]): number {
  if (rule.in === 'schema') {
    const at = fieldAt(root, rule.path)
    Object.assign(at, rule.keywords(at))
  } else if (rule.in === 'definition') {
    const { steps, validation, cost } = compiled(root, rule)
    const at = schemaAt(root, steps, '')
    if (steps.length === 0) ofObject.push(validation)
    else at[RULES] = [...((at[RULES] as ValidationRule[] | undefined) ?? []), validation]
    // Without the spec, a rule of the spec would not be checked.
    if (rule.demands && steps.join() === 'spec') root.required = ['spec']
    return cost
  } else if (rule.in === 'mutation') {
    const [at, from] = [rule.path, rule.from].map((path) => fieldAt(root, path).type)
    if (at !== from) throw new Error(`${nameOf(rule.path)} is ${at}, and ${nameOf(rule.from)} is ${from}`)
  } else if (rule.path !== undefined) fieldAt(root, rule.path)
  return 0
}

const METADATA: StructuralSchema = {
  type: 'object',
  properties: { name: { type: 'string' }, namespace: { type: 'string' } },
}

const fieldAt = (root: StructuralSchema, path: FieldPath): StructuralSchema =>
  schemaAt({ ...root, properties: { metadata: METADATA, ...root.properties } }, stepsOf(path), nameOf(path))

/** Where a rule of a definition is, and how it reads its fields from there. */
interface Place {
  steps: Step[]
  fields: Step[][]
  when: Step[] | undefined
}

function placeOf(rule: DefinitionRule): Place {
  const paths = [...rule.paths, ...pathOf(rule.when)].map(stepsOf)
  const isAtObject = rule.isTransition || rule.at === 'root'
  const isOnField = isAtObject || (rule.at === 'field' && paths.length === 1)
  const common = paths.map((steps) => (isOnField ? steps : steps.slice(0, -1))).reduce(commonStart)
  // A field that goes has no rule any more, so a rule about changes is on an object that stays.
  const steps = isAtObject ? common.slice(0, common.findLastIndex(isEach) + 1) : common
  const fields = paths.map((path) => path.slice(steps.length))
  if (fields.some((field) => field.some(isEach)))
    throw new Error('the fields are in different elements: a rule reads one element')
  return { steps, fields: fields.slice(0, rule.paths.length), when: rule.when && fields.at(-1) }
}

function commonStart(one: Step[], other: Step[]): Step[] {
  const end = one.findIndex((step, index) => step !== other[index])
  return end === -1 ? one : one.slice(0, end)
}

interface Compiled {
  steps: Step[]
  validation: ValidationRule
  cost: number
}

function compiled(root: StructuralSchema, rule: DefinitionRule): Compiled {
  for (const path of [...rule.paths, ...pathOf(rule.when)]) refuseUnreadable(root, path)
  const { types } = rule
  if (types !== undefined) for (const path of rule.paths) refuseType(fieldAt(root, path), path, types)
  const { steps, fields, when } = placeOf(rule)
  if (rule.isTransition) refuseUncorrelated(root, steps)
  const cost = costOf(root, rule, steps)
  const isObject = steps.length === 0
  const [now, before] = ['self', isObject && !rule.isTransition ? 'oldSelf.value()' : 'oldSelf'].map((of) =>
    fields.map((field) => termOf(of, field)),
  )
  let text = rule.cel(now ?? [], before ?? [])
  if (when !== undefined) text = `${not(conditionOf(root, rule, when))} || (${text})`
  const isOptional = isObject && !rule.isTransition
  if (isOptional) {
    // An object that was stored before the rule goes on, until its fields change.
    const same = fields.flatMap((field, index) =>
      field[0] === 'metadata' ? [] : [`(${unchanged(now?.[index] as never, before?.[index] as never)})`],
    )
    text = `${grouped(['oldSelf.hasValue()', ...same].join(' && '))} || (${text})`
  }
  const [field = []] = fields
  const isNamed = rule.paths.length === 1 && field.length > 0
  return {
    steps,
    cost,
    validation: {
      rule: text,
      message: rule.message,
      ...(rule.reason !== 'FieldValueInvalid' && { reason: rule.reason }),
      ...(isNamed && { fieldPath: field.map((name) => (/^\w+$/.test(name) ? `.${name}` : `['${name}']`)).join('') }),
      ...(isOptional && { optionalOldSelf: true }),
    },
  }
}

function conditionOf(root: StructuralSchema, { when, isTransition }: DefinitionRule, field: readonly Step[]): string {
  const { isSet, value } = termOf(isTransition ? 'oldSelf' : 'self', field)
  if (typeof when !== 'object') return isSet
  const [path, wanted] = when
  const { type } = fieldAt(root, path)
  return `${isSet} && ${value} == ${type === 'number' && Number.isInteger(wanted) ? `${wanted}.0` : literal(wanted)}`
}

function refuseUnreadable(root: StructuralSchema, path: FieldPath): void {
  if (stepsOf(path)[0] === 'metadata' && path !== '.metadata.name')
    throw new Error(`of the metadata a definition reads the name alone, not ${path}: labels have labelled()`)
  const { type, 'x-kubernetes-int-or-string': isEither } = fieldAt(root, path)
  if (type === undefined && isEither !== true) throw new Error(`${nameOf(path)} has no type, so CEL cannot read it`)
}

function refuseType({ type = '', nullable }: StructuralSchema, path: FieldPath, types: readonly string[]): void {
  if (!types.includes(type))
    throw new Error(`${nameOf(path)} is ${type || 'of any type'}: it has to be ${types.join(' or ')}`)
  if (nullable === true) throw new Error(`${nameOf(path)} may be null, which has no order: make it optional instead`)
}

function refuseUncorrelated(root: StructuralSchema, steps: readonly Step[]): void {
  for (const [index, step] of steps.entries()) {
    const list = steps.slice(0, index)
    if (step !== ELEMENT || keysOfList(schemaAt(root, list, '')) !== undefined) continue
    const path = textOf(list)
    throw new Error(`elements of ${path} cannot be found again after a write: add unique('.${path}', KEY)`)
  }
}

/** Limits of the API server: its estimates of one expression and of a definition, and the bytes of a request. */
const MOST_COST = 10_000_000
const MOST_COST_OF_ALL = 100_000_000
const MOST_BYTES = 3_145_726

/**
 * Returns what the API server estimates for the rule, within some tenths. Throws if it would refuse the rule for that: it
 * multiplies the cost of a check by the number of elements that can have it.
 */
function costOf(root: StructuralSchema, rule: DefinitionRule, steps: readonly Step[]): number {
  const containers = [...steps, ...(rule.at === 'field' ? [VALUE] : [])]
    .flatMap((step, index) => (isEach(step) ? [steps.slice(0, index)] : []))
    .map((path) => ({ path: textOf(path), ...countOf(schemaAt(root, path, '')) }))
  const compared = Math.max(
    0,
    ...(rule.isTransition ? rule.paths.map((path) => comparisonCost(fieldAt(root, path))) : []),
  )
  const each = (rule.weight ?? 10) + (rule.when === undefined ? 0 : 5) + compared
  const cost = containers.reduce((product, { most }) => product * most, each)
  const widest = containers.filter(({ isOpen }) => isOpen).at(-1) ?? containers.at(-1)
  if (cost <= MOST_COST || widest === undefined) return cost
  const fits = Math.floor(MOST_COST / (cost / widest.most))
  const long = compared > 1000 ? `, and ${rule.paths.map(nameOf).join(', ')} a .max()` : ''
  const how = widest.isList ? '.max(N)' : '.meta({ maxProperties: N })'
  throw new Error(
    `it would cost the API server too much to check: give ${widest.path} ${how}, with N of at most ${Math.max(1, fits)}${long}`,
  )
}

/** `spec.ports[].hosts` */
const textOf = (steps: readonly Step[]): string => steps.join('.').replaceAll('.[]', '[]').replaceAll('..', '.')

function countOf(schema: StructuralSchema): { most: number; isOpen: boolean; isList: boolean } {
  const [given, isList] = [schema['maxItems'] ?? schema['maxProperties'], schema.items !== undefined]
  if (typeof given === 'number') return { most: given, isOpen: false, isList }
  const least = leastBytes(schema.items ?? schema.additionalProperties) + (isList ? 1 : 6)
  return { most: Math.floor(MOST_BYTES / least), isOpen: true, isList }
}

/** The bytes that a value takes at least, as the API server counts them. */
function leastBytes(schema: StructuralSchema = {}): number {
  const { type, required = [], properties = {} } = schema
  if (type === 'object')
    return required
      .filter((name) => properties[name]?.['default'] === undefined)
      .reduce((bytes, name) => bytes + name.length + leastBytes(properties[name]) + 4, 2)
  return type === 'boolean' ? 4 : type === 'string' || type === 'array' ? 2 : 1
}

/** A tenth of the bytes of a text, or of the elements of a list. */
function comparisonCost(schema: StructuralSchema): number {
  const { type, enum: values, maxLength, format } = schema
  if (type === 'array') return countOf(schema).most / 10
  if (type !== 'string' || values !== undefined || format === 'date-time' || format === 'date') return 4
  return (typeof maxLength === 'number' ? maxLength * 4 : MOST_BYTES) / 10
}

/** Returns the object as the API server stores it, and what the rules refuse. */
export function admitted(
  schema: StructuralSchema,
  rules: readonly Rule[],
  write: AdmittedWrite,
): { object: KubeObject | undefined; violations: Violation[] } {
  const object = write.old === undefined && write.object !== undefined ? filled(write.object, rules) : write.object
  const [now, old] = [object, write.old].map((one) => withDefaults(one, schema) as KubeObject | undefined)
  const operation: Operation = object === undefined ? 'DELETE' : old === undefined ? 'CREATE' : 'UPDATE'
  const wasUnique = rules.every((rule) => rule.in !== 'schema' || duplicatesOf(rule.path, schema, old).length === 0)
  const violations = rules.flatMap((rule): Violation[] => {
    if (rule.in === 'definition') return now === undefined ? [] : broken(schema, rule, now, old)
    if (rule.in === 'schema')
      return (wasUnique ? duplicatesOf(rule.path, schema, now) : []).map((path) => ({
        path,
        message: rule.message,
        reason: 'FieldValueDuplicate',
      }))
    if (rule.in === 'mutation' || write.groups === undefined || !rule.operations.includes(operation)) return []
    const holds = rule.holds({ ...write, ...(now && { object: now }), ...(old && { old }) })
    return holds ? [] : [{ path: nameOf(rule.path ?? '.'), message: rule.message, reason: 'Forbidden' }]
  })
  return { object, violations }
}

function broken(
  schema: StructuralSchema,
  rule: DefinitionRule,
  now: KubeObject,
  old: KubeObject | undefined,
): Violation[] {
  const { steps, fields, when } = placeOf(rule)
  const { message, reason } = rule
  const schemas = rule.paths.map((path) => fieldAt(schema, path))
  const named = (place: string): string => {
    const [field = []] = rule.paths.length === 1 ? fields : []
    return [place, ...field].join('.').replace(/^\./, '')
  }
  if (rule.demands && steps.join() === 'spec' && now.spec === undefined) return [{ path: 'spec', message, reason }]
  const root = { now, before: old, path: '', isUnchanged: false }
  return [...valuesAt(root, schema, steps)].flatMap(({ now: value, before, path, isUnchanged }) => {
    if (rule.isTransition ? before === undefined : isUnchanged) return []
    const [after, former] = [value, before].map((one) => fields.map((field) => valueAt(one, field)))
    const [is = [], was = []] = [after, former]
    const isOld = steps.length === 0 && old !== undefined && !rule.isTransition
    if (isOld && is.every((one, index) => equal(one, was[index], schemas[index]))) return []
    if (when !== undefined && !isMet(rule, valueAt(rule.isTransition ? before : value, when))) return []
    return rule.holds(is, was, schemas) ? [] : [{ path: named(path), message, reason }]
  })
}

const isMet = ({ when }: DefinitionRule, value: unknown): boolean =>
  typeof when === 'object' ? value === when[1] : value !== undefined

function duplicatesOf(path: FieldPath, schema: StructuralSchema, object: KubeObject | undefined): string[] {
  const root = { now: object, before: undefined, path: '', isUnchanged: false }
  return [...valuesAt(root, schema, stepsOf(path))].flatMap(({ now, path: at }) => {
    const list = Array.isArray(now) ? now : []
    const keys = keysOfList(fieldAt(schema, path))
    const isTwice = (one: unknown, index: number): boolean =>
      list
        .slice(0, index)
        .some((other) => (keys ? keys.every((key) => valueAt(one, [key]) === valueAt(other, [key])) : one === other))
    return list.flatMap((one, index) => (isTwice(one, index) ? [`${at.slice(1)}[${index}]`] : []))
  })
}

/** Fills in the defaults of a MutatingAdmissionPolicy. */
const filled = (object: KubeObject, rules: readonly Rule[]): KubeObject =>
  rules.reduce((made, rule) => (rule.in === 'mutation' ? filledBy(made, rule) : made), object)

function filledBy(object: KubeObject, { path, from }: MutationRule): KubeObject {
  const [steps, value] = [stepsOf(path), valueAt(object, stepsOf(from))]
  if (value === undefined || valueAt(object, steps) !== undefined) return object
  return withValueAt(object, steps, value) as KubeObject
}

/** What policies have to know of a resource. */
export interface PolicySource {
  group: string
  plural: string
  scope: 'Namespaced' | 'Cluster'
  versions: readonly string[]
  rules: readonly Rule[]
  /** The field that `kubectl scale` writes. */
  scale: string | undefined
}

const ADMISSION = 'admissionregistration.k8s.io/v1'

/** Accounts that delete objects for Kubernetes: with a namespace, or with an owner. */
const CLEANERS = [
  'system:kube-controller-manager',
  'system:serviceaccount:kube-system:generic-garbage-collector',
  'system:serviceaccount:kube-system:namespace-controller',
]

/** Returns the policies of the rules that no definition can have, and their bindings. `account`: that of the function. */
export function policies(name: string, source: PolicySource, account: string | undefined): KubeObject[] {
  const checks = source.rules.filter((rule) => rule.in === 'policy')
  const fills = source.rules.filter((rule) => rule.in === 'mutation')
  return [
    ...(checks.length > 0 ? pair('Validating', name, validating(source, checks, account), ['Deny', 'Audit']) : []),
    ...(fills.length > 0 ? pair('Mutating', name, mutating(source, fills)) : []),
  ]
}

function pair(kind: 'Validating' | 'Mutating', name: string, spec: object, actions?: string[]): KubeObject[] {
  const metadata = { name: policyNameOf(name) }
  const bound = { policyName: metadata.name, ...(actions && { validationActions: actions }) }
  return [
    { apiVersion: ADMISSION, kind: `${kind}AdmissionPolicy`, metadata, spec },
    { apiVersion: ADMISSION, kind: `${kind}AdmissionPolicyBinding`, metadata, spec: bound },
  ]
}

const matching = ({ group, plural, scope, versions }: PolicySource, operations: readonly Operation[], part = '') => ({
  apiGroups: [group],
  apiVersions: versions,
  operations,
  resources: [plural + part],
  scope,
})

const IS_SCALE = "has(request.subResource) && request.subResource == 'scale'"

function validating(source: PolicySource, rules: readonly PolicyRule[], account: string | undefined): object {
  const operations = [...new Set(rules.flatMap((rule) => rule.operations))].sort()
  const { scale } = source
  const isOfScale = ({ protects }: PolicyRule): boolean =>
    scale !== undefined && protects !== undefined && (protects === scale || scale.startsWith(`${protects}.`))
  const scales = rules.some(isOfScale)
  const exempt = [...(account === undefined ? [] : [account]), ...CLEANERS].map(literal).join(', ')
  const expression = (rule: PolicyRule): string => {
    const others = operations.filter((one) => !rule.operations.includes(one))
    const main =
      others.length === 0 ? rule.cel : `request.operation in [${others.map(literal).join(', ')}] || (${rule.cel})`
    return scales ? `${IS_SCALE} ? ${isOfScale(rule) ? `(${rule.scale})` : 'true'} : (${main})` : main
  }
  return {
    failurePolicy: 'Fail',
    matchConstraints: {
      resourceRules: [matching(source, operations), ...(scales ? [matching(source, ['UPDATE'], '/scale')] : [])],
    },
    matchConditions: [{ name: 'by-users', expression: `!(request.userInfo.username in [${exempt}])` }],
    validations: rules.map((rule) => ({ expression: expression(rule), message: rule.message, reason: 'Forbidden' })),
  }
}

function mutating(source: PolicySource, rules: readonly MutationRule[]): object {
  return {
    failurePolicy: 'Fail',
    reinvocationPolicy: 'IfNeeded',
    matchConstraints: { resourceRules: [matching(source, ['CREATE'])] },
    mutations: rules.map((rule) => ({ patchType: 'JSONPatch', jsonPatch: { expression: patchOf(rule) } })),
  }
}

/** Adds the objects on the way too, where they are not there. */
function patchOf({ path, from }: MutationRule): string {
  const [steps, source] = [stepsOf(path), termOf('object', stepsOf(from), plainName)]
  const parents = steps.slice(0, -1).map((_, index) => steps.slice(0, index + 1))
  const added = (at: readonly Step[], value: string): string =>
    `JSONPatch{op: "add", path: "/${at.join('/')}", value: ${value}}`
  const made = parents.map((at) => `(${termOf('object', at, plainName).isSet} ? [] : [${added(at, '{}')}])`)
  const isFilled = `(${termOf('object', steps, plainName).isSet}) || !(${source.isSet})`
  return `${isFilled} ? [] : ${[...made, `[${added(steps, source.value)}]`].join(' + ')}`
}
