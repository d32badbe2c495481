import { z } from 'zod'
import {
  apiVersionOf,
  isRecord,
  type KeptStatus,
  type KubeObject,
  keptStatus,
  type ObjectMeta,
  TerminalError,
} from '#contracts'
import { admission, policies, validatingWebhook } from './admission.ts'
import type { Rule } from './builders.ts'
import { type Checked, checked, uncheckedOf } from './check.ts'
import { converted } from './conversion.ts'
import {
  type ConversionClient,
  type CustomResourceDefinition,
  crdOf,
  objectSchema,
  type ResourceOptions,
} from './crd.ts'
import type { Kind } from './kinds.ts'
import { explain, keysOf, refuseUnknown } from './options.ts'
import type { AdmittedWrite, Violation } from './rule.ts'
import { judgement, refusalText, type SpecChange, type Validated, validation, type WriteRequest } from './validation.ts'
import { conversionsOf, type ResourceVersion, versionsOf } from './versions.ts'

/**
 * An object that has passed its schema. Every field of `status` may be missing: a new object has none.
 *
 * @example
 * import type { ObservedBy, Parsed, z } from 'fairlead'
 * import { Website } from './website.ts'
 * const parsed: Parsed<z.ZodObject, z.ZodObject> = Website.parse(Website.of({ metadata: { name: 'a' }, spec: { html: 'hi' } }))
 * const site = parsed as ObservedBy<typeof Website>
 * site.spec.replicas // => 1
 */
export type Parsed<Spec extends z.ZodObject, Status extends z.ZodObject> = {
  apiVersion: string
  kind: string
  metadata: ObjectMeta
  spec: z.output<Spec>
  status: Partial<z.output<Status>> & KeptStatus
}

/**
 * A custom resource: a kind with its schema and its CustomResourceDefinition.
 *
 * @example
 * import type { Resource } from 'fairlead'
 * import { Website } from './website.ts'
 * const nameOf = ({ crd }: Pick<Resource, 'crd'>) => crd().metadata.name
 * nameOf(Website) // => 'websites.example.com'
 */
export interface Resource<Spec extends z.ZodObject = z.ZodObject, Status extends z.ZodObject = z.ZodObject>
  extends Kind<Parsed<Spec, Status>> {
  /** The status that a function may return: every required field, no unknown field. */
  readonly outcomeStatus: Status
  /** Returns the object as `parse()` does. Throws a TerminalError for what `validate` refuses too, unless it is being deleted. */
  parseValid(object: KubeObject): Parsed<Spec, Status>
  /**
   * What `validate` of the declaration finds in a parsed spec. A write is not refused for what was refused before it on the
   * same value. Throws an Error if the function of the declaration throws, or returns something else. Left out: there is none.
   */
  readonly validate?: (change: SpecChange<unknown>) => Validated
  /**
   * Returns the ValidatingWebhookConfiguration by which the API server asks `fairlead admit`. `exempt`: names of users whose
   * writes it does not ask about. Left out: neither `validate` nor `admit`.
   */
  readonly validatingWebhook?: (webhook: ConversionClient, exempt: readonly string[]) => KubeObject
  /** What `admit` of the declaration finds in a write. Throws an Error as `validate` does. Left out: there is none. */
  readonly judge?: (write: WriteRequest<unknown>) => Validated
  /**
   * Checks an object of a file, in any version, as if it were to be created: unknown fields and the schema, then rules and
   * `validate`. `unchecked`: what the API server alone checks. Throws an Error if `validate` does.
   */
  check(object: KubeObject): Checked
  /** Returns an object of this kind for `apply`. `status` is for tests: functions cannot apply a status. */
  of(body: { metadata: ObjectMeta; spec: z.input<Spec>; status?: Partial<z.input<Status>> & KeptStatus }): KubeObject
  /**
   * Returns the CustomResourceDefinition. Throws an Error with the path for a schema that it cannot express, and for a
   * version with a conversion if there is no `webhook` that the API server can call.
   */
  crd(webhook?: ConversionClient): CustomResourceDefinition
  /** The versions, the stored one first. */
  versions(): readonly ResourceVersion[]
  /**
   * Returns the object in another version, as a conversion webhook has to. Its metadata stays as it is, except for the
   * annotations `fairlead.dev/kept`, with what the version cannot hold, and `fairlead.dev/partial`, with the reason why
   * the version shows the object in part. `before`: the object before the write, in the version of the object. What is kept
   * is then taken from it, since clients drop annotations that they do not know.
   *
   * Throws an Error if the object is no object of this kind, and if the storage version would lose something: it is shown
   * in part, its conversion throws, or its annotations are larger than the API server takes.
   */
  convert(object: KubeObject, version: string, before?: KubeObject): KubeObject
  /** The rules of the declaration. */
  readonly rules: readonly Rule[]
  /** The fields of the spec with checks in code (`.refine()`), which only a run makes. */
  readonly codeChecks: readonly string[]
  /** Returns the object as the API server stores it after the defaults of rules, and what the rules refuse. */
  admit(write: AdmittedWrite): { object: KubeObject | undefined; violations: Violation[] }
  /**
   * Returns the policies of the rules that the definition cannot have, with their bindings. `exempt`: names of users whose
   * writes they do not check.
   */
  policies(exempt: readonly string[]): KubeObject[]
}

/**
 * Declares a custom resource. One schema gives its TypeScript types, its CustomResourceDefinition (`crd()`) and its
 * validation on reading (`parse()`). Throws an Error with the path for an option that is unknown or wrong; `crd()`
 * throws for a schema that a CustomResourceDefinition cannot express, such as a union.
 *
 * @example
 * import { resource, z } from 'fairlead'
 * const Note = resource({
 *   group: 'example.com', version: 'v1', kind: 'Note', plural: 'notes',
 *   spec: z.object({ text: z.string().max(200) }), status: z.object({ length: z.int32() }),
 * })
 * Note.crd().metadata.name // => 'notes.example.com'
 */
export function resource<
  Spec extends z.ZodObject,
  Status extends z.ZodObject,
  Olds extends readonly z.ZodObject[] = readonly z.ZodObject[],
>(given: ResourceOptions<Spec, Status, Olds>): Resource<Spec, Status> {
  refuseWrongResource(given)
  const options = given as unknown as ResourceOptions<z.ZodObject, z.ZodObject>
  const { spec, status } = given
  const { group, version, kind, plural, rules = [], served = [], scope = 'Namespaced', scale } = options
  const versions = [version, ...served.map((one) => one.version)]
  let admit: ReturnType<typeof admission> | undefined
  let all: ReturnType<typeof versionsOf> | undefined
  const allVersions = (): ReturnType<typeof versionsOf> => (all ??= versionsOf(options))
  let ways: ReturnType<typeof conversionsOf> | undefined
  let unchecked: string[] | undefined
  const allWays = () => (ways ??= conversionsOf(options, allVersions()))
  if (served.some(({ convert }) => convert !== undefined)) allWays()
  const toConvert = served.flatMap((one) =>
    one.convert === undefined ? [] : [apiVersionOf({ group, version: one.version })],
  )
  const inStored = (object: KubeObject): KubeObject => {
    if (!toConvert.includes(object.apiVersion)) return object
    try {
      return converted(allWays(), object, version)
    } catch (cause) {
      throw new TerminalError((cause as Error).message, { reason: 'InvalidObject', cause })
    }
  }
  refuseKeptFields(kind, status)
  const schema = z.looseObject({ spec, status: observedStatus(status) })
  const parsed = (object: KubeObject) => parse(schema, inStored(object)) as Parsed<Spec, Status>
  const validate = options.validate && validation(kind, options.validate)
  const own: Resource<Spec, Status> = Object.freeze({
    group,
    version,
    resource: plural,
    kind,
    strategy: 'Apply' as const,
    outcomeStatus: status.def.catchall === undefined ? (status.strict() as unknown as Status) : status,
    parse: parsed,
    parseValid: (object: KubeObject) => {
      const one = parsed(object)
      const isGoing = object.metadata.deletionTimestamp !== undefined
      const { refusals } = (isGoing ? undefined : validate?.({ spec: one.spec })) ?? { refusals: [] }
      if (refusals.length > 0) throw new TerminalError(refusalText(refusals), { reason: 'InvalidObject' })
      return one
    },
    ...(validate && { validate }),
    ...(options.admit && { judge: judgement(kind, options.admit) }),
    ...((validate || options.admit) && {
      validatingWebhook: (webhook: ConversionClient, exempt: readonly string[]) =>
        validatingWebhook(
          { group, plural, scope, versions },
          { webhook, exempt, isValidated: validate !== undefined, judged: options.admit?.operations ?? [] },
        ),
    }),
    of: (body: object) => ({ apiVersion: apiVersionOf(options), kind, ...body }) as KubeObject,
    crd: (webhook?: ConversionClient) => crdOf(options, webhook),
    versions: allVersions,
    convert: (object: KubeObject, to: string, before?: KubeObject) => converted(allWays(), object, to, before),
    rules,
    codeChecks: codeChecksOf(spec),
    admit: (write: AdmittedWrite) => (admit ??= admission(allVersions()[0].schema, rules))(write),
    check: (object: KubeObject) => ({
      ...checked(own, object),
      unchecked: (unchecked ??= [
        ...uncheckedOf(objectSchema({ ...options, rules: [] }), rules),
        ...(options.admit ? ['admit'] : []),
      ]),
    }),
    policies: (exempt: readonly string[]) =>
      policies({ group, plural, scope, versions, rules, scale: scale?.spec }, exempt),
  })
  return own
}

/**
 * Whether the kind is a custom resource that its author defines with `resource()`.
 *
 * @example
 * import { ConfigMap, isResource } from 'fairlead'
 * isResource(ConfigMap) // => false
 */
export const isResource = (kind: Kind<unknown>): kind is Resource => 'crd' in kind

/**
 * Returns the CustomResourceDefinitions of the resources that functions reconcile, each once. Built-in kinds and kinds of
 * other authors have none. `webhook`: its address, for definitions with conversions.
 *
 * @example
 * import { definitionsOf } from 'fairlead'
 * import { website } from './website.ts'
 * definitionsOf([website]).map(({ metadata }) => metadata.name) // => ['websites.example.com']
 */
export const definitionsOf = (
  functions: readonly { for: Kind<unknown> }[],
  webhook?: ConversionClient,
): CustomResourceDefinition[] => resourcesOf(functions).map((one) => one.crd(webhook))

/** Returns the resources that functions reconcile, each once: of two declarations the last one. */
export const resourcesOf = (functions: readonly { for: Kind<unknown> }[]): Resource[] => [
  ...new Map(
    functions.flatMap(({ for: kind }) => (isResource(kind) ? [[`${kind.resource}.${kind.group}`, kind] as const] : [])),
  ).values(),
]

/**
 * Parses an object. Checks in code are skipped for an object that is being deleted, so that they cannot block its
 * deletion.
 */
function parse(schema: z.ZodType, object: KubeObject): unknown {
  const complete = { ...object, spec: object.spec ?? {}, status: object.status ?? {} }
  const { success, data, error } = schema.safeParse(complete)
  const isGoing = object.metadata.deletionTimestamp !== undefined
  if (!success && isGoing && error.issues.every(({ code }) => code === 'custom')) return withDefaults(schema, complete)
  if (!success) throw new TerminalError(explain(error, complete), { reason: 'InvalidObject', cause: error })
  return data
}

/** Returns the value with its defaults even if checks in code fail; its types are those of the schema. */
function withDefaults(schema: z.ZodType, value: unknown): unknown {
  const payload = schema._zod.run({ value, issues: [] }, { async: false })
  return payload instanceof Promise ? value : payload.value
}

/** The status with all fields optional, as in the CRD, and with the fields that every resource has. */
function observedStatus(status: z.ZodObject): z.ZodObject {
  const own = Object.entries(status.shape).map(([name, field]) => [name, z.optional(field)] as const)
  return z.looseObject({ ...Object.fromEntries(own), ...keptStatus.shape })
}

function refuseKeptFields(kind: string, status: z.ZodObject): void {
  const kept = Object.keys(keptStatus.shape).find((name) => name in status.shape)
  if (kept !== undefined)
    throw new Error(`resource ${kind}: status.${kept} is kept by the platform: leave it out of the schema`)
}

export const RESOURCE_OPTIONS = keysOf<ResourceOptions<z.ZodObject, z.ZodObject>>({
  group: true,
  version: true,
  served: true,
  kind: true,
  plural: true,
  scope: true,
  shortNames: true,
  categories: true,
  spec: true,
  status: true,
  validations: true,
  rules: true,
  validate: true,
  admit: true,
  scale: true,
  columns: true,
})

const label = z
  .string()
  .max(63)
  .regex(/^[a-z]([-a-z0-9]*[a-z0-9])?$/, 'lower-case letters, digits and -, a letter first')
const pathIn = (root: string) =>
  z.string().regex(new RegExp(`^\\.${root}\\.`), `write a JSON path, such as .${root}.size`)

/** The options apart from schemas and rules, which have their own checks. */
const values = z.object({
  group: z
    .string()
    .max(253)
    .regex(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$/, 'write a domain, such as example.com'),
  version: label,
  kind: z
    .string()
    .max(63)
    .regex(/^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$/, 'letters, digits and -, a letter first'),
  plural: label,
  scope: z.enum(['Namespaced', 'Cluster']).optional(),
  shortNames: z.array(label).optional(),
  categories: z.array(label).optional(),
  served: z
    .array(
      z.strictObject({
        version: label,
        spec: z.unknown(),
        status: z.unknown().optional(),
        validations: z.unknown().optional(),
        deprecated: z.string().optional(),
        retired: z.boolean().optional(),
        convert: z.custom(isConversion, 'give steps, such as moved(), or a pair of functions: { up, down }').optional(),
      }),
    )
    .optional(),
  rules: z
    .array(
      z.custom<Rule>((one) => Object.isFrozen(one) && typeof one === 'object', 'call a builder, such as immutable()'),
    )
    .optional(),
  validate: z
    .custom((one) => typeof one === 'function', 'give a function, which returns a list of findings')
    .optional(),
  admit: z
    .strictObject({
      operations: z.array(z.enum(['CREATE', 'UPDATE', 'DELETE'])).min(1),
      judge: z.custom((one) => typeof one === 'function', 'give a function, which returns a list of findings'),
    })
    .optional(),
  scale: z
    .strictObject({ spec: pathIn('spec'), status: pathIn('status'), selector: pathIn('status').optional() })
    .optional(),
  columns: z
    .array(
      z.strictObject({
        name: z.string().min(1),
        path: z.string().regex(/^\./, 'write a JSON path, such as .spec.size'),
        type: z.enum(['string', 'integer', 'number', 'boolean', 'date']).optional(),
        description: z.string().optional(),
        priority: z.int32().min(0).optional(),
      }),
    )
    .optional(),
})

function isConversion(one: unknown): boolean {
  if (Array.isArray(one)) return one.every((step) => isRecord(step) && Object.isFrozen(step) && 'step' in step)
  return isRecord(one) && typeof one['up'] === 'function' && typeof one['down'] === 'function'
}

type Given = { readonly [Name in keyof ResourceOptions<z.ZodObject, z.ZodObject>]?: unknown }

/**
 * Throws for options with a wrong type: Node.js strips types without checking them. The message is one line with the
 * path.
 */
function refuseWrongResource(options: Given): void {
  const whose = `resource ${String(options.kind)}`
  refuseUnknown(options, RESOURCE_OPTIONS, whose)
  for (const name of ['group', 'version', 'kind', 'plural'] as const)
    if (typeof options[name] !== 'string' || options[name] === '')
      throw new Error(`${whose} has no "${name}": give it a text`)
  refuseSchemas(options, `${whose}:`)
  const { success, data, error } = values.safeParse(options)
  if (!success) throw new Error(`${whose}: ${explain(error, options)}`, { cause: error })
  for (const { version, spec, status = options.status } of data.served ?? [])
    refuseSchemas({ spec, status }, `${whose}: ${version}`)
}

function refuseSchemas(schemas: Given, where: string): void {
  for (const name of ['spec', 'status'] as const) {
    if (!(schemas[name] instanceof z.ZodObject))
      throw new Error(`${where} "${name}" is not a z.object() of the z that fairlead exports`)
    refuseForeign(schemas[name], `${where} ${name}`)
  }
}

function codeChecksOf(spec: z.ZodObject): string[] {
  const found: string[] = []
  refuseForeign(spec, 'spec', ({ checks }, path) => {
    const isCode = ({ _zod }: z.core.$ZodCheck): boolean => _zod.def.check === 'custom'
    if ((checks as z.core.$ZodCheck[] | undefined)?.some(isCode)) found.push(path)
  })
  return found
}

/** Fields of a definition that contain a schema, and what each adds to the path. */
const PARTS = {
  element: '[]',
  valueType: '.*',
  innerType: '',
  in: '',
  out: '',
  left: '',
  right: '',
} as const

/** Throws an Error with the path for a part that is not a schema of this zod. Later errors would not name the path. */
function refuseForeign(
  schema: unknown,
  path: string,
  each: (def: Record<string, unknown>, path: string) => void = () => {},
  seen = new Set<unknown>(),
): void {
  if (seen.has(schema)) return
  seen.add(schema)
  if (!(schema instanceof z.core.$ZodType)) throw new Error(`${path} is not a schema of the z that fairlead exports`)
  const def = schema._zod.def as unknown as Record<string, unknown>
  each(def, path)
  const visit = (part: unknown, at: string): void => refuseForeign(part, at, each, seen)
  for (const [name, field] of Object.entries(def['shape'] ?? {})) visit(field, `${path}.${name}`)
  for (const [part, step] of Object.entries(PARTS)) if (part in def) visit(def[part], path + step)
  for (const list of [def['options'], def['items']]) if (Array.isArray(list)) for (const one of list) visit(one, path)
}
