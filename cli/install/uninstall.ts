import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { isConflict, isNotFound, type KubeClient, resourcePath } from '#kube'
import { NOWHERE, nameOf, WebhookProbe, webhookResources } from '#process/webhooks/probe'
import { type CustomResourceDefinition, manifest, type Reconciler, type Resource } from '#sdk'
import { finalizerOf, finalizersWithout, identityOf, patchedBy, SYSTEM_NAMESPACE } from '#spec'
import {
  earlierRights,
  found,
  holders,
  type Installed,
  isAccountOf,
  isInstalled,
  isNamedIn,
  isOfPlatform,
  pathOf,
  type StoredReconciler,
  storedReconcilers,
  storedUnder,
  titleOf,
} from './installed-objects.ts'
import { migrate } from './migration.ts'
import { earlierPolicies, exemptOf, functionPolicies, functionWebhooks, isGuarded } from './policies.ts'
import { functionRbac, platformRbac, teamRbac } from './rbac.ts'
import { reconcilerCrd } from './reconciler.ts'
import { earlierOfTeam, ofTeam } from './team.ts'
import { type StoredDefinition, storageOf } from './versions.ts'
import { callersOfWebhook, sortedDefinitions, usesWebhook } from './webhook.ts'
import { WEBHOOK_SECRETS } from './webhook-certificates.ts'

/** An object that install() applies, and its fate in uninstall(). */
export interface Removal extends Omit<Installed, 'result'> {
  result: 'deleted' | 'kept' | 'detached'
  /** The reason for keeping it. */
  because?: string
}

const NOT_INSTALLED = 'fairlead install has not applied it'
const OF_PLATFORM = 'it is of the platform, which uninstall without functions removes'

/** Objects with a finalizer that only their function removes. */
export interface Held {
  reconciler: string
  finalizer: string
  /** `namespace/name`, or the name. */
  objects: string[]
  /** How many of them have set fields of objects of others: these stay if the finalizers are released. */
  patching: number
}

export interface UninstallPlan {
  /** The removals in their order: first the causes of new work, last the objects that others may need. */
  removals: Removal[]
  held: Held[]
  /** Policies and configurations of `validate` that stay for the functions of others, and exempt these alone. */
  narrowed: KubeObject[]
  /** The resources of the functions for which the API server calls the webhook. */
  converted: Resource[]
}

export interface UninstallOptions {
  /** Deletes definitions too, except those with stored objects. */
  crds?: boolean
  /** Looks only at what install() applies for a team; definitions stay. */
  team?: boolean
}

/**
 * Returns the actions of uninstall() on the current state of the cluster: without functions, on the platform. Objects that
 * install() has not applied are kept, even if their names match.
 */
export async function planUninstall(
  kube: KubeClient,
  functions: readonly Reconciler[],
  { crds = false, team = false }: UninstallOptions = {},
): Promise<UninstallPlan> {
  const manifests = functions.map((one) => (team ? ofTeam(manifest(one)) : manifest(one)))
  const names = functions.map(({ name }) => name)
  const stored = await storedReconcilers(kube)
  const others = [...stored.values()].filter(({ metadata }) => !names.includes(metadata.name))
  const removals: Removal[] = []
  const add = async (objects: readonly KubeObject[], because?: string): Promise<void> => {
    for (const object of objects) removals.push(...(await removalOf(kube, object, because)))
  }
  await add(manifests.map((one) => one as unknown as KubeObject))
  if (team) {
    const own = manifests.flatMap(teamRbac)
    for (const object of [...(await earlierOfTeam(kube, manifests, own, stored)), ...own.toReversed()])
      await add([object])
    return { removals, held: await heldBy(kube, functions, team), narrowed: [], converted: [] }
  }
  const exempt = exemptOf(others)
  const policies = [...functionPolicies(functions, exempt), ...functionWebhooks(functions, exempt)]
  const rights = manifests.flatMap((one) => functionRbac(one)).filter((object) => !isOfPlatform(object))
  for (const object of [
    ...(await earlierPolicies(kube, functions, policies, stored)),
    ...policies.toReversed(),
    ...(await earlierRights(kube, names, rights, stored)),
    ...rights.toReversed(),
  ])
    await add([object], usedBy(others, object))
  const narrowed = policies.filter(
    (one) => /^Validating(AdmissionPolicy|WebhookConfiguration)$/.test(one.kind) && stays(removals, one),
  )
  // Processes may serve the next function with it.
  const needed = neededBy(others) ?? (functions.length === 0 ? undefined : OF_PLATFORM)
  const asked = crds ? undefined : 'definitions are removed with --crds'
  const { plain, converted } = sortedDefinitions(functions)
  for (const crd of plain) await add([crd], asked ?? (await neededFor(kube, crd, others)))
  for (const crd of converted)
    removals.push(...(await conversionRemoval(kube, crd, asked ?? (await neededFor(kube, crd, others)), others)))
  if (webhookResources(functions).length > 0 && (await isWebhookFree(kube, removals)))
    await add([WebhookProbe.crd(NOWHERE), ...Object.values(WEBHOOK_SECRETS).map(secretNamed)])
  await add([reconcilerCrd()], needed ?? asked)
  const [namespace, ...platform] = platformRbac()
  await add(platform.toReversed(), needed)
  if (namespace) await add([namespace], 'other objects may be in it; kubectl delete namespace removes it with them')
  return { removals, held: await heldBy(kube, functions), narrowed, converted: webhookResources(functions) }
}

const secretNamed = (name: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name, namespace: SYSTEM_NAMESPACE },
})

/** A definition that stays needs its webhook, or becomes one that needs none. */
async function conversionRemoval(
  kube: KubeClient,
  crd: CustomResourceDefinition,
  because: string | undefined,
  others: readonly StoredReconciler[],
): Promise<Removal[]> {
  const [removal] = await removalOf(kube, crd, because)
  if (removal?.result !== 'kept' || removal.because === NOT_INSTALLED) return removal === undefined ? [] : [removal]
  if (others.some((one) => isNamedIn(one, crd))) return [removal]
  const there = await found<StoredDefinition>(kube, pathOf(crd.kind, undefined, crd.metadata.name))
  if (there === undefined || !usesWebhook(there)) return [removal]
  const why = whyWebhook(there)
  return [why === undefined ? { ...removal, result: 'detached', because: DETACHED } : { ...removal, because: why }]
}

const DETACHED = 'it is served in its stored version alone, and needs no webhook'

/** Why the API server would lose or refuse objects without the webhook. */
function whyWebhook({ spec, status }: StoredDefinition): string | undefined {
  const other = status?.storedVersions?.find(
    (version) => !spec.versions.some((one) => one.storage && one.name === version),
  )
  return (
    other &&
    `its webhook has to run on, since objects may be stored as ${other} (status.storedVersions): migrate them by fairlead versions --next`
  )
}

/** In one write: without the webhook, the API server would prune what another version does not have. */
async function detached(kube: KubeClient, removal: Removal, resources: readonly Resource[]): Promise<Removal> {
  const path = pathOf(removal.kind, undefined, removal.name)
  const crd = await found<StoredDefinition>(kube, path)
  if (crd === undefined || !usesWebhook(crd)) return removal
  const because = whyWebhook(crd)
  if (because !== undefined) return { ...removal, result: 'kept', because }
  const { metadata, spec } = crd
  const going = spec.versions.filter((one) => !one.storage).map(({ name }) => name)
  const resource = resources.find((one) => nameOf(one) === removal.name)
  // No write would convert what a manager has in another version.
  if (resource) await migrate(kube, resource, { storage: storageOf(crd), going, says: () => undefined, settleMs: 0 })
  const versions = spec.versions.map((one) => ({ ...one, served: one.storage }))
  const alone = { versions, conversion: { strategy: 'None', webhook: null } }
  await kube.patch(path, { metadata: { resourceVersion: metadata.resourceVersion }, spec: alone }, 'merge')
  return removal
}

/** Returns the names of the definitions, and the configurations of validate, for which the API server calls the webhook. */
export async function webhookUsers(kube: KubeClient): Promise<string[]> {
  const users = await Array.fromAsync(callersOfWebhook(kube), ({ name }) => name)
  return users.filter((name) => name !== WebhookProbe.crd(NOWHERE).metadata.name)
}

/** Whether nothing in the cluster needs the webhook any more. */
async function isWebhookFree(kube: KubeClient, removals: readonly Removal[]): Promise<boolean> {
  const freed = removals.filter(({ result }) => result !== 'kept').map(({ name }) => name)
  return (await webhookUsers(kube)).every((name) => freed.includes(name))
}

/** Whether install() has applied the object, and others need it. */
const stays = (removals: readonly Removal[], { kind, metadata }: KubeObject): boolean =>
  removals.some(
    (one) => one.kind === kind && one.name === metadata.name && ![undefined, NOT_INSTALLED].includes(one.because),
  )

/** Why an account or a policy has to stay. */
const usedBy = (others: readonly StoredReconciler[], { kind, metadata }: KubeObject): string | undefined =>
  neededBy(
    others.filter((one) => (kind === 'ServiceAccount' ? isAccountOf(one, metadata) : isGuarded(one, metadata.name))),
  )

const neededBy = (others: readonly StoredReconciler[]): string | undefined =>
  others.length === 0
    ? undefined
    : `Reconcilers of others need it: ${others.map(({ metadata }) => metadata.name).join(', ')}`

/** Why a definition has to stay: a Reconciler names its kind, or an object is stored. */
const neededFor = async (
  kube: KubeClient,
  crd: CustomResourceDefinition,
  reconcilers: readonly StoredReconciler[],
): Promise<string | undefined> =>
  neededBy(reconcilers.filter((one) => isNamedIn(one, crd))) ?? (await storedUnder(kube, crd))

interface Narrowed {
  kind: string
  metadata: { name: string }
  spec?: { matchConditions: object }
  webhooks?: { name: string; matchConditions: object }[]
}

/**
 * Carries out the plan, and returns the results: a definition that is needed since the plan is kept. With `release`,
 * removes the finalizers of the functions from objects after the functions have lost their permissions.
 */
export async function uninstall(
  kube: KubeClient,
  { removals, held, narrowed, converted }: UninstallPlan,
  release: Reconciler[] = [],
  team = false,
): Promise<Removal[]> {
  if (held.length > 0 && release.length === 0) throw new TypeError('objects are held: release them, or wait')
  const deleted = removals.filter(({ result }) => result === 'deleted')
  const isLast = ({ kind }: Removal): boolean => kind === 'CustomResourceDefinition' || kind === 'Secret'
  await deleteInstalled(
    kube,
    deleted.filter((one) => !isLast(one)),
  )
  for (const { kind, metadata, spec, webhooks } of narrowed as unknown as Narrowed[]) {
    const path = pathOf(kind, undefined, metadata.name)
    if (webhooks === undefined) await kube.patch(path, { spec: { matchConditions: spec?.matchConditions } }, 'merge')
    else {
      const conditions = webhooks.map(({ name, matchConditions }) => ({ name, matchConditions }))
      await kube.patch(path, { webhooks: conditions }, 'strategic')
    }
  }
  await giveBack(kube, release, team)
  const results = new Map<Removal, Removal>()
  for (const one of removals.filter(({ result }) => result === 'detached'))
    results.set(one, await detached(kube, one, converted))
  const ended = () => removals.map((one) => results.get(one) ?? one)
  // The Secrets of the webhook come after the definitions that use it.
  for (const one of deleted.filter(isLast)) {
    if (one.kind !== 'Secret') results.set(one, await removedDefinition(kube, one))
    else if (await isWebhookFree(kube, ended())) await deleteInstalled(kube, [one])
    else results.set(one, { ...one, result: 'kept', because: 'the API server still calls the webhook' })
  }
  return ended()
}

/**
 * Deletes a definition if no Reconciler and no stored object needs it at this moment. The plan may be old: objects are
 * created while finalizers are removed, or while the user confirms it.
 */
async function removedDefinition(kube: KubeClient, removal: Removal): Promise<Removal> {
  const path = pathOf(removal.kind, undefined, removal.name)
  const crd = await found<CustomResourceDefinition & KubeObject>(kube, path)
  if (crd === undefined) return removal
  const still = usesWebhook(crd) ? '; it still uses its webhook: uninstall again' : ''
  const kept = (because: string): Removal => ({ ...removal, result: 'kept', because: because + still })
  if (!isInstalled(crd)) return kept(NOT_INSTALLED)
  const because = await neededFor(kube, crd, [...(await storedReconcilers(kube)).values()])
  if (because !== undefined) return kept(because)
  try {
    await kube.delete(path, { uid: crd.metadata.uid })
  } catch (error) {
    if (isConflict(error)) return kept('it has been created again')
    if (!isNotFound(error)) throw error
  }
  return removal
}

/** Deletes objects that exist. */
export async function deleteInstalled(kube: KubeClient, objects: readonly Omit<Installed, 'result'>[]): Promise<void> {
  for (const { kind, namespace, name } of objects)
    await kube.delete(pathOf(kind, namespace, name)).catch((error: unknown) => {
      if (!isNotFound(error)) throw error
    })
}

async function removalOf(kube: KubeClient, object: KubeObject, because?: string): Promise<Removal[]> {
  const { kind } = object
  const { name, namespace } = object.metadata
  const there = await found<KubeObject>(kube, pathOf(kind, namespace, name))
  if (there === undefined) return []
  const why = isInstalled(there) ? because : NOT_INSTALLED
  const removal = { kind, namespace, name }
  return [why === undefined ? { ...removal, result: 'deleted' } : { ...removal, result: 'kept', because: why }]
}

/**
 * Returns all objects of the functions' kinds that have one of their finalizers, even if the function no longer
 * finalizes.
 */
export async function heldBy(kube: KubeClient, functions: readonly Reconciler[], team = false): Promise<Held[]> {
  const held: Held[] = []
  for (const one of functions) {
    const holding = await holdersOf(kube, one, team)
    const objects = holding.map(titleOf)
    const patching = holding.filter((object) => patchedBy(object, identity(one)).length > 0).length
    if (objects.length > 0)
      held.push({ reconciler: one.name, finalizer: finalizerOf(identity(one)), objects, patching })
  }
  return held
}

/** Returns the objects with the finalizer of the function. A team may only list those in its namespaces. */
const holdersOf = (kube: KubeClient, one: Reconciler, team: boolean): Promise<KubeObject[]> =>
  holders(kube, one.for, identity(one), team ? one.namespaces : undefined)

const identity = (one: Reconciler): string => identityOf(one.name, manifest(one).spec)

const QUIET_MS = 1000

/** Removes finalizers until two looks in a row find none: a run in progress may add one again. */
async function giveBack(kube: KubeClient, functions: readonly Reconciler[], team: boolean): Promise<void> {
  for (let quiet = 0; functions.length > 0 && quiet < 2; ) {
    let released = 0
    for (const one of functions)
      for (const object of await holdersOf(kube, one, team)) {
        await release(kube, one, object)
        released++
      }
    quiet = released === 0 ? quiet + 1 : 0
    if (quiet < 2) await sleep(QUIET_MS)
  }
}

/** The patch has the version that was read, so finalizers of other controllers are not lost. */
async function release(kube: KubeClient, one: Reconciler, { metadata }: KubeObject): Promise<void> {
  const finalizers = finalizersWithout(metadata, identity(one))
  const path = resourcePath(one.for, metadata.namespace, metadata.name)
  const { uid, resourceVersion } = metadata
  await kube.patch(path, { metadata: { uid, resourceVersion, finalizers } }, 'merge').catch((error: unknown) => {
    if (!isNotFound(error) && !isConflict(error)) throw error
  })
}
