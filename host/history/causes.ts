import {
  type Cause,
  type InputRecord,
  type LapRecord,
  namespacedName,
  type ObjectVersion,
  type RunRecord,
} from '#contracts'

/** Versions, keyed by object. */
export type Versions = ReadonlyMap<string, ObjectVersion>

/** Returns `Deployment.v1.apps shop/web` for `Deployment.v1.apps shop/web@123`. */
const objectOf = (version: ObjectVersion): string => version.slice(0, version.lastIndexOf('@'))

export function versionsIn({ object, owned, related }: Pick<InputRecord, 'object' | 'owned' | 'related'>): Versions {
  const versions = new Map<string, ObjectVersion>()
  if (object !== null) versions.set(objectOf(object), object)
  for (const kinds of [owned, related])
    for (const kind in kinds) for (const version of kinds[kind] ?? []) versions.set(objectOf(version), version)
  return versions
}

/** Returns the versions that a run knew when it ended: its last input, with the run's own writes applied. */
export function versionsAfter(laps: readonly Pick<LapRecord, 'input' | 'writes'>[]): Versions | undefined {
  const last = laps.at(-1)
  if (last === undefined) return undefined
  const versions = new Map(versionsIn(last.input))
  for (const { verb, kind, namespace, name, resourceVersion, error } of last.writes) {
    if (error !== undefined) continue
    const id = [...versions.keys()].find((one) => isCalled(one, kind, namespace, name))
    if (id === undefined) continue
    if (verb === 'delete') versions.delete(id)
    else if (resourceVersion !== undefined) versions.set(id, `${id}@${resourceVersion}`)
  }
  return versions
}

const isCalled = (id: string, kind: string, namespace: string | undefined, name: string): boolean =>
  id.startsWith(`${kind}.`) && id.endsWith(` ${namespacedName({ namespace, name })}`)

/** The first 50 causes are recorded; further ones are left out. */
const MOST_CAUSES = 50

/** Returns the objects that were added, changed or removed between two runs, without the writes of the earlier run. */
export function causesBetween(before: Versions, after: Versions): Cause[] {
  const causes: Cause[] = []
  for (const [object, version] of after) {
    const known = before.get(object)
    if (known !== version) causes.push({ is: known === undefined ? 'new' : 'changed', object })
  }
  for (const object of before.keys()) if (!after.has(object)) causes.push({ is: 'gone', object })
  return causes.slice(0, MOST_CAUSES)
}

/** Returns the changes since that run; undefined if one of the two runs has not called the function. */
export function causesOf(record: RunRecord, before: RunRecord): Cause[] | undefined {
  const [first] = record.laps
  const known = versionsAfter(before.laps)
  return first && known && causesBetween(known, versionsIn(first.input))
}
