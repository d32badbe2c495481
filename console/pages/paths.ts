import type { ResourceRef } from '#contracts'

const NONE = '_'
const joined = (...parts: string[]): string => `/${parts.map(encodeURIComponent).join('/')}`

/** `websites.example.com` */
export const kindPart = ({ resource, group }: Pick<ResourceRef, 'resource' | 'group'>): string =>
  group === '' ? resource : `${resource}.${group}`

const namespacePart = (namespace: string | undefined): string => namespace ?? NONE
export const namespaceIn = (part: string): string | undefined => (part === NONE || part === '' ? undefined : part)

export const objectPath = (kind: string, namespace: string | undefined, name: string): string =>
  joined('objects', kind, namespacePart(namespace), name)

export const previewPath = (reconciler: string, namespace: string | undefined, name: string): string =>
  joined('preview', reconciler, namespacePart(namespace), name)

export const runPath = (run: number): string => `/runs/${run}`
export const letterPath = (id: number): string => `/dead/${id}`

/** Adds the parameters that have a value. */
export function withQuery(path: string, query: Record<string, string | undefined>): string {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined || value === '' ? [] : [[name, value] as [string, string]],
  )
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given).toString()}`
}

/** Returns a parameter, unless it is empty. */
export function given(url: URL, name: string): string | undefined {
  const value = url.searchParams.get(name)?.trim()
  return value === '' || value === undefined ? undefined : value
}
