import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { ApiConnectionError, ApiError, isConflict, isRetriable, type KubeClient, resourcePath } from '#kube'
import { nameOf } from '#process/webhooks/probe'
import type { Resource } from '#sdk'
import { CRDS, type Says, titleOf } from './installed-objects.ts'
import { managedFieldsWithout } from './managed-fields.ts'
import { ownedObjects, type StoredDefinition, storageOf } from './versions.ts'

/** Each write is an event for every watch. */
const LEAST_MS = 1000 / 20
/** The API server ends a request after 60 s: after that, none is left that began with the former storage version. */
const SETTLED_MS = 60_000
const SHOWN = 3
/** An API server that restarts, or a webhook, is back by then. */
const PATIENCE_MS = 300_000
const LOOK_MS = 1000
/** For how long the first of several refused objects is tried. */
const REFUSED_MS = 30_000

type Definition = StoredDefinition & KubeObject

interface Migration {
  /** The version in which all API servers store by now. */
  storage: string
  /** Versions that nothing may name afterwards. */
  going: readonly string[]
  says: Says
  settleMs?: number
  refusedMs?: number
}

/** Some objects cannot be written again, so they may still be stored in a former version. */
class MigrationError extends Error {
  override readonly name = 'MigrationError'
}

/**
 * Writes each object again, in the version that the API server stores by now, then sets status.storedVersions. The API
 * server writes an unchanged object only if it is stored in another version: so the migration can be ended at any moment
 * and repeated, and what is done takes no write again.
 */
export async function migrate(kube: KubeClient, resource: Resource, migration: Migration): Promise<void> {
  const path = resourcePath(CRDS, undefined, nameOf(resource))
  const waits = () => patience(kube, migration.says, isRetriable)
  for (;;) {
    const definition = await answered(() => kube.get<Definition>(path), waits())
    if (storageOf(definition) !== migration.storage)
      throw new MigrationError(
        `${nameOf(resource)} is stored as ${storageOf(definition)} by now: look at its versions again`,
      )
    const following = follow(kube, path, definition)
    try {
      await untilWritten(kube, resource, migration)
      if (migration.going.length > 0) await renameOwners(kube, resource, migration)
    } finally {
      await following.end()
    }
    for (;;) {
      const now = await answered(following.look, waits())
      if (now === undefined) break
      const { resourceVersion } = now.metadata
      const status = { storedVersions: [migration.storage] }
      const write = () => kube.patch(`${path}/status`, { metadata: { resourceVersion }, status }, 'merge')
      try {
        return void (await answered(write, patience(kube, migration.says, isUnavailable)))
      } catch (error) {
        if (!isConflict(error)) throw error
      }
    }
    migration.says(`others have changed the definition of ${nameOf(resource)} more than once in a moment: looks again`)
  }
}

/**
 * Looks at the definition every second until its end. `look` returns undefined once another version may have been stored
 * since the first look: one write, as of another authority, keeps the storage version if it is the same before and after,
 * and two writes between two looks can change it and back.
 */
function follow(kube: KubeClient, path: string, first: Definition) {
  const over = new AbortController()
  let last: Definition | undefined = first
  const look = async (): Promise<Definition | undefined> => {
    const now = await kube.get<Definition>(path)
    const writes = (now.metadata.generation ?? 0) - (last?.metadata.generation ?? 0)
    const isKept = now.metadata.uid === last?.metadata.uid && storageOf(now) === storageOf(first) && writes <= 1
    return (last = isKept ? now : undefined)
  }
  const looking = (async () => {
    while (!over.signal.aborted) {
      await look().catch(() => undefined)
      await sleep(LOOK_MS, undefined, over).catch(() => undefined)
    }
  })()
  const end = () => {
    over.abort()
    return looking
  }
  return { look, end }
}

/** Ends with a pass over all objects that began when no request of before could write any more. */
async function untilWritten(kube: KubeClient, resource: Resource, migration: Migration): Promise<void> {
  const { says, settleMs = SETTLED_MS } = migration
  const began = performance.now()
  for (;;) {
    const left = settleMs - (performance.now() - began)
    const rest = await pass(kube, resource, migration)
    await untilNoneIsLeft(kube, resource, migration, rest)
    if (left <= 0) return
    says(`waits ${Math.ceil(left / 1000)} s for requests that began before, then looks again`)
    await sleep(Math.max(0, began + settleMs - performance.now()))
  }
}

/** Writes again, alone, what a pass could not write: some may have been refused for a moment only. */
async function untilNoneIsLeft(kube: KubeClient, resource: Resource, migration: Migration, rest: readonly Left[]) {
  let refused = Number.POSITIVE_INFINITY
  for (let left = rest; left.length > 0; ) {
    await sleep(LOOK_MS)
    const write = writer(kube, resource, migration)
    const again: Left[] = []
    for (const { title, path } of left) {
      const why = await write(path, await found(kube, path, migration.says))
      if (isLeft(why)) again.push({ title, path, why })
    }
    const failed = again.flatMap(({ title, why }) => (why === 'again' ? [] : `${title}: ${why.message}`))
    if (failed.length > 0 && failed.length >= refused)
      throw new MigrationError(
        `${failed.length} objects of ${nameOf(resource)} cannot be written again, such as ${failed.slice(0, SHOWN).join('; ')}: mend or delete them, then repeat the command, which goes on where it was`,
      )
    refused = failed.length || refused
    left = again
  }
}

/** Returns undefined if the object is gone. */
async function found(kube: KubeClient, path: string, says: Says): Promise<KubeObject | undefined> {
  try {
    return await answered(() => kube.get<KubeObject>(path), patience(kube, says, isRetriable))
  } catch (error) {
    if (isGone(error, path.slice(path.lastIndexOf('/') + 1))) return undefined
    throw error
  }
}

/** Resolves when a request that failed is worth another try. Rejects with its error if none is, or after five minutes of failures. */
function patience(
  kube: KubeClient,
  says: Says,
  isAway: (error: unknown) => boolean,
): (error: unknown) => Promise<void> {
  let end: number | undefined
  return async (error) => {
    // An API server that starts refuses what it does not know yet.
    if (!isAway(error) && (await isReady(kube))) throw error
    if (end === undefined)
      says(`waits for an answer, up to ${PATIENCE_MS / 60_000} minutes: ${(error as Error).message}`)
    end ??= performance.now() + PATIENCE_MS
    do await sleep(LOOK_MS)
    while (performance.now() < end && !(await isReady(kube)))
    if (performance.now() >= end) throw error
  }
}

/** The API server does not handle the request of any object now. */
const isUnavailable = (error: unknown): boolean =>
  error instanceof ApiConnectionError || (error instanceof ApiError && [429, 503].includes(error.code))

const isReady = (kube: KubeClient): Promise<boolean> =>
  kube.text('/readyz').then(
    () => true,
    (error: unknown) => !isRetriable(error),
  )

/** What became of an object. `again`: others have written it between the reading and the write. */
type Outcome = 'changed' | 'unchanged' | 'again' | Error

/** An object that was not written. */
interface Left {
  title: string
  path: string
  why: 'again' | Error
}

const isLeft = (outcome: Outcome): outcome is Left['why'] => outcome === 'again' || outcome instanceof Error

/** Returns what could not be written. At 20 writes a second, 10,000 objects take longer than the API server keeps one version of the list. */
async function pass(kube: KubeClient, resource: Resource, migration: Migration): Promise<Left[]> {
  const { storage, says } = migration
  const stored = { ...resource, version: storage }
  const write = writer(kube, resource, migration)
  const count = { all: 0, changed: 0 }
  const left: Left[] = []
  // A list fails as a whole while the webhook is away, if one of its objects is stored in another version.
  let waits = patience(kube, says, isRetriable)
  const list = kube.list(resourcePath(stored), { mayMix: true, failed: (error) => waits(error) })
  for await (const { items } of list) {
    waits = patience(kube, says, isRetriable)
    for (const object of items) {
      const path = resourcePath(stored, object.metadata.namespace, object.metadata.name)
      const outcome = await write(path, object)
      count.all++
      if (outcome === 'changed') count.changed++
      if (isLeft(outcome)) left.push({ title: titleOf(object), path, why: outcome })
    }
    says(`${nameOf(resource)}: ${count.changed} of ${count.all} objects were written again`)
  }
  return left
}

/** Returns what writes an object again. It waits with the first one that is refused, as all are while the webhook is away. */
function writer(kube: KubeClient, resource: Resource, { going, says, refusedMs = REFUSED_MS }: Migration) {
  let refusedSince: number | undefined
  return async (path: string, object: KubeObject | undefined): Promise<Outcome> => {
    if (object === undefined) return 'unchanged'
    const managedFields = managedFieldsWithout(resource, going, object)
    const write = () => rewritten(kube, path, object, managedFields && { managedFields }, says)
    let outcome = await write()
    while (isRetriable(outcome) && performance.now() - (refusedSince ??= performance.now()) < refusedMs) {
      await sleep(LOOK_MS)
      outcome = await write()
    }
    if (typeof outcome === 'string') refusedSince = undefined
    return outcome
  }
}

/**
 * Without a part of the metadata, the API server writes the object as it finds it: a write of others is never undone. That is
 * an apply: if another version of managedFields cannot be converted, as while the webhook is away, it is refused, where a
 * patch would empty managedFields (Kubernetes 1.36).
 */
async function rewritten(
  kube: KubeClient,
  path: string,
  { apiVersion, kind, metadata: { name, uid, resourceVersion } }: KubeObject,
  part: object | undefined,
  says: Says,
): Promise<Outcome> {
  const began = performance.now()
  const nothing = { apiVersion, kind, metadata: { name, uid } }
  const write = () =>
    part === undefined
      ? kube.apply(path, nothing, { fieldManager: 'fairlead-versions', force: true })
      : kube.patch<KubeObject>(path, { metadata: { uid, resourceVersion, ...part } }, 'merge')
  try {
    const { metadata } = await answered(write, patience(kube, says, isUnavailable))
    if (metadata.resourceVersion === resourceVersion) return 'unchanged'
  } catch (error) {
    if (isGone(error, name)) return 'unchanged'
    return isConflict(error) ? 'again' : (error as Error)
  }
  await sleep(Math.max(0, LEAST_MS - (performance.now() - began)))
  return 'changed'
}

/** A write that was done although its answer was lost is a conflict, or changes nothing, the second time. */
async function answered<T>(request: () => Promise<T>, waits: (error: unknown) => Promise<void>): Promise<T> {
  for (;;)
    try {
      return await request()
    } catch (error) {
      await waits(error)
    }
}

/**
 * What has its name now was created in the storage version. An API server that does not serve the version finds nothing
 * either, and does not name the object.
 */
const isGone = (error: unknown, name: string): boolean =>
  error instanceof ApiError &&
  error.details.name === name &&
  (error.code === 404 || /uid mismatch|metadata\.uid/.test(error.said))

const MOST_PASSES = 5

/** Owner references to versions that go name the storage version afterwards. Rejects if somebody writes them back. */
export async function renameOwners(
  kube: KubeClient,
  { group, kind }: Pick<Resource, 'group' | 'kind'>,
  { storage, going, says }: Pick<Migration, 'storage' | 'going' | 'says'>,
): Promise<void> {
  const names = going.map((one) => `${group}/${one}`)
  let renamed = 0
  for (let passes = 1; ; passes++) {
    let last: string | undefined
    for await (const { path, object } of ownedObjects(kube, { group, kind }, going)) {
      last = path
      const ownerReferences = object.metadata.ownerReferences?.map((one) =>
        one.kind === kind && names.includes(one.apiVersion) ? { ...one, apiVersion: `${group}/${storage}` } : one,
      )
      const outcome = await rewritten(kube, path, object, { ownerReferences }, says)
      if (outcome instanceof Error) throw new MigrationError(`${path}: ${outcome.message}`, { cause: outcome })
      renamed++
    }
    if (last === undefined)
      return says(`${renamed} objects name ${kind} as ${group}/${storage} in their owner references now`)
    if (passes === MOST_PASSES)
      throw new MigrationError(
        `somebody writes ${names.join(', ')} into the owner references of ${last} again and again: let it be ${group}/${storage}, then repeat the command`,
      )
  }
}
