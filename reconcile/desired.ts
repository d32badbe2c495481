import { apiVersionOf, type KubeObject, type OwnerReference } from '#contracts'
import { type OwnedResource, PATCH_RECORDS, RETAINED_FOR, retainedFor } from '#spec'
import { CONTESTED_ANNOTATION } from './brake.ts'
import { sameJson } from './compare.ts'
import type { DesiredInput } from './outcome.ts'
import { RECONCILER_ANNOTATION } from './ownership.ts'
import { called, type OwnedObject } from './world.ts'

/** Fields that the API server sets. They are removed from an observed object that an author changes and returns. */
const SERVER_FIELDS = [
  'uid',
  'resourceVersion',
  'generation',
  'creationTimestamp',
  'deletionTimestamp',
  'deletionGracePeriodSeconds',
  'managedFields',
  'selfLink',
]

/** The annotation with the fingerprint of the applied object. It shows a difference if a field is no longer desired. */
export const DESIRED_ANNOTATION = 'fairlead.dev/desired'

/**
 * The annotation with a fingerprint that does not depend on the order of fields. With the strategy Recreate, another
 * order must not cause a deletion.
 */
export const DECLARED_ANNOTATION = 'fairlead.dev/declared'

const ANNOTATIONS = [CONTESTED_ANNOTATION, DESIRED_ANNOTATION, DECLARED_ANNOTATION, RECONCILER_ANNOTATION, RETAINED_FOR]

/** The status of an owned object belongs to the object's own controller, its place in an order to the run. */
const NOT_WRITTEN = ['status', 'stage']

export interface DesiredObject extends OwnedObject {
  /** The uid that the function returned, which names the observed object that it has copied. */
  uid: unknown
  stage: DesiredInput['stage']
}

export interface Desired {
  objects: DesiredObject[]
  /** The reasons why the set must not be applied, for the author: kind, namespace and name of each wrong object. */
  findings: string[]
}

/**
 * Returns the desired set with names, namespaces and controller owner references filled in. A retained object has an
 * annotation in place of the reference. An object without a name gets its owner's name. The objects of a namespaced
 * owner are in its namespace, because owner references do not cross namespaces.
 */
export function completeDesired(owner: KubeObject, owns: readonly OwnedResource[], apply: DesiredInput[]): Desired {
  const objects: DesiredObject[] = []
  const findings: string[] = []
  const places = new Map<string, number>()
  for (const [index, input] of apply.entries()) {
    const object = complete(owner, input)
    const resource = owns.find((owned) => owned.kind === object.kind && apiVersionOf(owned) === object.apiVersion)
    const identity = `${object.apiVersion} ${called(object)}`
    const first = places.get(identity)
    const fault =
      faultOf(owner, input, object) ?? (first === undefined ? undefined : twice(object, apply, [first, index]))
    places.set(identity, first ?? index)
    if (resource === undefined) findings.push(undeclared(object, owns))
    else if (fault !== undefined) findings.push(fault)
    else objects.push({ resource, object, uid: input.metadata['uid'], stage: input.stage })
  }
  return { objects, findings }
}

/** Whether the function has returned the observed object unchanged. Such an object declares nothing. */
export const isAsObserved = (owner: KubeObject, { object, uid }: DesiredObject, observed: KubeObject) =>
  uid !== undefined &&
  uid === observed.metadata.uid &&
  sameJson(object, complete(owner, observed as unknown as DesiredInput))

function complete(owner: KubeObject, { metadata, retain, ...content }: DesiredInput): KubeObject {
  const { annotations, ownerReferences = [], ...authored } = metadata
  const namespace = owner.metadata.namespace ?? metadata.namespace
  const others = (ownerReferences as unknown as OwnerReference[]).filter(({ uid }) => uid !== owner.metadata.uid)
  // An observed object that is returned unchanged stays retained.
  const isRetained = retain ?? annotations?.[RETAINED_FOR] === retainedFor(owner)
  const references = isRetained ? others : [...others, referenceTo(owner)]
  const kept = annotations && without(ANNOTATIONS, withoutRecords(annotations))
  const annotated = isRetained ? { ...kept, [RETAINED_FOR]: retainedFor(owner) } : kept
  return {
    ...without(NOT_WRITTEN, content),
    apiVersion: content.apiVersion,
    kind: content.kind,
    metadata: {
      ...without(SERVER_FIELDS, authored),
      ...(annotated && { annotations: annotated }),
      name: metadata.name ?? owner.metadata.name,
      ...(namespace === undefined ? {} : { namespace }),
      ...(references.length > 0 && { ownerReferences: references }),
    },
  }
}

/**
 * Leaves out records of fields of others: a function that copies the annotations of its object must not overwrite the record
 * of an object that it owns.
 */
const withoutRecords = (annotations: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(annotations).filter(([name]) => !name.startsWith(PATCH_RECORDS)))

const without = <T>(fields: readonly string[], record: Record<string, T>): Record<string, T> =>
  Object.fromEntries(Object.entries(record).filter(([field]) => !fields.includes(field)))

function referenceTo({ apiVersion, kind, metadata }: KubeObject): OwnerReference {
  const { name, uid = '' } = metadata
  return { apiVersion, kind, name, uid, controller: true, blockOwnerDeletion: true }
}

function undeclared(object: KubeObject, owns: readonly OwnedResource[]): string {
  const declared = owns.map((owned) => `${owned.kind} (${apiVersionOf(owned)})`).join(', ') || 'nothing'
  return `${called(object)} is a ${object.apiVersion} ${object.kind}, but the reconciler owns ${declared}: declare it in "owns"`
}

function twice(object: KubeObject, apply: readonly DesiredInput[], places: readonly number[]): string {
  const isCopy = (place: number) => apply[place]?.metadata['uid'] !== undefined
  const named = places.map((place) => `apply.${place}${isCopy(place) ? ' (a copy of the observed one)' : ''}`)
  return `${called(object)} is returned twice, as ${named.join(' and ')}: return it once`
}

function faultOf(owner: KubeObject, input: DesiredInput, object: KubeObject): string | undefined {
  const { namespace } = input.metadata
  const { name, ownerReferences } = object.metadata
  if (owner.metadata.namespace !== undefined && namespace !== undefined && namespace !== owner.metadata.namespace)
    return `${input.kind} ${namespace}/${name} is outside of its owner's namespace ${owner.metadata.namespace}`
  if (ownerReferences?.some(({ controller, uid }) => controller && uid !== owner.metadata.uid))
    return `${called(object)} names another controller in its ownerReferences`
  return undefined
}
