import { isRecord, type KubeObject } from '#contracts'
import type { Resource, ResourceVersion } from '#sdk'
import { type ManagedField, managedFieldsOf } from './versions.ts'

/** As in fieldsV1: `f:NAME` of an object, `k:KEYS` and `v:VALUE` of a list, `.` for the value that has them. */
type Fields = { [key: string]: Fields }
type Schema = ResourceVersion['schema']

/**
 * Returns the managedFields of an object without the versions that go: what a manager has of the object in such a version,
 * converted, is what it has in the stored one. Returns undefined if no manager has one of these versions. A manager whose part
 * cannot be converted keeps only the metadata. `object` is in the stored version.
 */
export function managedFieldsWithout(
  resource: Resource,
  going: readonly string[],
  object: KubeObject,
): ManagedField[] | undefined {
  const names = going.map((one) => `${resource.group}/${one}`)
  const entries = managedFieldsOf(object)
  if (!entries.some(({ apiVersion = '' }) => names.includes(apiVersion))) return undefined
  const kept: ManagedField[] = []
  for (const entry of entries) {
    const moved = names.includes(entry.apiVersion ?? '') ? inStored(resource, entry, object) : entry
    const same = kept.find((one) => identityOf(one) === identityOf(moved))
    if (same === undefined) kept.push(moved)
    else same.fieldsV1 = union(same.fieldsV1 as Fields, moved.fieldsV1 as Fields)
  }
  const owning = kept.filter(({ fieldsV1 = {} }) => Object.keys(fieldsV1).length > 0)
  // An empty list would leave them as they are.
  return owning.length === 0 ? [{}] : owning
}

const identityOf = ({ manager, operation, subresource, apiVersion }: ManagedField): string =>
  JSON.stringify([manager, operation, subresource, apiVersion])

const union = (one: Fields, other: Fields): Fields => {
  const both = { ...one }
  for (const [key, fields] of Object.entries(other)) both[key] = union(both[key] ?? {}, fields)
  return both
}

function inStored(resource: Resource, entry: ManagedField, object: KubeObject): ManagedField {
  const { version, group, kind } = resource
  const apiVersion = `${group}/${version}`
  const fields = (entry.fieldsV1 ?? {}) as Fields
  const [stored, ...others] = resource.versions()
  const from = others.find((one) => `${group}/${one.version}` === entry.apiVersion)
  if (stored === undefined || (from !== undefined && from.convert === undefined)) return { ...entry, apiVersion }
  const { 'f:spec': spec, 'f:status': status, ...rest } = fields
  try {
    // Of a version that is not declared, the fields are left that the object still has.
    const shown = from === undefined ? object : resource.convert(object, from.version)
    const part: KubeObject = {
      apiVersion: shown.apiVersion,
      kind,
      metadata: { name: object.metadata.name },
      ...(spec !== undefined && { spec: partOf(shown.spec, spec) }),
      ...(status !== undefined && { status: partOf(shown.status, status) }),
    }
    const now = resource.convert(part, version)
    const own = fieldsOf({ spec: now.spec, status: now.status }, stored.schema)
    return { ...entry, apiVersion, fieldsV1: { ...rest, ...own } }
  } catch {
    return { ...entry, apiVersion, fieldsV1: rest }
  }
}

/** Returns what a manager has of a value. */
function partOf(value: unknown, fields: Fields): unknown {
  const keys = Object.keys(fields)
  if (keys.length === 0) return value
  if (Array.isArray(value))
    return value.flatMap((element) => {
      const key = keys.find((one) => isOf(one, element))
      if (key === undefined) return []
      return key.startsWith('v:') ? [element] : [{ ...JSON.parse(key.slice(2)), ...partOfRecord(element, fields[key]) }]
    })
  return isRecord(value) ? partOfRecord(value, fields) : value
}

function partOfRecord(value: unknown, fields: Fields = {}): object {
  const record = isRecord(value) ? value : {}
  const named = Object.keys(fields).filter((key) => key.startsWith('f:') && Object.hasOwn(record, key.slice(2)))
  return Object.fromEntries(named.map((key) => [key.slice(2), partOf(record[key.slice(2)], fields[key] ?? {})]))
}

function isOf(key: string, element: unknown): boolean {
  if (key.startsWith('v:')) return key === `v:${JSON.stringify(element)}`
  if (!key.startsWith('k:') || !isRecord(element)) return false
  const keys = JSON.parse(key.slice(2)) as Record<string, unknown>
  return Object.entries(keys).every(([name, value]) => element[name] === value)
}

/** Returns the fields of a value, as the API server names them. */
function fieldsOf(value: unknown, schema: Schema | undefined): Fields {
  if (Array.isArray(value)) {
    const keys = schema?.['x-kubernetes-list-map-keys'] as string[] | undefined
    if (schema?.['x-kubernetes-list-type'] === 'set')
      return Object.fromEntries(value.map((one) => [`v:${JSON.stringify(one)}`, {}]))
    if (schema?.['x-kubernetes-list-type'] !== 'map' || keys === undefined) return {}
    return Object.fromEntries(
      value.map((one: Record<string, unknown>) => [
        `k:${JSON.stringify(Object.fromEntries(keys.toSorted().map((name) => [name, one[name]])))}`,
        { '.': {}, ...fieldsOf(one, schema.items) },
      ]),
    )
  }
  if (!isRecord(value) || schema?.['x-kubernetes-map-type'] === 'atomic') return {}
  const own = Object.entries(value).filter(([, field]) => field !== undefined)
  return Object.fromEntries(
    own.map(([name, field]) => [
      `f:${name}`,
      fieldsOf(field, schema?.properties?.[name] ?? schema?.additionalProperties),
    ]),
  )
}
