import { setTimeout as sleep } from 'node:timers/promises'
import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import {
  ApiError,
  ClusterAccessError,
  isForbidden,
  isNotFound,
  type KubeClient,
  resourcePath,
  servedResources,
} from '#kube'
import { IncompatibleError, UsageError } from '#process/exit'
import { webhookResources } from '#process/webhooks/probe'
import {
  breakingChanges,
  type CustomResourceDefinition,
  isResource,
  manifest,
  type Reconciler,
  type ReconcilerManifest,
  type Resource,
} from '#sdk'
import { identityOf, RECONCILERS, SHARD_LABEL, SYSTEM_NAMESPACE } from '#spec'
import { revisionOf } from './adapted.ts'
import {
  CRDS,
  deleteExactly,
  earlierRights,
  FIELD_MANAGER,
  found,
  holders,
  type Installed,
  pathOf,
  type Says,
  type StoredReconciler,
  storedReconcilers,
  storedUnder,
  titleOf,
} from './installed-objects.ts'
import { earlierPolicies, exemptFrom, functionPolicies, functionWebhooks, refusedPolicy, WEBHOOK } from './policies.ts'
import { functionRbac, platformRbac, teamRbac } from './rbac.ts'
import { reconcilerCrd } from './reconciler.ts'
import { earlierOfTeam, ofTeam, refuseBeyond, refusedToTeam } from './team.ts'
import { storageOf } from './versions.ts'
import { certifiedWebhook, hasWebhook, lostCallers, proveWebhook, sortedDefinitions } from './webhook.ts'

const ESTABLISHED_WITHIN_MS = 30_000
const WATCHABLE_WITHIN_MS = 10_000

interface InstallOptions {
  says?: Says
  force?: boolean
  /** The whole command that forces it, for the error. */
  forcedBy?: string
  revision?: string
  /** The shard that serves the Reconcilers, as their label. */
  shard?: string
  natsCertificates?: boolean
  /** Clusters whose users of NATS get certificates too. */
  clusterUsers?: readonly string[] | undefined
  /**
   * Applies only what a team may that the platform names in the value `teams` of its chart: accounts, Roles and
   * RoleBindings in the namespaces of the functions, definitions, Reconcilers. Rejects before the first write if the team
   * may not.
   */
  team?: boolean
  /**
   * The URL at which the functions are served over HTTP; `{name}` stands for the name of the function. Default:
   * dispatchers run them.
   */
  url?: string
}

/**
 * Applies policies, accounts and RBAC, then CRDs, and the Reconcilers when the CRDs are served. Then deletes the policies,
 * accounts and RBAC of earlier versions of these functions that they no longer need. Repeating it changes nothing.
 * Unless forced, rejects before the first write if a definition would break stored objects.
 */
export async function install(
  kube: KubeClient,
  functions: readonly Reconciler[],
  {
    force = false,
    forcedBy,
    revision,
    shard,
    natsCertificates = false,
    clusterUsers,
    team = false,
    url,
    says,
  }: InstallOptions = {},
): Promise<Installed[]> {
  const manifests = functions.map((one) => {
    const invoke = url === undefined ? {} : { invoke: { http: { url: url.replaceAll('{name}', one.name) } } }
    const whole = labelled(manifest(one, { revision: revision ?? revisionOf(one), ...invoke }), shard)
    return team ? ofTeam(whole) : whole
  })
  const { plain, converted } = sortedDefinitions(functions)
  if (team) refuseBeyond(functions)
  const stored = await storedReconcilers(kube)
  const exempt = exemptFrom(functions, stored)
  const asks = !team && (converted.length > 0 || (await isAsked(kube, functions, says)))
  const policies = team
    ? []
    : [...functionPolicies(functions, exempt), ...(asks ? functionWebhooks(functions, exempt) : [])]
  if (team) await rehearse(kube, [...manifests, ...plain, ...manifests.flatMap(teamRbac)], refusedToTeam)
  else await rehearse(kube, policies, refusedPolicy)
  // The definition of Reconcilers needs no check: tests keep it compatible, and differently worded rules would look
  // stricter.
  await checkDefinitions(kube, functions, forcedBy, force)
  if (says !== undefined) await nameRefused(kube, functions, says)
  const installed: Installed[] = []
  const rights: KubeObject[] = []
  for (const one of manifests) rights.push(...(await rightsOf(kube, one, stored.get(one.metadata.name), team)))
  // Listed before the first write: a user who may not list changes nothing.
  const names = functions.map(({ name }) => name)
  const earlier = team
    ? await earlierOfTeam(kube, manifests, rights, stored)
    : [
        ...(await earlierPolicies(kube, functions, policies, stored)),
        ...(await earlierRights(kube, names, rights, stored)),
      ]
  const remove = async (): Promise<void> => {
    for (const object of earlier) {
      await deleteExactly(kube, object)
      installed.push({ ...named(object), result: 'deleted' })
    }
  }
  const [namespace, ...platform] = team ? [] : platformRbac()
  if (namespace !== undefined) installed.push(await applied(kube, namespace))
  // Before anything that an earlier version of the functions could not work with.
  if (asks) installed.push(...(await throughWebhook(kube, functions, exempt, says)))
  const plainPolicies = policies.filter(({ kind }) => kind !== WEBHOOK)
  for (const object of [...platform, ...plainPolicies, ...rights]) installed.push(await applied(kube, object))
  installed.push(...(await establishedDefinitions(kube, team ? plain : [reconcilerCrd(), ...plain])))
  await Promise.all([RECONCILERS, ...functions.map((one) => one.for)].map((ref) => watchable(kube, ref)))
  // Only the stored Reconciler names the namespaces that a team leaves: a repetition after a failure finds them in it.
  if (team) await remove()
  for (const one of manifests) installed.push(await applied(kube, one))
  if (!team) await remove()
  if (natsCertificates) installed.push(...(await certified(kube, clusterUsers)))
  return installed
}

/**
 * First takes back what makes the API server ask about resources without `validate` and `admit`, then renews the
 * certificates of the webhook, whatever the definitions are. Then applies only the definitions with conversions, and what
 * makes the API server ask, when it has proved that it reaches the webhook. Rejects as install() does.
 */
export async function installConversions(
  kube: KubeClient,
  functions: readonly Reconciler[],
  { force = false, forcedBy, says }: Pick<InstallOptions, 'force' | 'forcedBy' | 'says'> = {},
): Promise<Installed[]> {
  const resources = webhookResources(functions)
  const isValidated = resources.some(({ validatingWebhook }) => validatingWebhook !== undefined)
  const stored = isValidated ? await storedReconcilers(kube) : new Map<string, StoredReconciler>()
  const exempt = exemptFrom(functions, stored)
  const installed: Installed[] = []
  for (const one of await earlierPolicies(kube, functions, functionWebhooks(functions, exempt), stored, [WEBHOOK])) {
    await deleteExactly(kube, one)
    installed.push({ ...named(one), result: 'deleted' })
  }
  if (functions.length > 0 && resources.length === 0) return installed
  const check = () => checkDefinitions(kube, functions, forcedBy, force)
  return [...installed, ...(await throughWebhook(kube, functions, exempt, says, check))]
}

async function throughWebhook(
  kube: KubeClient,
  functions: readonly Reconciler[],
  exempt: ReturnType<typeof exemptFrom>,
  says?: Says,
  check?: () => Promise<void>,
): Promise<Installed[]> {
  const { client, installed } = await certifiedWebhook(kube)
  await check?.()
  await proveWebhook(kube, client, functions, says)
  const lost = await lostCallers(kube)
  installed.push(...(await establishedDefinitions(kube, sortedDefinitions(functions, client).converted)))
  for (const one of functionWebhooks(functions, exempt, client)) installed.push(await applied(kube, one))
  if (lost !== undefined && functions.length === 0) throw lost
  if (lost !== undefined) says?.(lost.message)
  return installed
}

/** Runs ask `validate` without a webhook too, so an installation does not depend on one. */
async function isAsked(
  kube: KubeClient,
  functions: readonly Reconciler[],
  says: Says = () => undefined,
): Promise<boolean> {
  const validated = webhookResources(functions)
  // Nobody asks admit instead.
  if (validated.some(({ judge }) => judge !== undefined)) return true
  if (validated.length === 0 || (await hasWebhook(kube))) return validated.length > 0
  says(
    `runs ask validate of ${validated.map(({ kind }) => kind).join(', ')}, and the API server does not: for that, apply what fairlead generate webhook prints, and install again`,
  )
  return false
}

async function establishedDefinitions(
  kube: KubeClient,
  crds: readonly CustomResourceDefinition[],
): Promise<Installed[]> {
  const installed: Installed[] = []
  for (const crd of crds) installed.push(await defined(kube, crd))
  await Promise.all(crds.map((crd) => established(kube, crd.metadata.name)))
  return installed
}

/**
 * Sends the writes without their effect, and rejects with the first that the user may not do. RoleBindings are left out:
 * they are accepted only when their Role exists.
 */
async function rehearse(
  kube: KubeClient,
  objects: readonly (ReconcilerManifest | CustomResourceDefinition | KubeObject)[],
  refused: (object: KubeObject, error: unknown) => unknown,
): Promise<void> {
  for (const object of objects.filter(({ kind }) => kind !== 'RoleBinding'))
    await (isDefinition(object) ? defined(kube, object, true) : applied(kube, object, true)).catch((error: unknown) => {
      throw refused(object, error)
    })
}

const isDefinition = (object: KubeObject | CustomResourceDefinition): object is CustomResourceDefinition =>
  object.kind === 'CustomResourceDefinition'

/** Returns the Reconciler with the label of the shard that serves it. */
export const labelled = (one: ReconcilerManifest, shard: string | undefined) =>
  shard === undefined ? one : { ...one, metadata: { ...one.metadata, labels: { [SHARD_LABEL]: shard } } }

/**
 * Rejects if a function names another kind than the API server has for its resource, and unless forced, if the
 * definitions of the functions would break stored objects. Changes nothing.
 */
export async function checkDefinitions(
  kube: KubeClient,
  functions: readonly Reconciler[],
  forcedBy?: string,
  force = false,
): Promise<void> {
  const kinds = new Map((await servedResources(kube)).map((served) => [resourceName(served), served.kind]))
  for (const { name, for: primary } of functions) {
    const kind = kinds.get(resourceName(primary)) ?? primary.kind
    if (kind !== primary.kind)
      throw new UsageError(
        `function ${name} is for ${resourceName(primary)} as ${primary.kind}, but the API server serves it as ${kind}: correct its kind or its resource`,
      )
  }
  const { plain, converted } = sortedDefinitions(functions)
  if (!force) for (const crd of [...plain, ...converted]) await refuseToBreak(kube, crd, forcedBy)
}

const SHOWN = 5

/** Names the stored objects that `validate` refuses: nothing is done for them until they are mended. */
async function nameRefused(kube: KubeClient, functions: readonly Reconciler[], says: Says): Promise<void> {
  for (const { for: kind } of functions) {
    if (!isResource(kind) || kind.validate === undefined) continue
    const refused: string[] = []
    try {
      for await (const { items } of kube.list(resourcePath(kind)))
        refused.push(...items.filter((object) => isRefused(kind, object)).map(titleOf))
    } catch (error) {
      // It is not defined in this version yet, or the user may not list it. Whatever it is, the installation may mend it.
      if (!isNotFound(error) && !isForbidden(error)) says(`no ${kind.kind} is looked at: ${(error as Error).message}`)
    }
    const names = `${refused.slice(0, SHOWN).join(', ')}${refused.length > SHOWN ? ', …' : ''}`
    if (refused.length > 0)
      says(
        `the function is not called for ${refused.length} ${kind.kind} that are refused, until they are mended: ${names}`,
      )
  }
}

function isRefused(kind: Resource, object: KubeObject): boolean {
  try {
    return kind.parseValid(object) === undefined
  } catch {
    return true
  }
}

/** Writes the Secrets for mutual TLS with NATS, and returns the result for each. Changes nothing else. */
export const installCertificates = (kube: KubeClient, clusterUsers?: readonly string[]): Promise<Installed[]> =>
  certified(kube, clusterUsers)

/**
 * Returns the RBAC of a function. A function that no longer has a finalizer keeps the permission to remove its finalizer
 * until no object has it: otherwise such an object could be neither reconciled nor deleted. The installation that
 * removes `finalize` or `patches` does not look at the objects, because a run in progress may add the finalizer.
 */
async function rightsOf(
  kube: KubeClient,
  { metadata, spec }: ReconcilerManifest,
  stored: StoredReconciler | undefined,
  team: boolean,
): Promise<KubeObject[]> {
  const rbac = team ? teamRbac : functionRbac
  const own = rbac({ metadata, spec })
  const role = `fairlead-${metadata.name}`
  const isAllowed = (object: KubeObject) => object.metadata.name === role && canPatch(object, spec.for)
  if (own.some(isAllowed)) return own
  const finalizing = rbac({ metadata, spec: { ...spec, finalize: true } })
  if (stored?.spec?.finalize === true || stored?.spec?.patches !== undefined) return finalizing
  const namespaces = team ? spec.for.namespaces : undefined
  const path = team ? pathOf('Role', namespaces?.[0], role) : pathOf('ClusterRole', undefined, role)
  const before = await found<KubeObject>(kube, path)
  if (before === undefined || !canPatch(before, spec.for)) return own
  return (await holders(kube, spec.for, identityOf(metadata.name, spec), namespaces)).length > 0 ? finalizing : own
}

function canPatch(role: KubeObject, { group, resource }: Pick<ResourceRef, 'group' | 'resource'>): boolean {
  const rules = (role as KubeObject & { rules?: Rule[] | null }).rules ?? []
  return rules.some(
    ({ apiGroups = [], resources = [], verbs }) =>
      apiGroups.includes(group) && resources.includes(resource) && verbs.includes('patch'),
  )
}

interface Rule {
  apiGroups?: string[]
  resources?: string[]
  verbs: string[]
}

/** Reads each Secret separately, so that the user needs no permission to list Secrets. */
async function certified(kube: KubeClient, clusterUsers: readonly string[] = []): Promise<Installed[]> {
  const { certificateSecrets, natsCertificates } = await import('./certificates.ts')
  const names = certificateSecrets(clusterUsers)
  const present = new Map<string, KubeObject>()
  for (const name of names) {
    const secret = await found<KubeObject>(kube, pathOf('Secret', SYSTEM_NAMESPACE, name))
    if (secret !== undefined) present.set(name, secret)
  }
  const wanting = natsCertificates(present, new Date(), clusterUsers)
  const kept = names.filter((name) => !wanting.some(({ metadata }) => metadata.name === name))
  const unchanged = kept.map((name) => ({
    kind: 'Secret',
    namespace: SYSTEM_NAMESPACE,
    name,
    result: 'unchanged' as const,
  }))
  const installed: Installed[] = []
  for (const secret of wanting) installed.push(await applied(kube, secret))
  return [...installed, ...unchanged]
}

async function refuseToBreak(kube: KubeClient, crd: CustomResourceDefinition, forcedBy?: string): Promise<void> {
  const before = await found<CustomResourceDefinition>(kube, pathOf(crd.kind, undefined, crd.metadata.name))
  if (before === undefined) return
  const [from, to] = [storageOf(before), storageOf(crd)]
  // One object that does not convert would fail each list.
  const isMoved = from !== to && crd.spec.conversion !== undefined
  if (!isMoved && breakingChanges(before, crd).length === 0) return
  // A breaking change is allowed while no object is stored.
  if ((await storedUnder(kube, before)) === undefined) return
  refuseBreaking(before, crd, forcedBy)
  if (isMoved)
    throw new IncompatibleError(
      `${crd.metadata.name} has objects that are stored as ${from}, and these functions store ${to}: fairlead versions --next goes there step by step, or do it at once: ${forcedBy}`,
    )
}

async function applied(kube: KubeClient, object: KubeObject, dryRun = false): Promise<Installed> {
  const { name, namespace } = object.metadata
  const path = pathOf(object.kind, namespace, name)
  const before = await found<KubeObject>(kube, path)
  const after = await kube.apply(path, object, { fieldManager: FIELD_MANAGER, force: true, dryRun })
  const same = before?.metadata.resourceVersion === after.metadata.resourceVersion
  const result = before === undefined ? 'created' : same ? 'unchanged' : 'configured'
  return { ...named(object), result }
}

const named = ({ kind, metadata: { namespace, name } }: KubeObject) => ({
  kind,
  namespace,
  name,
})

async function defined(kube: KubeClient, crd: CustomResourceDefinition, dryRun = false): Promise<Installed> {
  try {
    return await applied(kube, crd, dryRun)
  } catch (error) {
    if (error instanceof ApiError && error.details.causes !== undefined) throw new RefusedDefinitionError(crd, error)
    throw error
  }
}

interface Conditioned extends KubeObject {
  status?: { conditions?: { type: string; status: string; message?: string }[] }
}

/** Waits one or two seconds until a new CRD is served: the API server rejects its objects before. */
async function established(kube: KubeClient, name: string): Promise<void> {
  const path = resourcePath(CRDS)
  const signal = AbortSignal.timeout(ESTABLISHED_WITHIN_MS)
  try {
    for await (const event of kube.watch<Conditioned>(path, { fieldSelector: `metadata.name=${name}`, signal })) {
      if (event.type === 'BOOKMARK') continue
      const conditions = event.object.status?.conditions ?? []
      const refused = conditions.find(({ type, status }) => type === 'NamesAccepted' && status === 'False')
      if (refused)
        throw new ClusterAccessError(`the API server does not accept the names of ${name}: ${refused.message}`)
      if (conditions.some(({ type, status }) => type === 'Established' && status === 'True')) return
    }
  } catch (error) {
    if (!signal.aborted) throw error
  }
  throw new ClusterAccessError(
    `${name} is not Established after ${ESTABLISHED_WITHIN_MS / 1000} s: kubectl describe crd ${name}`,
  )
}

/**
 * Waits until a new CRD can be watched: the API server rejects watches for about a second, and the bridge would start
 * with an error.
 */
async function watchable(kube: KubeClient, ref: ResourceRef): Promise<void> {
  const signal = AbortSignal.timeout(WATCHABLE_WITHIN_MS)
  while (await isStarting(kube, ref, signal)) await sleep(100)
}

/**
 * Whether the API server's watch cache still starts: it then rejects a watch from resourceVersion 0. A watch without a
 * resourceVersion does not use the cache (Kubernetes 1.36).
 */
async function isStarting(kube: KubeClient, ref: ResourceRef, signal: AbortSignal): Promise<boolean> {
  const opened = new AbortController()
  const either = AbortSignal.any([signal, opened.signal])
  const onOpen = () => opened.abort()
  try {
    for await (const _ of kube.watch(resourcePath(ref), { resourceVersion: '0', onOpen, signal: either })) break
    return false
  } catch (error) {
    // The user may lack the permission to watch.
    return error instanceof ApiError && error.code === 429
  }
}

/** Throws an Error with all breaking changes for objects that are stored under the earlier definition. */
export function refuseBreaking(
  before: CustomResourceDefinition,
  after: CustomResourceDefinition,
  forcedBy = 'install --force',
): void {
  const found = breakingChanges(before, after)
  if (found.length === 0) return
  const { name } = after.metadata
  const cure = `keep the field as it was and add a new field, take a version away by fairlead versions --next, or apply it all the same: ${forcedBy}`
  throw new IncompatibleError(
    [`${name} would break objects that are stored:`, ...found.map((one) => `  ${one}`), cure].join('\n'),
  )
}

/** The API server has rejected a definition. The message is one line, with paths of the author's schema. */
class RefusedDefinitionError extends Error {
  override readonly name = 'RefusedDefinitionError'
  constructor({ spec }: CustomResourceDefinition, refusal: ApiError) {
    const found = (refusal.details.causes ?? []).map(
      ({ field = '', message = '' }) => `${authorsPath(field, spec.versions)}: ${inOneLine(message)}`,
    )
    super(`resource ${spec.names.kind}: ${[...new Set(found)].join('; ')}`, { cause: refusal })
  }
}

/** The schema of the only version, or of one of several. */
const SCHEMA = /^spec\.(?:validation|versions\[(\d+)\]\.schema)\.openAPIV3Schema(?:\.|$)/

function authorsPath(field: string, versions: readonly { name: string }[]): string {
  const [root, index] = SCHEMA.exec(field) ?? []
  if (root === undefined) return field
  const version = index !== undefined && versions.length > 1 ? `${versions[Number(index)]?.name} ` : ''
  const path = field
    .slice(root.length)
    .replaceAll(/\.?properties\[([^\]]+)\]/g, '.$1')
    .replaceAll(/\.items\b/g, '[]')
    .replaceAll(/\.additionalProperties\b/g, '.*')
    .replace(/^\./, '')
    .replace(/^x-kubernetes-validations\b/, 'validations')
  return version + (path || 'the schema')
}

/**
 * Removes the JSON of the rule, and turns CEL's drawing of the place into a number: `undefined field 'sise' (at 10 in:
 * self.spec.sise > 3)`.
 */
function inOneLine(message: string): string {
  return message
    .replace(/^Invalid value: \{"Rule":.*?"OptionalOldSelf":\w+\}: /s, '')
    .replace(/^(?:messageExpression )?compilation failed: /, '')
    .replaceAll(/ERROR: <input>:\d+:(\d+): ([^\n]*)\n \| ([^\n]*)\n \| \.*\^+/g, '$2 (at $1 in: $3)')
    .replaceAll(/\s+/g, ' ')
}
