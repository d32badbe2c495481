import { setImmediate as turn } from 'node:timers/promises'
import { createContext, Script } from 'node:vm'
import { apiVersionOf, isRecord, type KubeObject, namespacedName, type ObjectMeta } from '#contracts'
import type { Resource } from '#sdk'
import { isOfProbe, nameOf, WebhookProbe, withServed } from './probe.ts'

/** A request that is no review. */
export class InvalidReviewError extends Error {
  override readonly name = 'InvalidReviewError'
}

/** How one object was converted. */
export interface ConversionReport {
  /** `websites.example.com` */
  resource: string
  /** Versions; `unknown` for one that the resource does not have. */
  from: string
  to: string
  /** `partial`: a version that is read shows the object in part. */
  result: 'success' | 'partial' | 'failure'
  ms: number
  /** `namespace/name` */
  object: string
  /** Why it failed. */
  because?: string
}

const API_VERSION = 'apiextensions.k8s.io/v1'
const KIND = 'ConversionReview'
/** Other requests have their turn after as long. */
const TURN_MS = 20

/** Resources by group and kind: `example.com/Website`. */
export type ByKind = ReadonlyMap<string, Resource>

export const byKind = (resources: readonly Resource[]): ByKind =>
  new Map([...resources, WebhookProbe].map((one) => [`${one.group}/${one.kind}`, one]))

/**
 * Answers a ConversionReview: all objects in their order, or the status Failure with the first object that cannot be
 * converted, and why. `storage`: the version in which the API server stores objects, if it is not the declared one. To show
 * an object in part in that version would lose the rest. Rejects with an InvalidReviewError if there is nothing to answer to.
 */
export async function answerConversion(
  review: unknown,
  resources: ByKind,
  report: (one: ConversionReport) => void,
  storage?: string,
): Promise<object> {
  const { uid, desiredAPIVersion, objects } = requestIn(review)
  const answer = (response: object) => ({ apiVersion: API_VERSION, kind: KIND, response: { uid, ...response } })
  const convertedObjects: KubeObject[] = []
  let began = performance.now()
  for (const [index, object] of objects.entries()) {
    try {
      convertedObjects.push(convert(object, desiredAPIVersion, resources, report, storage))
    } catch (error) {
      const message = `objects[${index}]: ${messageOf(error)}`
      return answer({ result: { status: 'Failure', message } })
    }
    if (performance.now() - began < TURN_MS) continue
    await turn()
    began = performance.now()
  }
  return answer({ result: { status: 'Success' }, convertedObjects })
}

/** How long the API server waits for an answer, less its way. Liveness probes wait for 30 s too. */
const CONVERSION_MS = 20_000
export const VALIDATION_MS = 4000

const CALL_MS = 2000
const realm = createContext({ call: undefined as unknown })
const caller = new Script('call()')

/**
 * Calls code of authors, and throws an Error after 2 s of it: a loop, or a regular expression that does not come back on
 * one text, would hold the process and all its objects. Code that had the processor for less than half of the 2 s begins
 * again, with twice the time, as long as the API server waits.
 */
export function withinLimit<Result>(call: () => Result, mostMs: number): Result {
  realm['call'] = call
  const end = performance.now() + mostMs
  const before = process.threadCpuUsage()
  try {
    for (let timeout = CALL_MS; ; timeout *= 2) {
      const left = Math.ceil(end - performance.now())
      try {
        return caller.runInContext(realm, { timeout: Math.min(timeout, left) }) as Result
      } catch (cause) {
        if ((cause as NodeJS.ErrnoException).code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw cause
        const { user, system } = process.threadCpuUsage(before)
        const isStarved = user + system < (CALL_MS / 2) * 1000 && performance.now() < end
        if (!isStarved) throw new Error(`it does not come back within ${CALL_MS / 1000} s`, { cause })
      }
    }
  } finally {
    realm['call'] = undefined
  }
}

/** Names and reasons are of whoever asks, and may be as long as a body. */
export const brief = (text: string): string => text.slice(0, 1024)

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

function requestIn(review: unknown): { uid: string; desiredAPIVersion: string; objects: unknown[] } {
  const { request, invalid } = requestOf(review, API_VERSION, KIND)
  const { uid, desiredAPIVersion, objects } = request
  if (typeof desiredAPIVersion !== 'string') return invalid('"request" has no "desiredAPIVersion"')
  if (!Array.isArray(objects)) return invalid('"request" has no list "objects"')
  if (isOfProbe(review) && objects.length > 1) return invalid(`a ${WebhookProbe.kind} comes alone`)
  return { uid, desiredAPIVersion, objects }
}

/** Returns the request of a review. Throws an InvalidReviewError for what is no such review. */
export function requestOf(
  review: unknown,
  apiVersion: string,
  kind: string,
): { request: Record<string, unknown> & { uid: string }; invalid: (what: string) => never } {
  const invalid = (what: string): never => {
    throw new InvalidReviewError(`this is no ${kind} of ${apiVersion}: ${what}`)
  }
  if (!isRecord(review) || review['apiVersion'] !== apiVersion || review['kind'] !== kind)
    return invalid(`it has another apiVersion or kind`)
  const { request } = review
  if (!isRecord(request)) return invalid('it has no "request"')
  const { uid } = request
  if (typeof uid !== 'string' || uid === '') return invalid('"request" has no "uid"')
  return { request: { ...request, uid }, invalid }
}

function convert(
  object: unknown,
  desired: string,
  resources: ByKind,
  report: (one: ConversionReport) => void,
  storage: string | undefined,
): KubeObject {
  if (!isObject(object)) throw new Error('it has no apiVersion, kind or metadata')
  const [group, from = ''] = object.apiVersion.split('/')
  const [wanted, to = ''] = desired.split('/')
  const resource = resources.get(`${group}/${object.kind}`)
  if (resource === undefined || wanted !== group)
    throw new Error(
      `${object.kind} of ${object.apiVersion} cannot become ${desired}: this process converts ${[...resources.values()]
        .filter((one) => one !== WebhookProbe)
        .map(({ kind, group: of }) => `${kind} of ${of}`)
        .join(', ')}`,
    )
  const stored = storage ?? resource.version
  const began = performance.now()
  const tell = (result: ConversionReport['result'], because?: string) => {
    const known = (version: string) =>
      resource.versions().some((one) => one.version === version) ? version : 'unknown'
    report({
      resource: nameOf(resource),
      from: known(from),
      to: known(to),
      result,
      ms: performance.now() - began,
      object: brief(namespacedName(object.metadata)),
      ...(because !== undefined && { because: brief(because) }),
    })
  }
  try {
    const converted = withinLimit(() => resource.convert(object, to), CONVERSION_MS)
    if (resource === WebhookProbe) return withServed(converted, [...resources.values()])
    const isInPart = isPartial(converted) && !isPartial(object)
    if (isInPart && to === stored) throw new Error(`it cannot be stored as ${to}: ${markOf(converted)}`)
    tell(isInPart ? 'partial' : 'success')
    return converted
  } catch (error) {
    const others = resource.versions().filter((one) => one.version !== stored)
    const isRead = from === stored && stored === resource.version && others.some((one) => one.version === to)
    tell(isRead ? 'partial' : 'failure', messageOf(error))
    if (isRead) return inPart(resource, object, to, messageOf(error))
    throw error
  }
}

const PARTIAL = 'fairlead.dev/partial'

const markOf = ({ metadata }: KubeObject): string | undefined => metadata.annotations?.[PARTIAL]

/** Whether a version shows the object in part. */
export const isPartial = (object: KubeObject): boolean => markOf(object) !== undefined

/**
 * Shows an object without what cannot be converted, where code does not come back, or a value is nested too deep. A failure
 * would break each list of the version.
 */
function inPart({ group }: Resource, { kind, metadata }: KubeObject, version: string, because: string): KubeObject {
  // The API server restores its own fields. Nobody writes a part back.
  const { name, namespace, uid, labels } = metadata
  const bare = { name, namespace, uid, labels, annotations: { [PARTIAL]: brief(because) } } as ObjectMeta
  return { apiVersion: apiVersionOf({ group, version }), kind, metadata: bare }
}

export const isObject = (value: unknown): value is KubeObject =>
  isRecord(value) &&
  typeof value['apiVersion'] === 'string' &&
  typeof value['kind'] === 'string' &&
  isRecord(value['metadata'])
