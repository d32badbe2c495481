import type { KubeObject } from '#contracts'
import { contestAnnotationOf, metadataManagerOf, parseSelector, type ReconcilerSpec } from '#spec'
import { braked, type Delayed, isDelayed, missingFields, type Taking } from './brake.ts'
import { covers, fingerprint } from './compare.ts'
import { metadataTarget, type NoOps } from './no-ops.ts'
import type { PlainOutcome } from './outcome.ts'

/** Server-side apply of all labels and annotations that the function keeps on its object, and of nothing else. */
export interface MetadataWrite {
  /** The object, bound to the uid and resourceVersion that were observed. */
  object: KubeObject
  /** The field manager. It manages no other fields, so that a key that is left out is removed. */
  manager: string
  fingerprint: string
  /** Left out if the fields that it takes back from other managers are not counted. */
  taking?: Taking
}

type Metadata = NonNullable<PlainOutcome['metadata']>

/** Returns undefined if the object has exactly these labels and annotations of the function. */
export function metadataWrite(
  object: KubeObject,
  identity: string,
  wanted: Metadata | undefined,
  { noOps, now, isGoing }: { noOps: NoOps; now: Date; isGoing: boolean },
): MetadataWrite | Delayed | undefined {
  if (wanted === undefined) return undefined
  const { uid, resourceVersion, name, namespace } = object.metadata
  const labels = sorted(wanted.labels)
  const annotations = sorted(wanted.annotations)
  const manager = metadataManagerOf(identity)
  // The digest includes the uid: a copy of the object, whose keys another manager has set, does not count as written.
  const digest = fingerprint([uid, labels, annotations])
  const isNone = isEmpty(labels) && isEmpty(annotations)
  const declared = isNone
    ? {}
    : { ...(!isEmpty(labels) && { labels }), annotations: { ...annotations, [manager]: digest } }
  const isDone = isNone ? object.metadata.annotations?.[manager] === undefined : covers(declared, object.metadata)
  if (isDone || noOps[metadataTarget(object)] === `${resourceVersion} ${digest}`) return undefined
  const metadata = { name, ...(namespace !== undefined && { namespace }), uid, resourceVersion, ...declared }
  const { apiVersion, kind } = object
  const applied = { apiVersion, kind, metadata: metadata as KubeObject['metadata'] }
  const write = { object: applied, manager, fingerprint: digest }
  if (isNone || isGoing) return write
  const isUnchanged = object.metadata.annotations?.[manager] === digest
  const missing = isUnchanged ? missingFields({ labels, annotations }, object.metadata, '.metadata') : []
  const taking = { observed: object, now, annotation: contestAnnotationOf(identity), missing, on: undefined }
  const counted = braked(applied, taking, () => isUnchanged)
  return isDelayed(counted) ? counted : { ...write, ...counted }
}

/** Returns the faults of the labels and annotations that a function returned. */
export function metadataFaults(
  { writes = [], for: { selector = '' } }: Pick<ReconcilerSpec, 'for' | 'writes'>,
  object: KubeObject,
  metadata: Metadata | undefined,
): string[] {
  if (metadata === undefined) return []
  if (!writes.includes('Metadata'))
    return ['the function returned "metadata", which it has no right to write: add "Metadata" to its "writes"']
  const { labels = {} } = metadata
  const faults = mapFaults(metadata)
  const selects = parseSelector(selector)
  const before = object.metadata.labels ?? {}
  if (faults.length > 0 || !selects(before) || selects({ ...before, ...labels })) return faults
  return [
    `metadata.labels would take the object out of the selector ${JSON.stringify(selector)}, so that it is never reconciled again: return other labels, or select by other ones`,
  ]
}

/** Returns the faults of keys and values that the API server refuses, or that are not the function's. */
export const mapFaults = ({ labels = {}, annotations = {} }: Metadata): string[] => [
  ...Object.keys(labels).flatMap((key) => keyFault('labels', key)),
  ...Object.entries(labels).flatMap(([key, value]) => valueFault(key, value)),
  ...Object.keys(annotations).flatMap((key) => keyFault('annotations', key)),
]

/**
 * The rules IsQualifiedName, IsDNS1123Subdomain and IsValidLabelValue of Kubernetes (apimachinery pkg/util/validation).
 */
const NAME = /^(?=.{1,63}$)[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?$/
const PREFIX = /^(?=.{1,253}$)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*$/

/** EVENTS stores objects without this annotation, so a run cannot see whether it exists. */
const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration'

function keyFault(field: 'labels' | 'annotations', key: string): string[] {
  const slash = key.indexOf('/')
  const given = slash === -1 ? undefined : key.slice(0, slash)
  // The API server accepts capital letters in the prefixes of annotations, but not of labels.
  const prefix = field === 'annotations' ? given?.toLowerCase() : given
  const isValid = NAME.test(key.slice(slash + 1)) && (prefix === undefined || PREFIX.test(prefix))
  const what = `metadata.${field} has the key ${JSON.stringify(key)}`
  if (!isValid)
    return [
      `${what}, which Kubernetes refuses: write NAME or PREFIX/NAME; NAME is 1 to 63 letters, digits, -, _ and ., with a letter or digit first and last; PREFIX is a DNS name in lower case`,
    ]
  if (key === LAST_APPLIED) return [`${what}, which belongs to kubectl: use a key of your own domain`]
  const isOurs = prefix !== undefined && /(?:^|\.)fairlead\.dev$/.test(prefix)
  return isOurs ? [`${what}, which belongs to Fairlead: use a key of your own domain`] : []
}

const valueFault = (key: string, value: string): string[] =>
  value === '' || NAME.test(value)
    ? []
    : [
        `metadata.labels has ${JSON.stringify(value)} as the value of ${JSON.stringify(key)}, which Kubernetes refuses: write at most 63 letters, digits, -, _ and ., with a letter or digit first and last`,
      ]

const sorted = (map: Record<string, string> = {}): Record<string, string> =>
  Object.fromEntries(Object.entries(map).sort(([one], [other]) => (one < other ? -1 : 1)))

const isEmpty = (map: object): boolean => Object.keys(map).length === 0
