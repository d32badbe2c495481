import { isDeepStrictEqual } from 'node:util'
import { apiVersionOf, isRecord, type KubeObject, namespacedName } from '#contracts'
import type { Resource, Violation } from '#sdk'
import {
  type ByKind,
  brief,
  isObject,
  isPartial,
  messageOf,
  requestOf,
  VALIDATION_MS,
  withinLimit,
} from './conversion-review.ts'
import { nameOf } from './probe.ts'

/** How one write was judged. */
export interface ValidationReport {
  /** `websites.example.com` */
  resource: string
  /** `failure`: `validate` or `admit` throws. */
  result: 'admitted' | 'refused' | 'failure'
  ms: number
  operation: string
  /** `namespace/name` */
  object: string
  user: string
  dryRun: boolean
  /** The fields for which it was refused, without values. */
  paths: string[]
  /** The same as fields of the schema, `spec.ports[].name`, each with its reason. */
  refusals: { path: string; reason: string }[]
  /** Why `validate` or `admit` has failed. */
  because?: string
}

const API_VERSION = 'admission.k8s.io/v1'
const KIND = 'AdmissionReview'
/** A list may be wrong in each of its elements. */
const MOST_SHOWN = 20

interface Write {
  user: { name: string; groups: string[] }
  object: KubeObject | undefined
  old: KubeObject | undefined
}

/**
 * Answers an AdmissionReview: what `validate` and `admit` refuse together, and their warnings. Throws an InvalidReviewError
 * if there is nothing to answer to.
 */
export function answerAdmission(review: unknown, resources: ByKind, report: (one: ValidationReport) => void): object {
  const { request, invalid } = requestOf(review, API_VERSION, KIND)
  const { uid, operation, userInfo, dryRun } = request
  const answer = (response: object) => ({ apiVersion: API_VERSION, kind: KIND, response: { uid, ...response } })
  const [object, old] = [request['object'], request['oldObject']].map((one) => (isObject(one) ? one : undefined))
  const subject = object ?? (operation === 'DELETE' ? old : undefined) ?? invalid('it has no object')
  const resource = resources.get(`${subject.apiVersion.split('/')[0]}/${subject.kind}`)
  if (resource?.validatingWebhook === undefined)
    return invalid(`${subject.kind} of ${subject.apiVersion} has neither "validate" nor "admit" here`)
  const user = userIn(userInfo) ?? invalid('it has no user')
  const began = performance.now()
  const tell = (result: ValidationReport['result'], refusals: Violation[] = [], because?: string) =>
    report({
      resource: nameOf(resource),
      result,
      ms: performance.now() - began,
      operation: String(operation),
      object: brief(namespacedName(subject.metadata)),
      user: brief(user.name),
      dryRun: dryRun === true,
      paths: refusals.slice(0, MOST_SHOWN).map(({ path }) => brief(path)),
      refusals: refusals
        .slice(0, MOST_SHOWN)
        .map(({ path, reason }) => ({ path: fieldIn(path, resource.versions()[0]?.schema), reason })),
      ...(because !== undefined && { because: brief(because) }),
    })
  try {
    const { refusals, warnings } = withinLimit(() => judged(resource, { user, object, old }), VALIDATION_MS)
    tell(refusals.length > 0 ? 'refused' : 'admitted', refusals)
    return answer({
      ...(refusals.length > 0 ? { allowed: false, status: statusOf(refusals) } : { allowed: true }),
      ...(warnings.length > 0 && { warnings: warnings.slice(0, MOST_SHOWN).map(textOf) }),
    })
  } catch (error) {
    tell('failure', [], messageOf(error))
    const message = `${messageOf(error)}. This is a bug of the resource: the object may be right`
    return answer({ allowed: false, status: { code: 500, reason: 'InternalError', message } })
  }
}

function userIn(info: unknown): Write['user'] | undefined {
  const { username, groups = [] } = isRecord(info) ? info : {}
  const isList = Array.isArray(groups) && groups.every((one) => typeof one === 'string')
  return typeof username === 'string' && isList ? { name: username, groups } : undefined
}

function judged(resource: Resource, write: Write): Validated {
  const { object, old } = write
  const stored = apiVersionOf(resource)
  // Without the mark, the API server would store what this version shows as the whole object.
  if (object && old && old.apiVersion !== stored && isPartial(old) && !isPartial(object))
    return wrong('metadata.annotations', `${old.apiVersion} shows the object in part: write it as ${stored}`)
  return together([
    ...(object ? [ofSpec(resource, object, old)] : []),
    ...(resource.judge ? [ofUser(resource, resource.judge, write)] : []),
  ])
}

const together = (found: Validated[]): Validated => ({
  refusals: found.flatMap(({ refusals }) => refusals),
  warnings: found.flatMap(({ warnings }) => warnings),
})

type Validated = ReturnType<NonNullable<Resource['judge']>>

const NOTHING: Validated = { refusals: [], warnings: [] }

const wrong = (path: string, message: string): Validated => ({
  refusals: [{ path, message, reason: 'FieldValueInvalid' }],
  warnings: [],
})

/** Nobody knows what may be done with an object of which a version shows a part. */
function ofUser(resource: Resource, judge: NonNullable<Resource['judge']>, write: Write): Validated {
  const { user, object, old } = write
  let specs: (object | undefined)[]
  try {
    specs = [object, old].map((one) => one && storedSpec(resource, one))
  } catch (error) {
    return wrong('apiVersion', messageOf(error))
  }
  const [spec, before] = specs
  const { name = '', namespace } = (object ?? old)?.metadata ?? {}
  const asked = { user, name, ...(namespace !== undefined && { namespace }) }
  if (object === undefined) return judge({ ...asked, operation: 'DELETE', spec: before })
  if (old === undefined) return judge({ ...asked, operation: 'CREATE', spec })
  const questions = [
    ...(isDeepStrictEqual(spec, before) ? [] : [{ operation: 'UPDATE' as const, spec, old: before }]),
    ...(isDeepStrictEqual(ownersOf(object), ownersOf(old)) ? [] : [{ operation: 'DELETE' as const, spec: before }]),
  ]
  return together(questions.map((question) => judge({ ...asked, ...question })))
}

/** One that does not fit its schema comes as it is: the object may have to be deleted. */
const storedSpec = (resource: Resource, object: KubeObject): object =>
  parsed(resource, object).spec ?? (resource.convert(object, resource.version).spec as object | undefined) ?? {}

const ownersOf = ({ metadata }: KubeObject): unknown => metadata.ownerReferences ?? []

/** What is wrong by the write. An object that breaks a check in code before and after it is older than the check. */
function ofSpec(resource: Resource, object: KubeObject, old: KubeObject | undefined): Validated {
  const now = parsed(resource, object)
  const before = old && parsed(resource, old)
  const broken = wrong('spec', `${now.error}`)
  if (now.error !== undefined && now.error !== before?.error) return broken
  try {
    const change = { spec: now.spec, old: before?.spec }
    return (now.spec && resource.validate?.(change)) || NOTHING
  } catch (error) {
    // It may rely on the check.
    if (now.error === undefined) throw error
    return broken
  }
}

/** A spec that breaks only checks in code is there nevertheless. The status is no matter of a write. */
function parsed(resource: Resource, whole: KubeObject): { spec?: object; error?: string } {
  const { status: _, ...object } = whole
  const specOf = (one: KubeObject) => resource.parse(one).spec as object
  try {
    return { spec: specOf(object) }
  } catch (error) {
    // Its checks in code are left out.
    const going = { ...object, metadata: { ...object.metadata, deletionTimestamp: 'now' } }
    const broken = { error: messageOf(error) }
    try {
      return { ...broken, spec: specOf(going) }
    } catch {
      return broken
    }
  }
}

/** A metric has no keys of records, which users choose. */
function fieldIn(path: string, schema: Schema | undefined): string {
  let [at, field] = [schema, '']
  for (const [whole, name = ''] of path.matchAll(/\['[^]*?'\]|\[\d+\]|([^.[]+)/g)) {
    const { properties = {}, items, additionalProperties } = at ?? {}
    const isDeclared = Object.hasOwn(properties, name)
    field += /^\[\d/.test(whole) ? '[]' : isDeclared ? `.${name}` : '.*'
    at = isDeclared ? properties[name] : (items ?? additionalProperties)
  }
  return field.slice(1)
}

type Schema = ReturnType<Resource['versions']>[number]['schema']

const textOf = ({ path, message }: Violation): string => `${path}: ${message}`

function statusOf(refusals: readonly Violation[]): object {
  const shown = refusals.slice(0, MOST_SHOWN)
  const more = refusals.length - shown.length
  const isForbidden = refusals.some(({ reason }) => reason === 'FieldValueForbidden')
  return {
    ...(isForbidden ? { code: 403, reason: 'Forbidden' } : { code: 422, reason: 'Invalid' }),
    message: [...shown.map(textOf), ...(more > 0 ? [`and ${more} more`] : [])].join('; '),
    details: { causes: shown.map(({ path, message, reason }) => ({ field: path, message, reason })) },
  }
}
