import { type KubeObject, resourceName } from '#contracts'
import { ApiError, isForbidden, isNotFound, type KubeClient } from '#kube'
import { UsageError } from '#process/exit'
import { isResource, type Reconciler, type ReconcilerManifest } from '#sdk'
import { crossesNamespaces, RECONCILER_LABEL, SYSTEM_NAMESPACE } from '#spec'
import { found, isInstalled, pathOf, type StoredReconciler } from './installed-objects.ts'
import { teamRbac } from './rbac.ts'
import { sortedDefinitions } from './webhook.ts'

/**
 * Returns the Reconciler as a team installs it: its account is in the first of its namespaces, unless the function names
 * one outside of fairlead-system. Throws UsageError for a function that works beyond its namespaces.
 */
export function ofTeam<Manifest extends ReconcilerManifest>(one: Manifest): Manifest {
  const { metadata, spec } = one
  const name = `function ${metadata.name}`
  const [home] = spec.for.namespaces ?? []
  if (home === undefined)
    throw new UsageError(
      `--team installs within namespaces, and ${name} is for all: give it "namespaces", or give --namespaces with --builtin`,
    )
  const beyond = spec.related.find(crossesNamespaces)
  if (beyond !== undefined)
    throw new UsageError(
      `--team installs within namespaces, and ${name} reads ${resourceName(beyond)} of others: leave out "within" and "namespacePath", or have the platform team install it`,
    )
  const changed = [...(spec.patches ?? []), ...(spec.acts ?? [])].find(({ within }) => within === 'Cluster')
  if (changed !== undefined)
    throw new UsageError(
      `--team installs within namespaces, and ${name} changes ${resourceName(changed)} of others: leave out "within", or have the platform team install it`,
    )
  const { serviceAccount: given } = spec
  const isDefault = given === undefined || given.namespace === SYSTEM_NAMESPACE
  const serviceAccount = isDefault ? { name: `fairlead-${metadata.name}`, namespace: home } : given
  return { ...one, spec: { ...spec, serviceAccount } }
}

/** Throws UsageError for rules that need a policy of the cluster, and for conversions. */
export function refuseBeyond(functions: readonly Reconciler[]): void {
  const [converted] = sortedDefinitions(functions).converted
  if (converted !== undefined)
    throw new UsageError(
      `--team installs no conversions, which every client of ${converted.spec.names.kind} in the cluster needs: have the platform team install it`,
    )
  const judged = functions.map((one) => one.for).find((one) => isResource(one) && one.judge !== undefined)
  if (judged !== undefined)
    throw new UsageError(
      `--team installs no webhook, which holds in the whole cluster, and "admit" of ${judged.kind} needs one: have the platform team install it`,
    )
  for (const one of functions)
    for (const rule of isResource(one.for) ? one.for.rules : [])
      if (rule.in === 'policy' || rule.in === 'mutation')
        throw new UsageError(
          `--team installs no policies, which hold in the whole cluster, and the rule "${rule.title}" of ${one.for.kind} needs one because ${rule.because}: have the platform team install function ${one.name}, or leave the rule out`,
        )
}

/**
 * Returns what earlier installations of a team have left in the namespaces that the stored Reconcilers name, and that is
 * not in `generated`: bindings first, accounts last.
 */
export async function earlierOfTeam(
  kube: KubeClient,
  manifests: readonly ReconcilerManifest[],
  generated: readonly KubeObject[],
  stored: ReadonlyMap<string, StoredReconciler>,
): Promise<KubeObject[]> {
  const titles = new Set(generated.map(pathOfObject))
  const earlier: KubeObject[] = []
  for (const { metadata, spec } of manifests) {
    const before = stored.get(metadata.name)?.spec
    if (before?.for === undefined || before.serviceAccount === undefined) continue
    const { serviceAccount, for: primary, external } = before
    const earlierSpec = { ...spec, for: primary, serviceAccount, external, invoke: { pull: {} } }
    for (const object of teamRbac({ metadata, spec: earlierSpec }).toReversed()) {
      const path = pathOfObject(object)
      if (titles.has(path)) continue
      const there = await found<KubeObject>(kube, path)
      const label = there?.metadata.labels?.[RECONCILER_LABEL]
      if (there !== undefined && isInstalled(there) && label === object.metadata.labels?.[RECONCILER_LABEL])
        earlier.push(there)
    }
  }
  return earlier
}

const pathOfObject = ({ kind, metadata: { namespace, name } }: KubeObject): string => pathOf(kind, namespace, name)

/** A team may not do this. The message names what is missing, and who grants it. */
class RefusedToTeamError extends Error {
  override readonly name = 'RefusedToTeamError'
}

/** Returns the error for a write that the API server has refused to a team. Others stay as they are. */
export function refusedToTeam(object: KubeObject, error: unknown): unknown {
  if (!(error instanceof ApiError)) return error
  const { namespace, name } = object.metadata
  const because = (why: string) =>
    new RefusedToTeamError(
      `${object.kind} ${namespace === undefined ? name : `${namespace}/${name}`} is refused, and nothing is changed: ${why}. The API server: ${error.said}`,
      { cause: error },
    )
  if (object.kind === 'Reconciler' && isNotFound(error))
    return because('the cluster has no Reconcilers until the platform team installs Fairlead')
  if (error.said.includes('ValidatingAdmissionPolicy')) return because('it is beyond the limits of the team')
  return isForbidden(error) ? because(`the platform team allows it by ${missing(object, error)} in its chart`) : error
}

/** Returns what is missing in an entry of the chart's value `teams`. */
function missing({ kind, metadata: { namespace = '', name } }: KubeObject, { said }: ApiError): string {
  if (kind === 'Reconciler') return `teams[].reconcilers with ${name}`
  if (kind === 'CustomResourceDefinition') return `teams[].definitions with ${name}`
  if (said.includes('attempting to grant')) return 'teams[].kinds with each kind that the function writes or reads'
  return `teams[].namespaces with ${namespace}, and teams[].reconcilers with ${name.replace(/^fairlead-|-(?:impersonate|external)$/g, '')}`
}
