import { type KubeObject, withValueAt } from '#contracts'
import { policyNameOf } from '#spec'
import {
  type DefinitionRule,
  type MutationRule,
  type Operation,
  type PolicyRule,
  pathOf,
  type Rule,
  type SchemaRule,
} from './builders.ts'
import { KEPT, PARTIAL } from './conversion.ts'
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
  type Term,
  termOf,
  unchanged,
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
  // Rules about changes need the keys of lists.
  for (const rule of rules.toSorted((one, other) => Number(other.in === 'schema') - Number(one.in === 'schema')))
    try {
      include(root, rule, ofObject)
    } catch (error) {
      throw new Error(`rules: ${rule.title}: ${(error as Error).message}`, { cause: error })
    }
  return validations === undefined && ofObject.length === 0 ? root : withObjectRules(root, ofObject)
}

function include(root: StructuralSchema, rule: Rule, ofObject: ValidationRule[]): void {
  if (rule.in === 'schema') {
    const at = fieldAt(root, rule.path)
    Object.assign(at, rule.keywords(at))
  } else if (rule.in === 'definition') {
    const place = placeOf(root, rule)
    const at = schemaAt(root, place.steps, '')
    if (place.steps.length === 0) ofObject.push(validationOf(rule, place))
    else at[RULES] = [...((at[RULES] as ValidationRule[] | undefined) ?? []), validationOf(rule, place)]
  } else if (rule.in === 'mutation') {
    const [at, from] = [rule.path, rule.from].map((path) => fieldAt(root, path).type)
    if (at !== from) throw new Error(`${nameOf(rule.path)} is ${at}, and ${nameOf(rule.from)} is ${from}`)
  } else if (rule.path !== undefined) fieldAt(root, rule.path)
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
  /** The fields of the rule, and then that of its condition. */
  fields: Step[][]
  schemas: StructuralSchema[]
  /** The field that kubectl names. */
  named: Step[]
  /**
   * The rule is about values, and does not concern a write that leaves them: an object that is older than the rule goes
   * on. In a list whose elements cannot be told apart, the API server does so for the whole list.
   */
  spares: boolean
}

function placeOf(root: StructuralSchema, rule: DefinitionRule): Place {
  const all = [...rule.paths, ...pathOf(rule.when)]
  const schemas = all.map((path, index) => readable(root, path, index < rule.paths.length ? rule.types : undefined))
  const paths = all.map(stepsOf)
  const isOnField = rule.isTransition || (rule.isOnField === true && paths.length === 1)
  const common = paths.map((steps) => (isOnField ? steps : steps.slice(0, -1))).reduce(commonStart)
  // A field that goes has no rule any more, so a rule that would not notice it is on an object that stays.
  const isHigher = rule.isTransition || common[0] === 'metadata' || (rule.demands && common.join() === 'spec')
  const steps = isHigher ? common.slice(0, common.findLastIndex(isEach) + 1) : common
  const fields = paths.map((path) => path.slice(steps.length))
  if (fields.some((field) => field.some(isEach)))
    throw new Error('the fields are in different elements: a rule reads one element')
  const list = uncorrelated(root, steps)
  if (rule.isTransition && list !== undefined)
    throw new Error(`elements of ${list} cannot be found again after a write: add unique('.${list}', KEY)`)
  const named = fields.slice(0, rule.paths.length).reduce(commonStart)
  return { steps, fields, schemas, named, spares: !rule.isTransition && list === undefined }
}

function commonStart(one: Step[], other: Step[]): Step[] {
  const end = one.findIndex((step, index) => step !== other[index])
  return end === -1 ? one : one.slice(0, end)
}

function readable(root: StructuralSchema, path: FieldPath, types: readonly string[] | undefined): StructuralSchema {
  if (stepsOf(path)[0] === 'metadata' && path !== '.metadata.name')
    throw new Error(`of the metadata a definition reads the name alone, not ${path}: labels have labelled()`)
  const schema = fieldAt(root, path)
  const { type, nullable, 'x-kubernetes-int-or-string': isEither } = schema
  if (type === undefined && isEither !== true) throw new Error(`${nameOf(path)} has no type, so CEL cannot read it`)
  if (types?.includes(type ?? '') === false)
    throw new Error(`${nameOf(path)} is ${type ?? 'of any type'}: it has to be ${types.join(' or ')}`)
  if (types !== undefined && nullable === true)
    throw new Error(`${nameOf(path)} may be null, which has no order: make it optional instead`)
  return schema
}

/** Returns the list on the way whose elements have no keys. */
function uncorrelated(root: StructuralSchema, steps: readonly Step[]): string | undefined {
  const at = steps.findIndex(
    (step, index) => step === ELEMENT && keysOfList(schemaAt(root, steps.slice(0, index), '')) === undefined,
  )
  return at === -1 ? undefined : steps.slice(0, at).join('.').replaceAll('.[]', '[]').replaceAll('..', '.')
}

function validationOf(rule: DefinitionRule, { fields, schemas, named, spares }: Place): ValidationRule {
  const [now, before] = ['self', spares ? 'oldSelf.value()' : 'oldSelf'].map((of) =>
    fields.map((field) => termOf(of, field)),
  ) as [Term[], Term[]]
  const count = rule.paths.length
  let text = rule.cel(now.slice(0, count), before.slice(0, count))
  const condition = (rule.isTransition ? before : now)[count]
  if (condition !== undefined) text = `${not(isMetIn(condition, rule.when, schemas[count]))} || (${text})`
  if (spares) {
    // The name of an object stays.
    const same = fields.flatMap(([first], index) =>
      first === 'metadata' ? [] : [`(${unchanged(now[index] as Term, before[index] as Term)})`],
    )
    text = `${grouped(['oldSelf.hasValue()', ...same].join(' && '))} || (${text})`
  }
  return {
    rule: text,
    message: rule.message,
    ...(rule.reason !== 'FieldValueInvalid' && { reason: rule.reason }),
    ...(named.length > 0 && {
      fieldPath: named.map((name) => (/^\w+$/.test(name) ? `.${name}` : `['${name}']`)).join(''),
    }),
    ...(spares && { optionalOldSelf: true }),
  }
}

function isMetIn({ isSet, value }: Term, when: DefinitionRule['when'], schema: StructuralSchema | undefined): string {
  if (typeof when !== 'object') return isSet
  const [, wanted] = when
  const isDouble = schema?.type === 'number' && Number.isInteger(wanted)
  return `${isSet} && ${value} == ${isDouble ? `${wanted}.0` : literal(wanted)}`
}

/** What the API server makes of a write. */
type Admission = (write: AdmittedWrite) => { object: KubeObject | undefined; violations: Violation[] }

/** An object and the one before it, with their defaults. */
interface Pair {
  now: KubeObject | undefined
  old: KubeObject | undefined
}

/** Returns what the API server does with a write: the object that it stores, and what the rules refuse. */
export function admission(schema: StructuralSchema, rules: readonly Rule[]): Admission {
  const lists = rules.flatMap((rule) => (rule.in === 'schema' ? [duplicatesOf(schema, rule)] : []))
  const checks = rules.flatMap((rule) => (rule.in === 'definition' ? [brokenBy(schema, rule)] : []))
  const policies = rules.flatMap((rule) => (rule.in === 'policy' ? withOwners(rule) : []))
  return (write) => {
    const object = write.old === undefined && write.object !== undefined ? filled(write.object, rules) : write.object
    const [now, old] = [object, write.old].map((one) => withDefaults(one, schema) as KubeObject | undefined)
    const operation: Operation = object === undefined ? 'DELETE' : old === undefined ? 'CREATE' : 'UPDATE'
    const wasUnique = lists.every((of) => of(old).length === 0)
    const asked = write.groups === undefined ? [] : policies.filter(({ operations }) => operations.includes(operation))
    const refused = asked.filter((rule) => !rule.holds({ ...write, ...(now && { object: now }), ...(old && { old }) }))
    const violations = [
      ...(wasUnique ? lists : []).flatMap((of) => of(now)),
      ...checks.flatMap((of) => of({ now, old })),
      ...refused.map(({ path = '.', message }) => ({ path: nameOf(path), message, reason: 'Forbidden' })),
    ]
    return { object, violations }
  }
}

function brokenBy(schema: StructuralSchema, rule: DefinitionRule): (pair: Pair) => Violation[] {
  const { steps, fields, schemas, named, spares } = placeOf(schema, rule)
  const { message, reason, isTransition, when } = rule
  const count = rule.paths.length
  return ({ now: object, old }) =>
    [...valuesAt({ now: object, before: old, path: '', isUnchanged: false }, schema, steps)].flatMap(
      ({ now, before, path, isUnchanged }) => {
        if (isTransition ? before === undefined : isUnchanged) return []
        const [is = [], was = []] = [now, before].map((one) => fields.map((field) => valueAt(one, field) ?? undefined))
        if (spares && before !== undefined && is.every((one, index) => equal(one, was[index], schemas[index])))
          return []
        if (when !== undefined && !isMet(when, (isTransition ? was : is)[count])) return []
        if (rule.holds(is.slice(0, count), was.slice(0, count), schemas)) return []
        return [{ path: [path, ...named].join('.').replace(/^\./, ''), message, reason }]
      },
    )
}

const isMet = (when: DefinitionRule['when'], value: unknown): boolean =>
  typeof when === 'object' ? value === when[1] : value !== undefined

function duplicatesOf(schema: StructuralSchema, { path, message }: SchemaRule): (object?: KubeObject) => Violation[] {
  const steps = stepsOf(path)
  const keys = keysOfList(fieldAt(schema, path))
  const isSame = (one: unknown, other: unknown): boolean =>
    keys === undefined ? one === other : keys.every((key) => valueAt(one, [key]) === valueAt(other, [key]))
  const violation = (one: unknown, at: string): Violation => {
    const shown = keys === undefined ? one : Object.fromEntries(keys.map((key) => [key, valueAt(one, [key])]))
    return { path: at, message: `${message}: ${JSON.stringify(shown)}`, reason: 'FieldValueDuplicate' }
  }
  return (object) =>
    [...valuesAt({ now: object, before: undefined, path: '', isUnchanged: false }, schema, steps)].flatMap(
      ({ now, path: at }) =>
        (Array.isArray(now) ? now : []).flatMap((one, index, list) =>
          list.slice(0, index).some((other) => isSame(one, other)) ? [violation(one, `${at.slice(1)}[${index}]`)] : [],
        ),
    )
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

/**
 * Who gives an object another owner lets garbage collection delete it, which no policy refuses. So a rule about deletions
 * is one about changes of the owners too, as in the plugin OwnerReferencesPermissionEnforcement of Kubernetes.
 */
function withOwners(rule: PolicyRule): PolicyRule[] {
  if (!rule.operations.includes('DELETE') || rule.operations.includes('UPDATE')) return [rule]
  const steps = stepsOf(OWNERS)
  const [now, before] = ['object', 'oldObject'].map((root) => termOf(root, steps, plainName)) as [Term, Term]
  const ofOwners: PolicyRule = {
    ...rule,
    path: OWNERS,
    operations: ['UPDATE'],
    message: `${rule.message} (another owner could delete it)`,
    cel: `(${unchanged(now, before)}) || ${grouped(rule.cel)}`,
    holds: (write) => equal(valueAt(write.object, steps), valueAt(write.old, steps), undefined) || rule.holds(write),
  }
  return [rule, ofOwners]
}

const OWNERS = '.metadata.ownerReferences'

/**
 * Returns the policies of the rules that no definition can have, and their bindings. `exempt`: the users that they do not
 * check, which are the accounts of the functions of the resource.
 */
export function policies(source: PolicySource, exempt: readonly string[]): KubeObject[] {
  const checks = source.rules.flatMap((rule) => (rule.in === 'policy' ? withOwners(rule) : []))
  const fills = source.rules.filter((rule) => rule.in === 'mutation')
  const name = policyNameOf({ group: source.group, resource: source.plural })
  return [
    ...(checks.length > 0 ? pair('Validating', name, validating(source, checks, exempt), ['Deny', 'Audit']) : []),
    ...(fills.length > 0 ? pair('Mutating', name, mutating(source, fills)) : []),
  ]
}

interface Asked {
  webhook: object
  exempt: readonly string[]
  isValidated: boolean
  /** Operations for which `admit` is asked. */
  judged: readonly Operation[]
}

/**
 * Returns where the API server asks `validate` and `admit`: for writes that change the spec, or what another version keeps
 * of it, where one of both judges them, and for deletions where `admit` does, by other users than those that are exempt.
 * Without an answer it refuses them.
 */
export function validatingWebhook(
  source: Pick<PolicySource, 'group' | 'plural' | 'scope' | 'versions'>,
  { webhook, exempt, isValidated, judged }: Asked,
): KubeObject {
  const isGuarded = judged.includes('DELETE')
  const operations = [...(isValidated ? CHANGES : []), ...judged, ...(isGuarded ? (['UPDATE'] as const) : [])]
  const changes = [
    ...(isValidated || judged.includes('UPDATE') ? SPEC_CHANGES : []),
    ...(isGuarded ? [changeOf('metadata.?ownerReferences')] : []),
  ]
  const expression = ["request.operation != 'UPDATE'", ...changes].join(' || ')
  const one = {
    name: `validate.${source.plural}.${source.group}`,
    clientConfig: webhook,
    admissionReviewVersions: ['v1'],
    sideEffects: 'None',
    failurePolicy: 'Fail',
    timeoutSeconds: 5,
    rules: [matching(source, [...new Set(operations)].sort())],
    matchConditions: [{ name: 'changes', expression }, byOthersThan([...exempt, ...CLEANERS])],
  }
  const name = policyNameOf({ group: source.group, resource: source.plural })
  return {
    apiVersion: ADMISSION,
    kind: 'ValidatingWebhookConfiguration',
    metadata: { name },
    webhooks: [one],
  }
}

const CHANGES = ['CREATE', 'UPDATE'] as const

const byOthersThan = (users: readonly string[]) => ({
  name: 'by-users',
  expression: `!(request.userInfo.username in [${users.map(literal).join(', ')}])`,
})

const changeOf = (path: string): string => `object.${path} != oldObject.${path}`

/** An object may have no spec. Without one of the annotations, another spec is stored. */
const SPEC_CHANGES = ['?spec', ...[KEPT, PARTIAL].map((name) => `metadata.?annotations[?${literal(name)}]`)].map(
  changeOf,
)

function pair(kind: 'Validating' | 'Mutating', name: string, spec: object, actions?: string[]): KubeObject[] {
  const metadata = { name }
  const bound = { policyName: name, ...(actions && { validationActions: actions }) }
  return [
    { apiVersion: ADMISSION, kind: `${kind}AdmissionPolicy`, metadata, spec },
    { apiVersion: ADMISSION, kind: `${kind}AdmissionPolicyBinding`, metadata, spec: bound },
  ]
}

const matching = (
  { group, plural, scope, versions }: Pick<PolicySource, 'group' | 'plural' | 'scope' | 'versions'>,
  operations: readonly Operation[],
  part = '',
) => ({
  apiGroups: [group],
  apiVersions: versions,
  operations,
  resources: [plural + part],
  scope,
})

const IS_SCALE = "has(request.subResource) && request.subResource == 'scale'"

function validating(source: PolicySource, rules: readonly PolicyRule[], exempt: readonly string[]): object {
  const operations = [...new Set(rules.flatMap((rule) => rule.operations))].sort()
  const { scale } = source
  const isOfScale = ({ protects }: PolicyRule): boolean =>
    scale !== undefined && protects !== undefined && (protects === scale || scale.startsWith(`${protects}.`))
  const scales = rules.some(isOfScale)
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
    matchConditions: [byOthersThan([...exempt, ...CLEANERS])],
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
