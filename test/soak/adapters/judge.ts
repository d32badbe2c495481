import { isRecord, type KubeObject } from '#contracts'
import type { Deletion } from './watched.ts'

/** What an object should have, as its hook has answered or as its chart says. */
export interface Wanted {
  /** Of each, the fields that have to be there. */
  children: readonly (KubeObject & { mayDiffer?: boolean })[]
  status: unknown
  labels?: unknown
}

/** Returns what is not as it should be, of one object and the children that it controls. */
export function wrongOf(parent: KubeObject, wanted: Wanted, children: readonly KubeObject[]): string[] {
  const title = titleOf(parent)
  const wrong = [
    ...missingIn(`${title} .status`, parent['status'] ?? {}, wanted.status ?? {}),
    ...missingIn(`${title} .metadata.labels`, parent.metadata.labels ?? {}, wanted.labels ?? {}),
  ]
  const alive = children.filter(({ metadata }) => metadata.deletionTimestamp === undefined)
  for (const { mayDiffer = false, ...one } of wanted.children) {
    const found = alive.find((other) => isSame(other, one, parent))
    if (found === undefined) wrong.push(`${title} has no ${titleOf(one)}`)
    else if (!mayDiffer) wrong.push(...missingIn(`${titleOf(found)} of ${title}`, found, withoutPlace(one)))
  }
  for (const one of children)
    if (!wanted.children.some((other) => isSame(one, other, parent)))
      wrong.push(`${title} has ${titleOf(one)}, which is not wanted`)
  return wrong
}

/** What may be done to the children of an object. */
export interface Licence {
  /** The object is there, and is not being deleted. */
  isAlive: boolean
  /** How often a child of this kind may be replaced by another of its name. */
  replacements: (child: KubeObject) => number
  /** Whether its hook wants the child no more. */
  isDropped: (child: KubeObject) => boolean
}

/** Returns each child that was deleted, but should not have been. */
export function lostOf(deletions: readonly Deletion[], licenceOf: (owner: string) => Licence | undefined): string[] {
  const counts = new Map<string, number>()
  return deletions.flatMap(({ object, owner }) => {
    const licence = owner === undefined ? undefined : licenceOf(owner)
    if (owner === undefined || licence?.isAlive !== true || licence.isDropped(object)) return []
    const key = `${owner} ${titleOf(object)}`
    const count = (counts.get(key) ?? 0) + 1
    counts.set(key, count)
    const most = licence.replacements(object)
    return count > most ? [`${titleOf(object)} was deleted ${count} times, and may be ${most} times`] : []
  })
}

export const titleOf = ({ kind, metadata: { namespace, name } }: KubeObject): string =>
  `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`

function isSame(one: KubeObject, other: KubeObject, parent: KubeObject): boolean {
  const namespaceOf = ({ metadata }: KubeObject) => metadata.namespace ?? parent.metadata.namespace
  return one.kind === other.kind && one.metadata.name === other.metadata.name && namespaceOf(one) === namespaceOf(other)
}

function withoutPlace(object: KubeObject): object {
  const { namespace, ...metadata } = object.metadata
  return { ...object, metadata, ...(namespace === '' && { namespace }) }
}

/** What a field without a value means. */
const EMPTY: readonly unknown[] = [null, undefined, 0, '', false]

/** Each wanted field that is not there. The API server adds fields and items of lists, and leaves out those without a value. */
export function missingIn(path: string, found: unknown, wanted: unknown): string[] {
  if (wanted === null || wanted === undefined || (found === undefined && EMPTY.includes(wanted))) return []
  if (Array.isArray(wanted)) {
    const items = Array.isArray(found) ? found : []
    if (items.length >= wanted.length)
      return wanted.flatMap((one, index) => missingIn(`${path}[${index}]`, items[index], one))
  } else if (isRecord(wanted)) {
    const fields = isRecord(found) ? found : {}
    return Object.entries(wanted).flatMap(([name, one]) => missingIn(`${path}.${name}`, fields[name], one))
  } else if (found === wanted) return []
  return [`${path} is ${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`]
}
