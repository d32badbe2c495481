import { hash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { isNotFound, type KubeClient, resourcePath } from '#kube'
import { UsageError } from '#process/exit'
import type { CustomResourceDefinition, Reconciler, Resource } from '#sdk'
import { refuseBreaking } from './install.ts'
import { CRDS, FIELD_MANAGER, type Says } from './installed-objects.ts'
import { migrate, renameOwners } from './migration.ts'
import {
  goingOf,
  nameOf,
  type ResourceVersions,
  type StoredDefinition,
  storageOf,
  storedVersionsOf,
} from './versions.ts'
import { certifiedWebhook, NOWHERE, proveWebhook } from './webhook.ts'

export type Direction = 'next' | 'back'

export interface VersionStep {
  kind: 'serve' | 'store' | 'migrate' | 'unserve' | 'clean' | 'remove'
  /** The versions that it changes. */
  versions: string[]
}

/** Why there is no step, though the cluster is not as declared: what to do first. */
export interface Blocked {
  blocked: string
}

/** What a step does, and how it can be undone. */
export const STEPS: Record<VersionStep['kind'], (versions: string) => { does: string; back: string }> = {
  serve: (versions) => ({
    does: `serve ${versions} as declared; new objects are stored as before`,
    back: 'yes: --next with the functions of before',
  }),
  store: (versions) => ({
    does: `store what is written from now on as ${versions}`,
    back: 'yes: --back, until the migration',
  }),
  migrate: (versions) => ({
    does: `write each object again, at most 20 a second, until all are stored as ${versions}; then status.storedVersions has it alone`,
    back: 'no',
  }),
  unserve: (versions) => ({
    does: `let no client use ${versions} any more, after owner references name the stored version; objects stay as they are`,
    back: 'yes: --next with the functions of before',
  }),
  clean: (versions) => ({
    does: `take ${versions} out of managedFields and owner references, and look that no object is stored in it`,
    back: 'not needed',
  }),
  remove: (versions) => ({ does: `take ${versions} out of the definition`, back: 'no' }),
}

/** Returns the next step from what the cluster has to what the resource declares, or one back. Undefined: there is none. */
export function stepOf(state: ResourceVersions, direction: Direction): VersionStep | Blocked | undefined {
  const { resource, definition, rows } = state
  const now = storageOf(definition)
  const stored = storedVersionsOf(definition)
  const before = stored.filter((one) => one !== now)
  const declared = resource.crd(NOWHERE).spec
  const isDeclared = (version: string) => declared.versions.some(({ name }) => name === version)
  const hasWebhook = definition.spec.conversion?.strategy === 'Webhook'
  const unknown = stored.find((one) => !isDeclared(one))
  if (unknown !== undefined && (hasWebhook || unknown === now))
    return {
      blocked: `objects may be stored as ${unknown}, which these functions do not declare: add it to "served"${hasWebhook ? ', with its "convert"' : ''}, and migrate before you take it away`,
    }
  if (direction === 'back') {
    if (before[0] === undefined) return { blocked: `every object is stored as ${now}: there is no step back` }
    return now === resource.version ? { kind: 'store', versions: [before[0]] } : { kind: 'migrate', versions: [now] }
  }
  const wanted = declared.versions.filter(({ name, served }) => served || name === now)
  const changed = wanted.filter((one) => isChanged(one, definition))
  const lacksWebhook = declared.conversion !== undefined && !hasWebhook
  if (changed.length > 0 || lacksWebhook)
    return { kind: 'serve', versions: (lacksWebhook ? wanted : changed).map(({ name }) => name) }
  if (now !== resource.version) return { kind: 'store', versions: [resource.version] }
  if (before.length > 0) return { kind: 'migrate', versions: [now] }
  const going = goingOf(resource, definition)
  const served = going.filter((one) => one.served).map(({ name }) => name)
  if (served.length > 0) return { kind: 'unserve', versions: served }
  const named = rows.filter(
    ({ version, writtenBy, owned = 0 }) => going.some(({ name }) => name === version) && writtenBy + owned > 0,
  )
  if (named.length > 0) return { kind: 'clean', versions: named.map(({ version }) => version) }
  const gone = going.map(({ name }) => name).filter((name) => !isDeclared(name))
  return gone.length > 0 ? { kind: 'remove', versions: gone } : undefined
}

type CrdVersion = CustomResourceDefinition['spec']['versions'][number]

function isChanged({ name, deprecationWarning }: CrdVersion, { spec }: CustomResourceDefinition): boolean {
  const there = spec.versions.find((one) => one.name === name)
  return there?.served !== true || there.deprecationWarning !== deprecationWarning
}

/** Takes a step, and resolves when its proof holds. Rejects if the definition has changed since the state was read. */
export async function takeStep(
  kube: KubeClient,
  functions: readonly Reconciler[],
  state: ResourceVersions,
  { kind, versions }: VersionStep,
  says: Says,
): Promise<void> {
  const { resource, definition } = state
  const { resourceVersion } = definition.metadata
  const now = storageOf(definition)
  const apply = async (crd: CustomResourceDefinition): Promise<void> => {
    if (crd.spec.conversion?.strategy === 'Webhook') {
      const { client } = await certifiedWebhook(kube)
      await proveWebhook(kube, client, functions, says)
      crd.spec.conversion.webhook.clientConfig = client
    }
    const body = { ...crd, metadata: { ...crd.metadata, resourceVersion } }
    await kube.apply(pathOf(resource), body, { fieldManager: FIELD_MANAGER, force: true })
  }
  const merge = (spec: object) =>
    kube.patch(pathOf(resource), { metadata: { resourceVersion }, spec }, 'merge', { fieldManager: FIELD_MANAGER })
  switch (kind) {
    case 'serve': {
      const crd = definitionStoring(resource, now, definition)
      demandReadable(state, resource.version)
      refuseBreaking(definition, crd)
      await apply(crd)
      return untilShown(kube, resource, now)
    }
    case 'store': {
      const [version = now] = versions
      demandReadable(state, version)
      await apply(definitionStoring(resource, version, definition))
      return untilShown(kube, resource, version)
    }
    case 'migrate':
    case 'clean':
      await untilShown(kube, resource, now)
      // What is cleaned has been migrated before.
      return migrate(kube, resource, {
        storage: now,
        going: kind === 'clean' ? versions : [],
        says,
        ...(kind === 'clean' && { settleMs: 0 }),
      })
    case 'unserve': {
      await renameOwners(kube, resource, { storage: now, going: versions, says })
      const off = definition.spec.versions.map((one) => (versions.includes(one.name) ? { ...one, served: false } : one))
      await merge({ versions: off })
      return untilShown(kube, resource, now)
    }
    case 'remove': {
      const crd = resource.crd(NOWHERE)
      // To apply it would leave the authority of the webhook, which has been patched.
      if (crd.spec.conversion !== undefined) await apply(crd)
      else await merge({ versions: crd.spec.versions, conversion: { strategy: 'None', webhook: null } })
      return untilShown(kube, resource, now)
    }
  }
}

function demandReadable({ resource, unreadable }: ResourceVersions, version: string): void {
  const found = unreadable.find((one) => one.version === version)
  if (found !== undefined)
    throw new UsageError(
      `${found.objects} objects of ${nameOf(resource)} cannot be read as ${version}, and nothing is changed: mend the conversion, or the objects, such as ${found.such}`,
    )
}

const pathOf = (resource: Resource): string => resourcePath(CRDS, undefined, nameOf(resource))

/** Returns the declared definition, with another stored version, and with the versions of the cluster that are not declared. */
function definitionStoring(resource: Resource, storage: string, { spec }: StoredDefinition): CustomResourceDefinition {
  const crd = resource.crd(NOWHERE)
  const there = (name: string) => spec.versions.find((one) => one.name === name)
  const others = spec.versions.filter(({ name }) => !crd.spec.versions.some((one) => one.name === name))
  const conversion = crd.spec.conversion ?? (others.length > 0 ? spec.conversion : undefined)
  const versions = [
    ...crd.spec.versions.map((one) => ({
      ...one,
      storage: one.name === storage,
      served: one.served || there(one.name)?.served === true,
    })),
    ...others,
  ]
  return { ...crd, spec: { ...crd.spec, versions, ...(conversion !== undefined && { conversion }) } }
}

const SHOWN_WITHIN_MS = 60_000
const ASK_AGAIN_MS = 250
/** Each has a connection of its own, so that each of several API servers very probably gets one. */
const ASKED = 20

interface Discovery {
  resources: { name: string; storageVersionHash?: string }[]
}

/** Resolves when the API servers say that they serve the storage version, and store what is written in it. */
async function untilShown(kube: KubeClient, { group, kind, resource }: Resource, storage: string): Promise<void> {
  const path = `/apis/${group}/${storage}`
  // As k8s.io/apiserver does it (discovery.StorageVersionHash).
  const shown = hash('sha256', `${group}/${storage}/${kind}`, 'buffer').subarray(0, 8).toString('base64')
  const deadline = performance.now() + SHOWN_WITHIN_MS
  for (let seen = 0; seen < ASKED; ) {
    const answer = await kube.request<Discovery>({ method: 'GET', path, alone: true }).catch((error: unknown) => {
      if (isNotFound(error)) return { resources: [] }
      throw error
    })
    const isShown = answer.resources.some((one) => one.name === resource && one.storageVersionHash === shown)
    seen = isShown ? seen + 1 : 0
    if (isShown) continue
    if (performance.now() > deadline)
      throw new Error(
        `an API server does not store ${resource}.${group} as ${storage} after ${SHOWN_WITHIN_MS / 1000} s: repeat the command`,
      )
    await sleep(ASK_AGAIN_MS)
  }
}
