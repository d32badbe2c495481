import { apiVersionOf, controllerOf, type KubeObject, type ResourceRef } from '#contracts'
import type { ObjectEvent, StoredEvent } from './types.ts'

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
  traceparent?: string | undefined
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
export function asBareReference(event: ObjectEvent): ObjectEvent {
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
export function asMetadata(event: ObjectEvent): ObjectEvent {
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
