import { hash } from 'node:crypto'
import { isNotFound, type KubeClient } from '#kube'
import { UsageError } from '#process/exit'
import { NOWHERE, nameOf } from '#process/webhooks/probe'
import type { ConversionClient, CustomResourceDefinition, Reconciler, Resource } from '#sdk'
import { refuseBreaking } from './install.ts'
import { FIELD_MANAGER, isNamedIn, pathOf, type Says, storedReconcilers } from './installed-objects.ts'
import { migrate, renameOwners } from './migration.ts'
import {
  type CrdVersion,
  goingOf,
  type ResourceVersions,
  type StoredDefinition,
  storageOf,
  storedVersionsOf,
} from './versions.ts'
import { certifiedWebhook, proveWebhook, stillFails } from './webhook.ts'

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

const BEFORE = 'yes: --next with the functions of before'

/** What a step does with versions, and how it can be undone. */
export const STEPS: Record<VersionStep['kind'], [does: (versions: string) => string, back: string]> = {
  serve: [(versions) => `serve ${versions} as declared; new objects are stored as before`, BEFORE],
  store: [(versions) => `store what is written from now on as ${versions}`, 'yes: --back, until the migration'],
  migrate: [
    (versions) =>
      `write each object again, at most 20 a second, until all are stored as ${versions}; then status.storedVersions has it alone`,
    'no',
  ],
  unserve: [
    (versions) =>
      `let no client use ${versions} any more, after owner references name the stored version; objects stay as they are`,
    BEFORE,
  ],
  clean: [
    (versions) => `take ${versions} out of managedFields and owner references, and look that no object is stored in it`,
    'not needed',
  ],
  remove: [(versions) => `take ${versions} out of the definition`, 'no'],
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
    const former = before.at(-1)
    if (former === undefined) return { blocked: `every object is stored as ${now}: there is no step back` }
    return now === resource.version ? { kind: 'store', versions: [former] } : { kind: 'migrate', versions: [now] }
  }
  // Without a conversion, what only the new version has would be lost while it is not the stored one.
  if (now !== resource.version && declared.conversion === undefined && !hasWebhook)
    return { kind: 'store', versions: [resource.version] }
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
  const { resourceVersion, name } = definition.metadata
  const path = pathOf(definition.kind, undefined, name)
  const now = storageOf(definition)
  const target = kind === 'store' ? (versions[0] ?? now) : now
  const crd = definitionStoring(resource, target, definition)
  const apply = async (): Promise<void> => {
    if (crd.spec.conversion?.strategy === 'Webhook') {
      const { client: usual } = await certifiedWebhook(kube)
      const client = target === resource.version ? usual : storing(usual, target)
      await proveWebhook(kube, client, functions, says)
      crd.spec.conversion.webhook.clientConfig = client
    }
    const body = { ...crd, metadata: { ...crd.metadata, resourceVersion } }
    await kube.apply(path, body, { fieldManager: FIELD_MANAGER, force: true })
  }
  const merge = (spec: object) =>
    kube.patch(path, { metadata: { resourceVersion }, spec }, 'merge', { fieldManager: FIELD_MANAGER })
  switch (kind) {
    case 'serve':
    case 'store':
      demandReadable(state, kind === 'store' ? target : resource.version)
      refuseBreaking(definition, crd)
      await apply()
      return untilShown(kube, crd)
    case 'migrate':
    case 'clean':
      await untilShown(kube, definition)
      return migrate(kube, resource, { storage: now, going: kind === 'clean' ? versions : [], says })
    case 'unserve': {
      const readers = [...(await storedReconcilers(kube)).values()].filter((one) =>
        isNamedIn(one, definition, versions),
      )
      if (readers.length > 0)
        throw new UsageError(
          `${versions.join(', ')} of ${nameOf(resource)} is read for Reconciler ${readers.map(({ metadata }) => metadata.name).join(', ')}: first install functions that name ${now}, and replace the processes`,
        )
      await renameOwners(kube, resource, { storage: now, going: versions, says })
      const off = definition.spec.versions.map((one) => (versions.includes(one.name) ? { ...one, served: false } : one))
      await merge({ versions: off })
      return untilShown(kube, { ...definition, spec: { ...definition.spec, versions: off } })
    }
    case 'remove': {
      refuseBreaking(definition, crd)
      crd.spec.versions = crd.spec.versions.filter(({ name }) => !versions.includes(name))
      // To apply it would leave the authority of the webhook, which has been patched.
      if (resource.crd(NOWHERE).spec.conversion !== undefined) await apply()
      else await merge({ versions: crd.spec.versions, conversion: { strategy: 'None', webhook: null } })
      return untilShown(kube, crd)
    }
  }
}

/** An object of the declared version that this one shows in part would be stored in part. */
const storing = ({ service, ...client }: ConversionClient, version: string): ConversionClient => ({
  ...client,
  ...(service && { service: { ...service, path: `${service.path}/${version}` } }),
})

function demandReadable({ resource, unreadable }: ResourceVersions, version: string): void {
  const found = unreadable.find((one) => one.version === version)
  if (found !== undefined)
    throw new UsageError(
      `${found.objects} objects of ${nameOf(resource)} cannot be read as ${version}, and nothing is changed: mend the conversion, or the objects, such as ${found.such}`,
    )
}

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

interface Discovery {
  resources: { name: string; storageVersionHash?: string }[]
}

/** Resolves when the API servers say that they serve the versions as the definition has them, and store what it stores. */
async function untilShown(kube: KubeClient, crd: CustomResourceDefinition): Promise<void> {
  const { group, names, versions } = crd.spec
  // As k8s.io/apiserver does it (discovery.StorageVersionHash).
  const id = `${group}/${storageOf(crd)}/${names.kind}`
  const stored = hash('sha256', id, 'buffer').subarray(0, 8).toString('base64')
  const whyNot = async ({ name, served }: CrdVersion): Promise<string | undefined> => {
    const path = `/apis/${group}/${name}`
    const answer = await kube.request<Discovery>({ method: 'GET', path, alone: true }).catch((error: unknown) => {
      if (isNotFound(error)) return { resources: [] }
      throw error
    })
    const found = answer.resources.find((one) => one.name === names.plural)
    return found?.storageVersionHash === (served ? stored : undefined) ? undefined : name
  }
  const probe = async () => (await Promise.all(versions.map(whyNot))).find((name) => name !== undefined)
  const version = await stillFails(probe, SHOWN_WITHIN_MS)
  if (version !== undefined)
    throw new Error(
      `an API server does not show ${version} of ${crd.metadata.name} as the definition has it after ${SHOWN_WITHIN_MS / 1000} s: repeat the command`,
    )
}
