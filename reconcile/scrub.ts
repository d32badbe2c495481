import { inBase64, isRecord, type KubeObject, type Scrub, scrubberOfValues } from '#contracts'

/** An object, or an object that a function returned and that may be incomplete. */
export type Contents = Pick<KubeObject, 'apiVersion' | 'kind'> & Record<string, unknown>

/**
 * Returns a function that removes the contents of these objects, except metadata and conditions, from a text. Contents
 * are the values of a Secret as text and in base64, and every text and number of other kinds. `names`: see
 * scrubberOfValues().
 */
export const scrubber = (objects: readonly Contents[], names?: () => Iterable<string>): Scrub =>
  scrubberOfValues(objects.flatMap(valuesIn), names)

function valuesIn(object: Contents): string[] {
  const { apiVersion, kind, metadata: _, ...content } = object
  const encoded = textsIn(content['data'])
  const plain = textsIn(content['stringData'])
  const ofSecret = [...encoded, ...encoded.map(decoded), ...plain, ...plain.map(inBase64)]
  if (apiVersion === 'v1' && kind === 'Secret') return ofSecret
  // A List of Secrets, and a Secret without its apiVersion: no outcome with one is valid.
  const items = [content['items']].flat().filter(isRecord) as Contents[]
  return [...textsIn(withoutConditions(content)), ...items.flatMap(valuesIn), ...(kind === 'Secret' ? ofSecret : [])]
}

/** Removes conditions, because they hold the messages of earlier failures of the same kind. */
function withoutConditions({ status, ...content }: Record<string, unknown>): Record<string, unknown> {
  if (!isRecord(status)) return { ...content, status }
  const { conditions: _, ...rest } = status
  return { ...content, status: rest }
}

/** `within`: the value may be a cycle, if a function in this process has returned it. */
function textsIn(value: unknown, within: ReadonlySet<unknown> = new Set()): string[] {
  if (typeof value === 'string') return [value]
  if (typeof value === 'number' || typeof value === 'bigint') return [String(value)]
  if (typeof value !== 'object' || value === null || within.has(value)) return []
  const inside = new Set([...within, value])
  return Object.values(value).flatMap((one) => textsIn(one, inside))
}

const decoded = (base64: string): string => Buffer.from(base64, 'base64').toString()

/** The placeholder for confidential values in a record. */
export const WITHHELD = '(withheld)'

/**
 * Returns an object without its contents: the names of its fields, and the metadata that identify it. Annotations are
 * left out, because they may hold a copy of the whole object. The object may be incomplete, as a function returned it.
 */
export function withoutContents({ apiVersion, kind, metadata, ...content }: KubeObject): KubeObject {
  const { name, namespace, uid, resourceVersion, labels, ownerReferences } = metadata ?? {}
  const kept = { name, namespace, uid, resourceVersion, labels, ownerReferences }
  const known = Object.entries(kept).filter(([, value]) => value !== undefined)
  return {
    apiVersion,
    kind,
    metadata: Object.fromEntries(known) as unknown as KubeObject['metadata'],
    ...Object.fromEntries(Object.entries(content).map(([field, value]) => [field, withoutValues(value)])),
  }
}

export const withoutValues = (value: unknown): unknown =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.keys(value).map((key) => [key, WITHHELD]))
    : WITHHELD
