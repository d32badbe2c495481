import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { isConflict, isExpired, isNotFound, type KubeClient, resourcePath } from '#kube'
import type { Resource } from '#sdk'
import { CRDS, type Says, titleOf } from './installed-objects.ts'
import { managedFieldsWithout } from './managed-fields.ts'
import { nameOf, ownedObjects, type StoredDefinition, storageOf } from './versions.ts'

/** Each write is an event for every watch. */
const LEAST_MS = 1000 / 20
/** The API server ends a request after 60 s: after that, none is left that began with the former storage version. */
const SETTLED_MS = 60_000
const SHOWN = 3

interface Migration {
  /** The version in which all API servers store by now. */
  storage: string
  /** Versions that nothing may name afterwards. */
  going: readonly string[]
  says: Says
  settleMs?: number
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
  for (;;) {
    const definition = await kube.get<StoredDefinition & KubeObject>(path)
    if (storageOf(definition) !== migration.storage)
      throw new MigrationError(
        `${nameOf(resource)} is stored as ${storageOf(definition)} by now: look at its versions again`,
      )
    await untilWritten(kube, resource, migration)
    if (migration.going.length > 0) await renameOwners(kube, resource, migration)
    if (await recorded(kube, path, definition.metadata.generation, migration.storage)) return
    migration.says(`the definition of ${nameOf(resource)} has changed meanwhile: looks again`)
  }
}

/** Ends with a pass over all objects that began when no request of before could write any more, and that none has refused. */
async function untilWritten(kube: KubeClient, resource: Resource, migration: Migration): Promise<void> {
  const { says, settleMs = SETTLED_MS } = migration
  const began = performance.now()
  for (let refused = Number.POSITIVE_INFINITY; ; ) {
    const left = settleMs - (performance.now() - began)
    const { again, failed } = await pass(kube, resource, migration)
    // Some may have been refused for a moment only.
    if (failed.length > 0 && failed.length >= refused)
      throw new MigrationError(
        `${failed.length} objects of ${nameOf(resource)} cannot be written again, such as ${failed.slice(0, SHOWN).join('; ')}: mend or delete them, then repeat the command, which goes on where it was`,
      )
    refused = failed.length
    if (again + refused > 0) continue
    if (left <= 0) return
    says(`waits ${Math.ceil(left / 1000)} s for requests that began before, then looks again`)
    await sleep(Math.max(0, began + settleMs - performance.now()))
  }
}

interface Pass {
  objects: number
  changed: number
  /** What others have written between the reading and the write, and pages that are too old to go on. */
  again: number
  failed: string[]
}

async function pass(kube: KubeClient, resource: Resource, { storage, going, says }: Migration): Promise<Pass> {
  const done: Pass = { objects: 0, changed: 0, again: 0, failed: [] }
  const stored = { ...resource, version: storage }
  try {
    for await (const { items } of kube.list(resourcePath(stored))) {
      for (const object of items) {
        const { namespace, name } = object.metadata
        const path = resourcePath(stored, namespace, name)
        done.objects++
        const managedFields = managedFieldsWithout(resource, going, object)
        const outcome = await rewritten(kube, path, object, managedFields && { managedFields })
        if (outcome === 'changed' || outcome === 'again') done[outcome]++
        else if (outcome !== 'unchanged') done.failed.push(`${titleOf(object)}: ${outcome}`)
      }
      says(`${nameOf(resource)}: ${done.changed} of ${done.objects} objects were written again`)
    }
  } catch (error) {
    if (!isExpired(error)) throw error
    done.again++
  }
  return done
}

/** Without a part of the metadata, the API server writes the object as it finds it: a write of others is never undone. */
async function rewritten(
  kube: KubeClient,
  path: string,
  { metadata: { uid, resourceVersion } }: KubeObject,
  part: object | undefined,
): Promise<string> {
  const began = performance.now()
  const exactly = part === undefined ? { uid } : { uid, resourceVersion, ...part }
  try {
    const { metadata } = await kube.patch<KubeObject>(path, { metadata: exactly }, 'merge')
    if (metadata.resourceVersion === resourceVersion) return 'unchanged'
  } catch (error) {
    // It is gone, and what has its name now was created in the storage version.
    if (isNotFound(error)) return 'unchanged'
    return isConflict(error) ? 'again' : (error as Error).message
  }
  await sleep(Math.max(0, LEAST_MS - (performance.now() - began)))
  return 'changed'
}

/** Owner references to versions that go name the storage version afterwards. */
export async function renameOwners(
  kube: KubeClient,
  { group, kind }: Pick<Resource, 'group' | 'kind'>,
  { storage, going, says }: Pick<Migration, 'storage' | 'going' | 'says'>,
): Promise<void> {
  const names = going.map((one) => `${group}/${one}`)
  let renamed = 0
  for (let quiet = false; !quiet; ) {
    quiet = true
    for await (const { path, object } of ownedObjects(kube, { group, kind }, going)) {
      quiet = false
      const ownerReferences = object.metadata.ownerReferences?.map((one) =>
        one.kind === kind && names.includes(one.apiVersion) ? { ...one, apiVersion: `${group}/${storage}` } : one,
      )
      const outcome = await rewritten(kube, path, object, { ownerReferences })
      if (!['changed', 'unchanged', 'again'].includes(outcome))
        throw new MigrationError(`${titleOf(object)}: ${outcome}`)
      renamed++
    }
  }
  says(`${renamed} objects name ${kind} as ${group}/${storage} in their owner references now`)
}

/** Returns false if the definition has changed since the generation. */
async function recorded(
  kube: KubeClient,
  path: string,
  generation: number | undefined,
  storage: string,
): Promise<boolean> {
  const { metadata } = await kube.get<StoredDefinition & KubeObject>(path)
  if (metadata.generation !== generation) return false
  const patch = { metadata: { resourceVersion: metadata.resourceVersion }, status: { storedVersions: [storage] } }
  try {
    await kube.patch(`${path}/status`, patch, 'merge')
    return true
  } catch (error) {
    if (isConflict(error)) return false
    throw error
  }
}
