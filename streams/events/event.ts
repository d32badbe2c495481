import { randomFillSync } from 'node:crypto'
import { apiVersionOf, controllerOf, type KubeObject, type ResourceRef } from '#contracts'
import type { StoredMessage } from '#nats'
import { decodeHeaderValue, encodeHeaderValue, PoisonEventError } from './cloudevent.ts'
import { fromNats, type NatsMessage, toNats } from './codec.ts'
import { isShortened, parseObjectSubject, type SubjectParts } from './subjects.ts'
import type { Identity, ObjectEvent, StoredEvent, StoredObject } from './types.ts'
import type { StoredCopy } from './version-conflict.ts'

/** Thrown if an object lacks a field that the API server always sets. */
export class IncompleteObjectError extends TypeError {
  override readonly name = 'IncompleteObjectError'
}

export interface ObjectEventInput {
  /** The host part of `source`. */
  cluster: string
  ref: ResourceRef
  verb: StoredEvent['verb']
  object: KubeObject
  now: Date
  traceparent?: string
}

const TYPE = 'dev.fairlead.resource.'
const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration'

/** Returns the CloudEvent of an object: the whole object except the parts that {@link asTravelling} leaves out. */
export function objectEvent({ cluster, ref, verb, object, now, traceparent }: ObjectEventInput): ObjectEvent {
  const { name, namespace, generation } = object.metadata
  const uid = demanded(object, 'uid')
  const resourceVersion = demanded(object, 'resourceVersion')
  return {
    specversion: '1.0',
    id: `${uid}:${resourceVersion}:${verb}`,
    source: `https://${cluster}${apiRoot(ref)}/${ref.resource}`,
    type: TYPE + verb,
    subject: objectPath(ref, namespace, name),
    time: now.toISOString(),
    datacontenttype: 'application/json',
    apiversion: apiVersionOf(ref),
    kind: object.kind,
    name,
    ...(namespace === undefined ? undefined : { namespace }),
    objectuid: uid,
    resourceversion: resourceVersion,
    ...(generation === undefined ? undefined : { generation: String(generation) }),
    partitionkey: `${ref.group}/${ref.resource}/${namespace ?? ''}/${name}`,
    ...(/^\d{1,20}$/.test(resourceVersion) ? { sequence: resourceVersion.padStart(20, '0') } : undefined),
    ...(traceparent === undefined ? undefined : { traceparent }),
    data: asTravelling(object),
  }
}

/**
 * Returns the object without `managedFields` and without kubectl's last-applied annotation, which repeats the object.
 * All objects outside of the API server have this form.
 */
export function asTravelling(object: KubeObject): KubeObject {
  const { managedFields, annotations } = object.metadata
  if (managedFields === undefined && annotations?.[LAST_APPLIED] === undefined) return object
  const { managedFields: _, annotations: __, ...metadata } = object.metadata
  return { ...object, metadata: { ...metadata, ...withoutLastApplied(annotations) } }
}

function withoutLastApplied(annotations: Record<string, string> = {}): { annotations?: Record<string, string> } {
  const { [LAST_APPLIED]: _, ...kept } = annotations
  return Object.keys(kept).length === 0 ? {} : { annotations: kept }
}

/**
 * Returns the same event with apiVersion, kind and metadata without annotations. Annotations are left out because many
 * tools keep a copy of the whole object in one, including the values of a Secret.
 */
export function asReference(event: ObjectEvent): ObjectEvent {
  const { apiVersion, kind, metadata } = event.data
  const { annotations: _, ...kept } = metadata
  return asMetadata({ ...event, data: { apiVersion, kind, metadata: kept } })
}

/**
 * Returns a reference with only the metadata that identify the object, its version and its controller, for an object
 * whose metadata exceed the size limit. Only etcd limits labels, finalizers and owner references, at 1.5 MB.
 */
function asBareReference(event: ObjectEvent): ObjectEvent {
  const { metadata } = event.data
  const controller = controllerOf(event.data)
  const kept = Object.fromEntries(Object.entries(metadata).filter(([field]) => IDENTIFYING.has(field)))
  const bare = { name: metadata.name, ...kept, ...(controller && { ownerReferences: [controller] }) }
  return asMetadata({ ...event, data: { ...event.data, metadata: bare } })
}

const IDENTIFYING = new Set([
  'namespace',
  'uid',
  'resourceVersion',
  'generation',
  'creationTimestamp',
  'deletionTimestamp',
])

/** Returns the same event with apiVersion, kind and metadata only. */
function asMetadata(event: ObjectEvent): ObjectEvent {
  const { apiVersion, kind, metadata } = event.data
  return { ...event, dataref: event.subject, data: { apiVersion, kind, metadata } }
}

/** Returns the verb in a type attribute. Undefined: the event is not the event of an object. */
export function verbOf(type: string | undefined): StoredEvent['verb'] | undefined {
  const verb = type?.startsWith(TYPE) ? type.slice(TYPE.length) : undefined
  return verb === 'added' || verb === 'modified' || verb === 'deleted' || verb === 'moved' ? verb : undefined
}

/** Returns the path of an object in the API, with segments escaped as in a URL. */
function objectPath(ref: ResourceRef, namespace: string | undefined, name: string): string {
  const scope = namespace === undefined ? '' : `/namespaces/${segment(namespace)}`
  return `${apiRoot(ref)}${scope}/${ref.resource}/${segment(name)}`
}

const apiRoot = ({ group, version }: ResourceRef): string =>
  group === '' ? `/api/${version}` : `/apis/${group}/${version}`

/** Escapes a path segment. A colon is common in RBAC names and needs no escape. */
const segment = (text: string): string => encodeURIComponent(text).replaceAll('%3A', ':')

function demanded(object: KubeObject, field: 'uid' | 'resourceVersion'): string {
  const value = object.metadata[field]
  if (value === undefined || value === '')
    throw new IncompleteObjectError(`${object.kind} ${object.metadata.name} has no metadata.${field}`)
  return value
}

/** Larger objects travel as references. */
export const MAX_OBJECT_BYTES = 512 * 1024

export interface TravelRules {
  isReferenceOnly: (ref: Pick<ResourceRef, 'group' | 'resource'>) => boolean
  maxObjectBytes: number
}

export interface Publication {
  event: ObjectEvent
  message: NatsMessage
}

interface PublicationOptions {
  /** True: only the metadata of the object are known. */
  metadataOnly?: boolean
  /** True: a Reconciler needs the last state of a deleted object. */
  lastState?: boolean
}

/**
 * Returns the event of an object as it travels, whole or as a reference. The event of a deletion has only metadata,
 * unless the last state is needed.
 */
export function publicationOf(
  input: ObjectEventInput,
  rules: TravelRules,
  { metadataOnly, lastState }: PublicationOptions = {},
): Publication {
  const event = objectEvent(input)
  if (rules.isReferenceOnly(input.ref)) return referenceTo(event, rules)
  const isPartial = metadataOnly || (input.verb === 'deleted' && !lastState)
  const publication = encodedIfFlat(isPartial ? asMetadata(event) : event)
  return publication !== undefined && mayTravel(publication, rules) ? publication : referenceTo(event, rules)
}

/**
 * Returns the encoded event. Undefined: the object is nested too deeply for JSON.stringify(), whose stack ends at some
 * thousand levels. The API server accepts 10,000 levels in fields whose schema preserves unknown fields; metadata have
 * no such fields.
 */
function encodedIfFlat(event: ObjectEvent): Publication | undefined {
  try {
    return encoded(event)
  } catch (error) {
    if (error instanceof RangeError) return undefined
    throw error
  }
}

/**
 * Returns the reference to an object. If its metadata exceed the limit, the reference has only the identifying
 * metadata.
 */
export function referenceTo(event: ObjectEvent, rules: Pick<TravelRules, 'maxObjectBytes'>): Publication {
  const reference = encoded(asReference(event))
  return mayTravel(reference, rules) ? reference : encoded(asBareReference(event))
}

const encoded = (event: ObjectEvent): Publication => ({ event, message: toNats(event) })

const mayTravel = ({ message }: Publication, { maxObjectBytes }: Pick<TravelRules, 'maxObjectBytes'>): boolean =>
  message.data.length <= maxObjectBytes

const ORIGIN = 'fairlead-origin'
const TTL = 'Nats-TTL'
const SOLE = 'fairlead-sole'

/** Returns the headers that are stored besides those of the event. */
export const storeHeaders = (origin: string | undefined, ttlSeconds: number | undefined) => ({
  [ORIGIN]: origin === undefined ? undefined : encodeHeaderValue(origin),
  [TTL]: ttlSeconds === undefined ? undefined : `${ttlSeconds}s`,
})

/**
 * The header that marks a copy as the only one: when it was stored, no other copy of the object counted, and the object
 * had not recently left an owner.
 */
export const SOLE_HEADER = { [SOLE]: '1' } as const

/**
 * Returns the copy in a message, from its headers alone. Accepts any message: the version of a message that is not an
 * event of Fairlead does not compare with any other version.
 */
export function copyFrom({ subject, sequence, headers }: StoredMessage): StoredCopy {
  return {
    owner: subject.split('.').at(-2) ?? '',
    sequence,
    resourceVersion: headers['ce-resourceversion'] ?? '',
    verb: verbOf(headers['ce-type']) ?? 'modified',
    origin: originOf(headers),
    partial: headers['ce-dataref'] !== undefined,
    sole: headers[SOLE] !== undefined,
  }
}

/** Returns when EVENTS drops the message, in epoch milliseconds. Undefined: never. */
export function expiryOf({ storedAt, headers }: StoredMessage): number | undefined {
  const ttl = headers[TTL]
  return ttl === undefined ? undefined : storedAt + Number.parseInt(ttl, 10) * 1000
}

/** Whether the message has only apiVersion, kind and metadata of the object. */
export const isReference = ({ headers }: StoredMessage): boolean => headers['ce-dataref'] !== undefined

/** Returns the event in a message. `subject` is without the installation's prefix. Throws PoisonEventError. */
export function storedEventFrom(subject: string, message: StoredMessage): StoredEvent {
  const event = fromNats(message) as ObjectEvent
  const verb = verbOf(event.type)
  if (verb === undefined || !isObject(event.data) || typeof event.resourceversion !== 'string')
    throw new PoisonEventError(
      'no-cloudevent',
      `the message on ${subject} is ${event.type}, not the event of an object`,
    )
  return { ...storedObject(subject, message, event, event.data), verb, event }
}

/** Returns the identity of an object from the headers alone. */
export function identityFrom(subject: string, message: StoredMessage): Identity {
  const event = fromNats({ ...message, data: new Uint8Array() }) as ObjectEvent
  const { namespace, name } = keyOn(subject, event)
  const object: KubeObject = {
    apiVersion: event.apiversion,
    kind: event.kind,
    metadata: {
      name,
      ...(namespace === undefined ? undefined : { namespace }),
      uid: event.objectuid,
      resourceVersion: event.resourceversion,
    },
  }
  return { ...storedObject(subject, message, event, object), deleted: verbOf(event.type) === 'deleted' }
}

export function storedObject(
  subject: string,
  message: Pick<StoredMessage, 'sequence' | 'storedAt' | 'headers'>,
  event: ObjectEvent,
  object: KubeObject,
): StoredObject {
  const { owner, ...key } = keyOn(subject, event)
  return {
    key,
    owner,
    sequence: message.sequence,
    storedAt: message.storedAt,
    resourceVersion: event.resourceversion,
    uid: event.objectuid,
    origin: originOf(message.headers),
    traceparent: event.traceparent,
    referenceOnly: event.dataref !== undefined,
    object,
  }
}

/** Returns the parts of the subject, with the whole name if the subject has only a shortened name. */
function keyOn(subject: string, { name }: Partial<ObjectEvent>): SubjectParts {
  const parts = parseObjectSubject(subject)
  return name !== undefined && isShortened(parts.name) ? { ...parts, name } : parts
}

function originOf(headers: StoredMessage['headers']): string | undefined {
  const origin = headers[ORIGIN]
  return origin === undefined ? undefined : decodeHeaderValue(origin)
}

const isObject = (data: unknown): data is KubeObject =>
  typeof data === 'object' && data !== null && 'metadata' in data && typeof data.metadata === 'object'

/** A span of a trace as in W3C Trace Context, with the span that caused it. */
export interface Span {
  /** 32 hexadecimal digits. */
  traceId: string
  /** 16 hexadecimal digits. */
  spanId: string
  /** Left out: the trace begins here. */
  parentSpanId?: string
  /** True: the span is exported. */
  sampled: boolean
}

const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/

/**
 * Returns a new span in the trace of `parent`, a traceparent. If `parent` is not valid, the span begins a new trace.
 */
export function spanAfter(parent: string | undefined, sampled: boolean): Span {
  const spanId = randomHex(8)
  const [, traceId = '', parentSpanId = '', flags = ''] = TRACEPARENT.exec(parent ?? '') ?? []
  if (/^0*$/.test(traceId) || /^0*$/.test(parentSpanId)) return { traceId: randomHex(16), spanId, sampled }
  return { traceId, spanId, parentSpanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 }
}

const randomPool = Buffer.alloc(4096)
let used = randomPool.length

/** Returns two digits for each of so many random bytes. To ask for each of them alone would take ten times as long. */
function randomHex(bytes: number): string {
  if (used + bytes > randomPool.length) {
    randomFillSync(randomPool)
    used = 0
  }
  used += bytes
  return randomPool.toString('hex', used - bytes, used)
}

export const traceparentOf = ({ traceId, spanId, sampled }: Span): string =>
  `00-${traceId}-${spanId}-${sampled ? '01' : '00'}`
