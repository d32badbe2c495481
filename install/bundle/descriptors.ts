import type { KubeObject } from '#contracts'
import { definitionsOf, type Reconciler } from '#sdk'

interface Descriptor {
  path: string
  displayName: string
  description?: string
  'x-descriptors'?: string[]
}

/** The part of a schema that is read here. */
interface Schema {
  type?: string
  description?: string
  properties?: Record<string, Schema>
}

/** The definitions of a function as a ClusterServiceVersion owns them, one for each version that is served. */
export function ownedBy(one: Reconciler): object[] {
  const resources = one.owns.map(({ kind, group, version }) => ({
    kind,
    name: '',
    version: group === '' ? version : `${group}/${version}`,
  }))
  return definitionsOf([one]).flatMap(({ metadata: { name }, spec: { names, versions } }) =>
    versions.map(({ name: version, schema: { openAPIV3Schema } }) => {
      const { description, properties = {} } = openAPIV3Schema as Schema
      return {
        name,
        kind: names.kind,
        version,
        displayName: words(names.kind),
        description: description ?? `A ${words(names.kind)}, reconciled by the function ${one.name}.`,
        resources: [{ kind: names.kind, name: '', version }, ...resources],
        specDescriptors: fieldsOf(properties['spec']),
        statusDescriptors: fieldsOf(properties['status']),
      }
    }),
  )
}

/** The examples of the kinds that the functions define, by kind. */
export function examplesOf(functions: readonly Reconciler[], objects: readonly KubeObject[]): KubeObject[] {
  const served = definitionsOf(functions).flatMap(({ spec: { group, names, versions } }) =>
    versions.map(({ name }) => `${group}/${name} ${names.kind}`),
  )
  return objects.filter(({ apiVersion, kind }) => served.includes(`${apiVersion} ${kind}`))
}

/** Fields by their paths; those of objects instead of the objects. Items of lists and values of maps have no paths. */
function fieldsOf(schema: Schema = {}, at = ''): Descriptor[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const path = at === '' ? name : `${at}.${name}`
    if (field.properties) return fieldsOf(field, path)
    return {
      path,
      displayName: words(name),
      ...(field.description !== undefined && { description: field.description }),
      ...(path === 'conditions' && { 'x-descriptors': ['urn:alm:descriptor:io.kubernetes.conditions'] }),
    }
  })
}

/** `backupPolicy`: Backup Policy. */
const words = (name: string): string =>
  `${name.charAt(0).toUpperCase()}${name.slice(1)}`.replaceAll(/(?<=[a-z0-9])(?=[A-Z])/g, ' ')
