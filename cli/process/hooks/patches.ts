import { parse, parseAllDocuments } from 'yaml'
import { z } from 'zod'
import {
  type FunctionInput,
  isRecord,
  type KubeObject,
  kindName,
  mergePatched,
  type Outcome,
  TerminalError,
} from '#contracts'

/** An object, or its YAML. */
const content = z.unknown().transform((value, context): unknown => {
  try {
    return typeof value === 'string' ? parse(value) : value
  } catch {
    // The message of the parser quotes the text.
    context.addIssue('is no YAML')
    return z.NEVER
  }
})
const [word, name] = [z.string().optional(), z.string().min(1)]
const place = { apiVersion: word, kind: name, namespace: word, name }
const object = content.pipe(
  z.looseObject({ apiVersion: name, kind: name, metadata: z.looseObject({ name, namespace: word }) }),
)

/** What a hook writes to KUBERNETES_PATCH_PATH (shell-operator 1.20, pkg/kube/object_patch/validation.go). */
const operation = z.discriminatedUnion('operation', [
  z.strictObject({
    operation: z.enum(['Create', 'CreateIfNotExists', 'CreateOrUpdate']),
    object,
    apiVersion: word,
    kind: word,
    namespace: word,
    name: word,
  }),
  z.strictObject({ operation: z.enum(['Delete', 'DeleteInBackground']), ...place }),
  z.strictObject({
    operation: z.literal('MergePatch'),
    ...place,
    subresource: z.enum(['', 'status', '/status']).optional(),
    mergePatch: content.pipe(z.looseObject({})),
    ignoreMissingObject: z.boolean().optional(),
  }),
])

/** The other operations of shell-operator. */
const INSTEAD: Record<string, string> = {
  JQPatch: 'write a MergePatch with the result',
  JSONPatch: 'write a MergePatch',
  DeleteNonCascading: 'what depends on an object goes with it: write Delete',
}

/** What it writes to METRICS_PATH. */
const metric = z
  .strictObject({
    name,
    action: z.literal('set', 'is not offered: write set').optional(),
    value: z.number().optional(),
    set: z.number().optional(),
    labels: z.record(z.string(), z.string()).default({}),
  })
  .refine(({ value, set }) => (value ?? set) !== undefined, 'has no value')

type Operation = z.output<typeof operation>
type Place = Pick<Extract<Operation, { operation: 'MergePatch' }>, 'apiVersion' | 'kind' | 'namespace' | 'name'>

/** Contents of the files that a hook writes. */
export interface Written {
  patches: string
  metrics: string
}

/**
 * Returns the outcome of what a hook has written. What it owns and does not name stays as it is. Throws a TerminalError that
 * names what is not offered: then nothing is written.
 */
export function outcomeOf(
  { patches, metrics }: Written,
  { object: primary, owned }: Pick<FunctionInput, 'owned'> & { object: KubeObject },
): Outcome {
  const outcome: Outcome = {}
  const own = new Owned(primary, owned)
  for (const [index, one] of documentsIn(patches).entries()) perform(operationIn(one, index), { primary, own, outcome })
  const reports = documentsIn(metrics).map((one, index) => {
    const { name: called, value, set, labels } = valid(metric, one, `metric ${index + 1}`)
    return { name: called, value: (value ?? set) as number, labels }
  })
  return { ...outcome, ...own.applied, ...(reports.length > 0 && { metrics: reports }) }
}

const refused = (what: string): TerminalError =>
  new TerminalError(`the hook wrote ${what}. Nothing of it is written`, { reason: 'PatchNotOffered' })

const notOffered = (what: string, instead: string): TerminalError =>
  refused(`${what}, which is not offered: ${instead}`)

function operationIn(one: unknown, index: number): Operation {
  const { operation: given, kind, name: called } = isRecord(one) ? one : {}
  const instead = INSTEAD[String(given)]
  if (instead !== undefined) throw notOffered(`${given} of ${kind} ${called}`, instead)
  return valid(operation, one, `operation ${index + 1}`)
}

function valid<T>(schema: z.ZodType<T>, one: unknown, what: string): T {
  const { success, data, error } = schema.safeParse(one)
  if (success) return data
  throw refused(error.issues.map(({ path, message }) => `${[what, ...path].join('.')}: ${message}`).join('; '))
}

interface Deciding {
  primary: KubeObject
  own: Owned
  outcome: Outcome
}

function perform(one: Operation, { primary, own, outcome }: Deciding): void {
  if ('object' in one) {
    // A run is repeated, so an object that is there has been created.
    if (one.operation === 'CreateOrUpdate' || own.find(one.object) === undefined) own.set(one.object)
    return
  }
  const what = `${one.operation} of ${one.kind} ${one.name}`
  const at = own.at(one, what)
  const isPrimary = isSame(primary, at)
  if (one.operation === 'MergePatch') {
    const owned = own.find(at)
    if (isPrimary) mergeOwn(what, one.mergePatch, { primary, outcome })
    else if (owned !== undefined && !one.subresource) own.set(mergePatched(owned, one.mergePatch) as KubeObject)
    else outcome.patch = [...(outcome.patch ?? []), fieldsOfOthers(what, at, one.mergePatch)]
  } else if (isPrimary) outcome.deleteObject = true
  else own.delete(at, what)
}

const isSame = (primary: KubeObject, { apiVersion, kind, metadata }: KubeObject): boolean =>
  primary.kind === kind &&
  primary.apiVersion === apiVersion &&
  primary.metadata.name === metadata.name &&
  (primary.metadata.namespace ?? '') === (metadata.namespace ?? primary.metadata.namespace ?? '')

/** The objects that the function owns, with the changes of the hook. */
class Owned {
  readonly #primary: KubeObject
  readonly #objects = new Map<string, KubeObject>()
  /** Of the declared kinds, such as `Pod.v1`. */
  readonly #names: readonly string[]
  #isChanged = false

  constructor(primary: KubeObject, owned: FunctionInput['owned']) {
    this.#primary = primary
    this.#names = Object.keys(owned)
    for (const one of Object.values(owned).flat())
      if (one.metadata.deletionTimestamp === undefined) this.#objects.set(this.#key(one), one)
  }

  /** Returns what the operation names, with the version of the declared kind if the operation has none. */
  at({ apiVersion, kind, namespace, name: called }: Place, what: string): KubeObject {
    const { apiVersion: ofPrimary, kind: primaryKind } = this.#primary
    const found = [...this.#names, kindName(primaryKind, ofPrimary)].filter((one) => one.startsWith(`${kind}.`))
    const [, version = '', ...group] = (found[0] ?? '').split('.')
    const known = group.length > 0 ? `${group.join('.')}/${version}` : version
    if (apiVersion === undefined && found.length !== 1) throw notOffered(`${what} without apiVersion`, 'write it')
    const metadata = { name: called, ...(namespace !== undefined && { namespace }) }
    return { apiVersion: apiVersion ?? known, kind, metadata }
  }

  find(one: KubeObject): KubeObject | undefined {
    return this.#objects.get(this.#key(one))
  }

  set(one: KubeObject): void {
    this.#isChanged = true
    this.#objects.set(this.#key(one), one)
  }

  delete(one: KubeObject, what: string): void {
    if (!this.#names.includes(kindName(one.kind, one.apiVersion)))
      throw notOffered(what, 'a function deletes what it owns, of the kinds in spec.owns')
    if (this.#objects.delete(this.#key(one))) this.#isChanged = true
  }

  /** Nothing, if nothing is changed. */
  get applied(): Pick<Outcome, 'apply'> {
    return this.#isChanged ? { apply: [...this.#objects.values()] } : {}
  }

  #key({
    apiVersion,
    kind,
    metadata: { namespace = this.#primary.metadata.namespace ?? '', name: called },
  }: KubeObject): string {
    return `${apiVersion} ${kind} ${namespace}/${called}`
  }
}

function fieldsOfOthers(what: string, at: KubeObject, { metadata, ...fields }: Record<string, unknown>): KubeObject {
  if (hasNull({ metadata, ...fields }))
    throw notOffered(
      `${what} with null`,
      'a field of an object of others is set, or given back when it is no longer set',
    )
  return { ...at, ...fields, metadata: { ...(isRecord(metadata) && metadata), ...at.metadata } }
}

/** The hook patches the object that it runs for. */
function mergeOwn(what: string, patch: Record<string, unknown>, { primary, outcome }: Omit<Deciding, 'own'>): void {
  const { status, metadata, ...others } = patch
  const [field] = Object.keys(others)
  if (field !== undefined)
    throw notOffered(`${what} with ${field}`, 'of its own object, a function writes status, labels and annotations')
  if (isRecord(status)) {
    if (status['conditions'] !== undefined) throw notOffered(`${what} with status.conditions`, 'write other fields')
    const { conditions: _, observedGeneration: __, ...before } = (primary.status ?? {}) as Record<string, unknown>
    outcome.status = mergePatched(outcome.status ?? before, status) as Record<string, unknown>
  }
  if (!isRecord(metadata)) return
  const { labels, annotations, ...more } = metadata
  const [other] = Object.keys(more)
  if (other !== undefined) throw notOffered(`${what} with metadata.${other}`, 'a function keeps labels and annotations')
  if (hasNull(metadata)) throw notOffered(`${what} with null`, 'leave out what the hook has set before')
  const kept = { ...(labels !== undefined && { labels }), ...(annotations !== undefined && { annotations }) }
  outcome.metadata = mergePatched(outcome.metadata ?? {}, kept) as NonNullable<Outcome['metadata']>
}

const hasNull = (value: unknown): boolean => value === null || (isRecord(value) && Object.values(value).some(hasNull))

/** Returns the JSON values one after the other, or else the documents of YAML. */
function documentsIn(text: string): unknown[] {
  const values = jsonIn(text)
  if (values !== undefined) return values
  const documents = [...parseAllDocuments(text)]
  const wrong = documents.flatMap(({ errors }) => errors)[0]
  if (wrong !== undefined) throw refused(`neither JSON nor YAML: ${wrong.code}`)
  return documents.map((document) => document.toJS() as unknown).filter((one) => one !== null)
}

/** Returns undefined for a text that is not JSON. */
function jsonIn(text: string): unknown[] | undefined {
  const values: unknown[] = []
  let begin = 0
  let depth = 0
  let isText = false
  for (const { 0: sign, index } of text.matchAll(/\\.|["{}[\]]/gs)) {
    if (sign === '"') isText = !isText
    if (isText || !'{}[]'.includes(sign)) continue
    depth += '{['.includes(sign) ? 1 : -1
    if (depth > 0) continue
    // The bracket that closes a value.
    try {
      values.push(JSON.parse(text.slice(begin, index + 1)))
    } catch {
      return undefined
    }
    begin = index + 1
  }
  return text.slice(begin).trim() === '' ? values : undefined
}
