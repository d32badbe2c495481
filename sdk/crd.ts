import { isDeepStrictEqual } from 'node:util'
import type { z } from 'zod'
import { keptStatus } from '#contracts'
import { withRules } from './admission.ts'
import type { Rule } from './builders.ts'
import { propertyAt } from './rule.ts'
import { PRESERVE, RULES, type StructuralSchema, usesOldSelf, type ValidationRule } from './rules.ts'
import type { ServedVersion } from './served.ts'
import { toStructural } from './structural.ts'
import type { Admit, Finding, SpecChange } from './validation.ts'

/**
 * The options of `resource()`: names, schemas and versions of a custom resource.
 *
 * @example
 * import { type ResourceOptions, resource, z } from 'fairlead'
 * const options: ResourceOptions<z.ZodObject, z.ZodObject> = {
 *   group: 'example.com', version: 'v1', kind: 'Website', plural: 'websites',
 *   spec: z.object({ html: z.string() }), status: z.object({ ready: z.int32() }),
 * }
 * resource(options).crd().spec.scope // => 'Namespaced'
 */
export interface ResourceOptions<
  Spec extends z.ZodObject,
  Status extends z.ZodObject,
  Olds extends readonly z.ZodObject[] = readonly z.ZodObject[],
> {
  /** The API group: a domain, such as `example.com`. */
  group: string
  /** The storage version, which is also the version that functions receive. */
  version: string
  /**
   * Older or newer versions that the API server serves too. Without `convert`, a field has the same path and meaning in
   * both versions, and the storage version must be able to hold every object that the other one admits.
   *
   * @default []
   */
  served?: readonly [...{ [Index in keyof Olds]: ServedVersion<Olds[Index], Spec, Status> }]
  /** The kind, such as `Website`. */
  kind: string
  /** The plural name in lower case, as in API paths: `websites`. */
  plural: string
  /** @default 'Namespaced' */
  scope?: 'Namespaced' | 'Cluster'
  /**
   * Short names for kubectl: `['ws']`.
   *
   * @default []
   */
  shortNames?: string[]
  /**
   * Groups of kinds for kubectl: `['all']` shows the objects in `kubectl get all`.
   *
   * @default []
   */
  categories?: string[]
  /** What users write: a `z.object()`. The API server fills in the values of `.default()`. */
  spec: Spec
  /** The status without `conditions` and `observedGeneration`, which every resource has. */
  status: Status
  /** CEL rules on the whole object: `self.metadata.name`, `self.spec`, `self.status`. */
  validations?: readonly ValidationRule[]
  /**
   * Rules of builders: `immutable('.spec.zone')`, `onlyGroups(['admins'], ['DELETE'])`. The API server checks them, in the
   * CustomResourceDefinition where it can, and in a policy otherwise.
   *
   * @default []
   */
  rules?: readonly Rule[]
  /**
   * What is wrong with a spec, all together: a pure function, for what neither the schema nor a rule can say. A function is
   * not called with an object that it refuses. `old` is the spec before a write. Both have passed the schema.
   *
   * @default nothing is wrong
   */
  validate?: (change: SpecChange<z.output<Spec>>) => readonly Finding[]
  /** Who may do what, where no rule can say it. The API server asks it. @default whoever has the rights may do it */
  admit?: Admit<z.output<Spec>>
  /** The fields that `kubectl scale` and autoscalers read and write. */
  scale?: Scale
  /** The columns that `kubectl get` shows between NAME and AGE. */
  columns?: Column[]
}

/**
 * The `scale` subresource, for `kubectl scale` and autoscalers: JSON paths of whole numbers, and of a label selector as
 * text.
 *
 * @example
 * import { resource, type Scale, z } from 'fairlead'
 * const scale: Scale = { spec: '.spec.replicas', status: '.status.ready' }
 * const Page = resource({
 *   group: 'example.com', version: 'v1', kind: 'Page', plural: 'pages', scale,
 *   spec: z.object({ replicas: z.int32() }), status: z.object({ ready: z.int32() }),
 * })
 * Page.crd().spec.versions[0]?.subresources.scale?.specReplicasPath // => '.spec.replicas'
 */
export interface Scale {
  /** The path of the requested size, e.g. `.spec.size`. */
  spec: `.spec.${string}`
  /** The path of the actual size, e.g. `.status.replicas`. */
  status: `.status.${string}`
  /** The path of the label selector of its pods, as text, e.g. `.status.selector`. */
  selector?: `.status.${string}`
}

/**
 * A column of `kubectl get`, between NAME and AGE.
 *
 * @example
 * import { type Column, resource, z } from 'fairlead'
 * const html: Column = { name: 'HTML', path: '.spec.html' }
 * const Page = resource({
 *   group: 'example.com', version: 'v1', kind: 'Page', plural: 'pages', columns: [html],
 *   spec: z.object({ html: z.string() }), status: z.object({}),
 * })
 * Page.crd().spec.versions[0]?.additionalPrinterColumns[0]?.name // => 'HTML'
 */
export interface Column {
  /** The heading of the column. */
  name: string
  /** A JSON path of kubectl, e.g. `.spec.schedule`. */
  path: string
  /**
   * kubectl shows a date as the time since then.
   *
   * @default 'string'
   */
  type?: 'string' | 'integer' | 'number' | 'boolean' | 'date'
  description?: string
  /**
   * A column with a priority above 0 is shown only with `-o wide`.
   *
   * @default 0
   */
  priority?: number
}

/**
 * A CustomResourceDefinition of apiextensions.k8s.io/v1. It is a type, not an interface, so that it is a KubeObject
 * too.
 *
 * @example
 * import type { CustomResourceDefinition } from 'fairlead'
 * import { Website } from './website.ts'
 * const crd: CustomResourceDefinition = Website.crd()
 * crd.metadata.name // => 'websites.example.com'
 */
export type CustomResourceDefinition = {
  apiVersion: 'apiextensions.k8s.io/v1'
  kind: 'CustomResourceDefinition'
  metadata: { name: string }
  spec: {
    group: string
    names: {
      kind: string
      listKind: string
      plural: string
      singular: string
      shortNames?: string[]
      categories?: string[]
    }
    scope: 'Namespaced' | 'Cluster'
    versions: CrdVersion[]
    /** The API server writes `None` where nothing is given. */
    conversion?:
      | { strategy: 'None' }
      | { strategy: 'Webhook'; webhook: { clientConfig: ConversionClient; conversionReviewVersions: ['v1'] } }
  }
}

/**
 * Where the API server finds a webhook, with the authority of its certificate in base64.
 *
 * @example
 * import type { ConversionClient } from 'fairlead'
 * const client: ConversionClient = { caBundle: 'Q0E=', service: { namespace: 'default', name: 'convert' } }
 * client.service?.name // => 'convert'
 */
export interface ConversionClient {
  caBundle: string
  url?: string
  service?: { namespace: string; name: string; path?: string; port?: number }
}

interface CrdVersion {
  name: string
  served: boolean
  storage: boolean
  deprecated?: true
  deprecationWarning?: string
  subresources: { status: Record<string, never>; scale?: ScaleSubresource }
  additionalPrinterColumns: PrinterColumn[]
  schema: { openAPIV3Schema: StructuralSchema }
}

interface ScaleSubresource {
  specReplicasPath: string
  statusReplicasPath: string
  labelSelectorPath?: string
}

type PrinterColumn = Omit<Column, 'path'> & { type: string; jsonPath: string }

/**
 * Returns the CustomResourceDefinition. Throws an Error with kind and path for a schema that a CustomResourceDefinition
 * cannot express.
 */
export function crdOf(options: Options, client?: ConversionClient): CustomResourceDefinition {
  return of(`resource ${options.kind}:`, () => definitionOf(options, client))
}

/** A CustomResourceDefinition cannot express the schema. */
class DefinitionError extends Error {
  override readonly name = 'DefinitionError'
}

/** Adds `where` to the message of an error that `make` throws. */
function of<T>(where: string, make: () => T): T {
  try {
    return make()
  } catch (error) {
    throw new DefinitionError(`${where} ${(error as Error).message}`, { cause: error })
  }
}

function definitionOf(options: Options, client: ConversionClient | undefined): CustomResourceDefinition {
  const { group, kind, plural, scope = 'Namespaced', shortNames, categories, served = [] } = options
  const [converted] = served.filter(({ convert }) => convert !== undefined)
  if (converted !== undefined && client === undefined)
    throw new Error(
      `${converted.version} has a conversion, for which the API server calls a webhook: give crd() the address of one`,
    )
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.${group}` },
    spec: {
      group,
      names: {
        kind,
        listKind: `${kind}List`,
        plural,
        singular: kind.toLowerCase(),
        ...(shortNames && { shortNames }),
        ...(categories && { categories }),
      },
      scope,
      versions: [
        versionOf(options, options, true),
        ...served.map((one) => (one.convert === undefined ? servedBeside(one, options) : convertedFrom(one, options))),
      ],
      ...(converted !== undefined &&
        client !== undefined && {
          conversion: {
            strategy: 'Webhook' as const,
            webhook: { clientConfig: client, conversionReviewVersions: ['v1'] as ['v1'] },
          },
        }),
    },
  }
}

type Options = ResourceOptions<z.ZodObject, z.ZodObject>

function versionOf(
  one: Pick<ServedVersion, 'version' | 'spec' | 'status' | 'validations'>,
  { status, validations, rules = [], scale, columns = [] }: Options,
  storage: boolean,
): CrdVersion {
  return {
    name: one.version,
    served: true,
    storage,
    subresources: { status: {}, ...(scale && { scale: scaleSubresource(scale) }) },
    additionalPrinterColumns: [...columns.map(printerColumn), AGE],
    schema: { openAPIV3Schema: objectSchema({ status, validations, rules, ...one }) },
  }
}

type Served = NonNullable<Options['served']>[number]

/**
 * The version has `scale` if it has its fields. The API server checks the rules of the version of a request alone: those
 * of the storage version name fields that this version may not have.
 */
function convertedFrom(one: Served, options: Options): CrdVersion {
  if (one.validations === undefined && options.validations !== undefined)
    throw new Error(`${one.version} needs "validations": those of ${options.version} are not checked for its writes`)
  if ((options.rules ?? []).length > 0)
    throw new Error(`the "rules" of ${options.version} are not checked for writes of ${one.version}: leave them out`)
  const version = of(one.version, () => versionOf(one, { ...options, validations: undefined }, false))
  const { scale, ...others } = version.subresources
  const paths = scale === undefined ? [] : [scale.specReplicasPath, scale.statusReplicasPath]
  const hasScale = paths.every(
    (path) => propertyAt(version.schema.openAPIV3Schema, path.split('.').slice(1)) !== undefined,
  )
  return withDeprecation(hasScale ? version : { ...version, subresources: others }, one)
}

function servedBeside(one: Served, options: Options): CrdVersion {
  const version = of(one.version, () => versionOf(one, options, false))
  const [lost] = changesOf(version.schema.openAPIV3Schema, objectSchema(options), '')
  if (lost !== undefined)
    throw new Error(
      `${one.version} cannot be served beside ${options.version}, which is stored: in ${options.version} ${lost}`,
    )
  return withDeprecation(version, one)
}

function withDeprecation(version: CrdVersion, { deprecated, retired = false }: Served): CrdVersion {
  const own = { ...version, served: !retired }
  return deprecated === undefined ? own : { ...own, deprecated: true, deprecationWarning: deprecated }
}

const scaleSubresource = ({ spec, status, selector }: Scale): ScaleSubresource => ({
  specReplicasPath: spec,
  statusReplicasPath: status,
  ...(selector !== undefined && { labelSelectorPath: selector }),
})

const AGE: PrinterColumn = { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' }

const printerColumn = ({ path, type = 'string', ...column }: Column): PrinterColumn => ({
  ...column,
  type,
  jsonPath: path,
})

interface ObjectSchemas extends Pick<Options, 'spec' | 'status' | 'rules'> {
  validations?: readonly ValidationRule[] | undefined
}

/** The schema of the whole object, with its rules. */
export function objectSchema({ spec, status, validations, rules = [] }: ObjectSchemas): StructuralSchema {
  const specSchema = toStructural(spec, 'spec')
  const schema = {
    type: 'object',
    ...(specSchema.required && { required: ['spec'] }),
    properties: { spec: specSchema, status: statusSchema(status) },
  }
  return withRules(schema, rules, validations)
}

/** No field of a status is required: conditions may be written before the function has written its first status. */
function statusSchema(status: z.ZodObject): StructuralSchema {
  const own = toStructural(status, 'status')
  const kept = toStructural(keptStatus, 'status')
  delete own.required
  return { ...own, properties: { ...own.properties, ...kept.properties } }
}

const INT_OR_STRING = 'x-kubernetes-int-or-string'

/** Like breakingChanges(), for two schemas. */
function changesOf(before: StructuralSchema, after: StructuralSchema, path: string): string[] {
  const at = path === '' ? 'the object' : path.slice(1)
  if (after[PRESERVE] === true && after.type === undefined && after[INT_OR_STRING] !== true) return []
  const found: string[] = []
  const say = (what: string): void => void found.push(`${at} ${what}`)
  if (typeOf(before) !== typeOf(after)) return [`${at} was ${typeOf(before)}, and would be ${typeOf(after)}`]
  if (before['nullable'] === true && after['nullable'] !== true) say('could be null')
  if (before[PRESERVE] === true && after[PRESERVE] !== true) say('could hold any field: unknown ones would be lost')
  for (const [keyword, isTighter] of BOUNDS)
    if (isTighter(boundOf(before, keyword), after[keyword]) && !HELD[path]?.includes(keyword))
      say(`would have ${keyword} ${JSON.stringify(after[keyword])}${wasOf(before[keyword])}`)
  for (const value of enumOf(after) === undefined ? [] : (enumOf(before) ?? ['any other']))
    if (!enumOf(after)?.includes(value)) say(`would not take ${JSON.stringify(value)}`)
  for (const rule of newRules(before, after)) say(`would have to hold the rule ${rule}`)
  return [...found, ...fieldChanges(before, after, path), ...elementChanges(before, after, path)]
}

const typeOf = (schema: StructuralSchema): string =>
  schema[INT_OR_STRING] === true ? 'int-or-string' : (schema.type ?? 'anything')

const wasOf = (before: unknown): string => (before === undefined ? '' : ` instead of ${JSON.stringify(before)}`)

const enumOf = (schema: StructuralSchema): unknown[] | undefined => schema['enum'] as unknown[] | undefined

type Tighter = (before: unknown, after: unknown) => boolean

const higher: Tighter = (before, after) => after !== undefined && Number(after) > Number(before ?? -Infinity)
const lower: Tighter = (before, after) => after !== undefined && Number(after) < Number(before ?? Infinity)
const other: Tighter = (before, after) => after !== undefined && !isDeepStrictEqual(before, after)

const BOUNDS: [keyword: string, isTighter: Tighter][] = [
  ['minimum', higher],
  ['minLength', higher],
  ['minItems', higher],
  ['maximum', lower],
  ['maxLength', lower],
  ['maxItems', lower],
  ['maxProperties', lower],
  ['exclusiveMinimum', other],
  ['exclusiveMaximum', other],
  ['multipleOf', other],
  ['pattern', other],
  ['allOf', other],
  ['format', (before, after) => other(before, after) && !(before === 'int32' && after === 'int64')],
  ['x-kubernetes-list-type', other],
  ['x-kubernetes-list-map-keys', other],
]

/** Returns the value of a bound. A pattern that the empty text does not match is a minLength too, of 1. */
function boundOf(schema: StructuralSchema, keyword: string): unknown {
  const { pattern, [keyword]: bound } = schema
  return keyword === 'minLength' && bound === undefined && refusesEmpty(pattern) ? 1 : bound
}

function refusesEmpty(pattern: unknown): boolean {
  try {
    // With the flag u, syntax that only the API server (RE2) knows throws, and means nothing else.
    return typeof pattern === 'string' && !new RegExp(pattern, 'u').test('')
  } catch {
    return false
  }
}

/**
 * Bounds of the fields that the dispatcher keeps in each status, which an earlier schema did not demand. A generation
 * below 0 is read nevertheless, and controllers set conditions by type. The API server accepts a list that has been
 * stored with two conditions of one type, also after the change (apiextensions-apiserver, ValidateUpdate).
 */
const HELD: Record<string, string[]> = {
  '.status.observedGeneration': ['minimum'],
  '.status.conditions': ['x-kubernetes-list-type', 'x-kubernetes-list-map-keys'],
}

/** New rules that stored objects could violate. Rules with `oldSelf` do not count: they apply to updates only. */
function newRules(before: StructuralSchema, after: StructuralSchema): string[] {
  const rulesOf = (schema: StructuralSchema) => (schema[RULES] ?? []) as ValidationRule[]
  const known = rulesOf(before).map(({ rule }) => rule)
  const added = rulesOf(after).filter((one) => !known.includes(one.rule) && !usesOldSelf(one))
  return added.map(({ rule }) => rule)
}

/** The fields at the root that the API server defines. Generators other than crdOf() name them in the schema. */
const OF_API_SERVER = ['.apiVersion', '.kind', '.metadata']

function fieldChanges(before: StructuralSchema, after: StructuralSchema, path: string): string[] {
  const required = (after.required ?? []).filter((name) => !before.required?.includes(name))
  const missing = required
    .filter((name) => after.properties?.[name]?.['default'] === undefined)
    .map((name) => `${`${path}.${name}`.slice(1)} would be required`)
  const fields = Object.entries(before.properties ?? {}).flatMap(([name, field]) => {
    const next = after.properties?.[name] ?? after.additionalProperties
    const here = `${path}.${name}`
    if (OF_API_SERVER.includes(here)) return []
    if (next !== undefined) return changesOf(field, next, here)
    const isKept = after[PRESERVE] === true || here.startsWith('.status.')
    return isKept ? [] : [`${here.slice(1)} does not exist any more: stored values would be lost`]
  })
  return [...missing, ...fields]
}

function elementChanges(before: StructuralSchema, after: StructuralSchema, path: string): string[] {
  const items = before.items && after.items ? changesOf(before.items, after.items, `${path}[]`) : []
  const { additionalProperties: values } = before
  if (values === undefined) return items
  if (after.additionalProperties !== undefined)
    return [...items, ...changesOf(values, after.additionalProperties, `${path}.*`)]
  return after[PRESERVE] === true ? items : [...items, `${path.slice(1)} had keys of any name: they would be lost`]
}

/**
 * Compares two versions of a CustomResourceDefinition. Returns one line, with a path, for each way in which a stored
 * object would lose data or be rejected under the second; an empty list if there is none. Changes of `status` count
 * only if they keep the function from writing it.
 *
 * @example
 * import { breakingChanges, resource, z } from 'fairlead'
 * import { Website } from './website.ts'
 * const names = { group: 'example.com', version: 'v1', kind: 'Website', plural: 'websites' }
 * const after = resource({ ...names, spec: z.object({ html: z.int32() }), status: z.object({ ready: z.int32() }) })
 * breakingChanges(Website.crd(), after.crd())[0] // => 'v1: spec.html was string, and would be integer'
 */
export function breakingChanges(before: CustomResourceDefinition, after: CustomResourceDefinition): string[] {
  const kept = new Map(after.spec.versions.map((version) => [version.name, version]))
  const stored = after.spec.versions.find(({ storage }) => storage)
  const hasWebhook = ({ spec }: CustomResourceDefinition) => spec.conversion?.strategy === 'Webhook'
  const isConverted = hasWebhook(after)
  return [
    ...(before.spec.scope === after.spec.scope ? [] : [`its scope was ${before.spec.scope}: it cannot be changed`]),
    ...(!hasWebhook(before) || isConverted || after.spec.versions.length === 1
      ? []
      : [`its objects would not be converted any more: the API server would prune what ${stored?.name} does not have`]),
    ...before.spec.versions.flatMap(({ name, served, storage, schema }) => {
      const next = kept.get(name)
      if (next === undefined || (served && !next.served)) return [`version ${name} is not served any more`]
      const own = changesOf(schema.openAPIV3Schema, next.schema.openAPIV3Schema, '')
      // Objects that are stored in this version are read in the new storage version.
      const moved =
        storage && stored !== undefined && stored !== next && !isConverted
          ? changesOf(schema.openAPIV3Schema, stored.schema.openAPIV3Schema, '')
          : []
      return [...new Set([...own, ...moved])].map((what) => `${name}: ${what}`)
    }),
  ]
}
