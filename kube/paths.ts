import type { ResourceRef } from '#contracts'
import { ApiPathError } from './errors.ts'

/**
 * Returns the path of a resource type, an object or its subresource. Without a namespace, the type is cluster-scoped,
 * or the path covers all namespaces.
 */
export function resourcePath(ref: ResourceRef, namespace?: string, name?: string, subresource?: string): string {
  if (subresource !== undefined && name === undefined) {
    throw new Error(`the path of ${ref.resource}/${subresource} needs the name of an object`)
  }
  return [
    ...(ref.group === '' ? ['/api'] : ['/apis', segment('group', ref.group)]),
    segment('version', ref.version),
    ...(namespace === undefined ? [] : ['namespaces', segment('namespace', namespace)]),
    segment('resource', ref.resource),
    ...(name === undefined ? [] : [segment('name', name)]),
    ...(subresource === undefined ? [] : [subresource.split('/').map(encodeURIComponent).join('/')]),
  ].join('/')
}

/**
 * Throws for an empty segment, which would name the collection: a delete of one object would become a delete of all
 * objects.
 */
function segment(what: string, value: string): string {
  if (value === '' || value === '.' || value === '..' || value.includes('/') || !value.isWellFormed()) {
    throw new ApiPathError(`${JSON.stringify(value)} cannot be the ${what} in an API path`)
  }
  return encodeURIComponent(value)
}
