import { type KubeObject, namespacedName } from '#contracts'
import type { Resource, Violation } from '#sdk'
import { type ByKind, isObject, messageOf, requestOf, VALIDATION_MS, withinLimit } from './conversion-review.ts'

/** How one write was judged. */
export interface ValidationReport {
  /** `websites.example.com` */
  resource: string
  /** `failure`: `validate` throws. */
  result: 'admitted' | 'refused' | 'failure'
  ms: number
  /** `namespace/name` */
  object: string
  /** The fields for which it was refused, without values. */
  paths: string[]
  /** Why `validate` has failed. */
  because?: string
}

const API_VERSION = 'admission.k8s.io/v1'
const KIND = 'AdmissionReview'
/** A list may be wrong in each of its elements. */
const MOST_SHOWN = 20

/**
 * Answers an AdmissionReview: what `validate` refuses together, and its warnings. Throws an InvalidReviewError if there is
 * nothing to answer to.
 */
export function answerAdmission(review: unknown, resources: ByKind, report: (one: ValidationReport) => void): object {
  const { request, invalid } = requestOf(review, API_VERSION, KIND)
  const { uid, object, oldObject } = request
  const answer = (response: object) => ({ apiVersion: API_VERSION, kind: KIND, response: { uid, ...response } })
  if (!isObject(object))
    return request['operation'] === 'DELETE' ? answer({ allowed: true }) : invalid('it has no object')
  const resource = resources.get(`${object.apiVersion.split('/')[0]}/${object.kind}`)
  if (resource?.validate === undefined) return invalid(`${object.kind} of ${object.apiVersion} has no "validate" here`)
  const began = performance.now()
  const tell = (result: ValidationReport['result'], more: { paths?: string[]; because?: string } = {}) =>
    report({
      resource: `${resource.resource}.${resource.group}`,
      result,
      ms: performance.now() - began,
      object: namespacedName(object.metadata),
      paths: [],
      ...more,
    })
  try {
    const old = isObject(oldObject) ? oldObject : undefined
    const { refusals, warnings } = withinLimit(() => judged(resource, object, old), VALIDATION_MS)
    tell(refusals.length > 0 ? 'refused' : 'admitted', { paths: refusals.slice(0, MOST_SHOWN).map(({ path }) => path) })
    return answer({
      ...(refusals.length > 0 ? { allowed: false, status: statusOf(refusals) } : { allowed: true }),
      ...(warnings.length > 0 && { warnings: warnings.slice(0, MOST_SHOWN).map(textOf) }),
    })
  } catch (error) {
    tell('failure', { because: messageOf(error) })
    const message = `${messageOf(error)}. This is a bug of the resource: the object may be right`
    return answer({ allowed: false, status: { code: 500, reason: 'InternalError', message } })
  }
}

/** What is wrong by the write. An object that breaks a check in code before and after it is older than the check. */
function judged(resource: Resource, object: KubeObject, old: KubeObject | undefined) {
  const now = parsed(resource, object)
  const before = old && parsed(resource, old)
  const broken = { refusals: [{ path: 'spec', message: `${now.error}`, reason: 'FieldValueInvalid' }], warnings: [] }
  if (now.error !== undefined && now.error !== before?.error) return broken
  try {
    const change = { spec: now.spec, old: before?.spec }
    return (now.spec && resource.validate?.(change)) || { refusals: [], warnings: [] }
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

const textOf = ({ path, message }: Violation): string => `${path}: ${message}`

function statusOf(refusals: readonly Violation[]): object {
  const shown = refusals.slice(0, MOST_SHOWN)
  const more = refusals.length - shown.length
  return {
    code: 422,
    reason: 'Invalid',
    message: [...shown.map(textOf), ...(more > 0 ? [`and ${more} more`] : [])].join('; '),
    details: { causes: shown.map(({ path, message, reason }) => ({ field: path, message, reason })) },
  }
}
