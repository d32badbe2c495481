import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { type EventsView, isPresent, NoEventsError, type ObjectFilter, type StoredEvent } from '#events'
import { UsageError } from '#process/exit'
import { RECONCILERS } from '#spec'

/** The events that a command selects. */
export interface Selection {
  kinds: readonly string[]
  name?: string
  namespace?: string
}

/** Returns server-side filters; an empty list if the resource is not watched. */
export function filtersOf({ kinds, name, namespace }: Selection, watched: readonly ResourceRef[]): ObjectFilter[] {
  const where = { namespace, name }
  if (kinds.length === 0) return [where]
  return kinds.flatMap((kind) => watchedAs(kind, watched).map((ref) => ({ ref, ...where })))
}

export function watchedAs(kind: string, watched: readonly ResourceRef[]): ResourceRef[] {
  const found = watched.filter((ref) => isCalled(ref, kind.toLowerCase()))
  if (found.length > 0) return found
  const names = watched.filter(isResource).map(resourceName).join(', ')
  throw new UsageError(
    names === ''
      ? `no resource is watched yet, so there is no ${kind}: a bridge publishes what some Reconciler asks for`
      : `no bridge watches ${kind}; they watch ${names}`,
  )
}

/** False for records of bridges, which are stored among the cursors under names in the API group of Reconcilers. */
const isResource = ({ group, resource }: ResourceRef): boolean =>
  group !== RECONCILERS.group || resource === RECONCILERS.resource

/** `pods`, `pod`, `Pod`, `po`, `pods.v1`, `ats.cnat.programming-kubernetes.info`, `ats.v1alpha1.cnat…` */
function isCalled(ref: ResourceRef, wanted: string): boolean {
  const { group, resource } = ref
  const full = [resource, group].filter((part) => part !== '').join('.')
  const names = [resource, full, resourceName(ref)]
  return names.includes(wanted) || full === SHORT_NAMES[wanted] || pluralsOf(wanted).includes(resource)
}

/**
 * Short names of the built-in resources. Only the API server knows the short names of others, and the command does not
 * call it.
 */
const SHORT_NAMES: Record<string, string> = {
  cj: 'cronjobs.batch',
  cm: 'configmaps',
  crd: 'customresourcedefinitions.apiextensions.k8s.io',
  crds: 'customresourcedefinitions.apiextensions.k8s.io',
  csr: 'certificatesigningrequests.certificates.k8s.io',
  deploy: 'deployments.apps',
  ds: 'daemonsets.apps',
  ep: 'endpoints',
  ev: 'events',
  hpa: 'horizontalpodautoscalers.autoscaling',
  ing: 'ingresses.networking.k8s.io',
  limits: 'limitranges',
  netpol: 'networkpolicies.networking.k8s.io',
  no: 'nodes',
  ns: 'namespaces',
  pc: 'priorityclasses.scheduling.k8s.io',
  pdb: 'poddisruptionbudgets.policy',
  po: 'pods',
  pv: 'persistentvolumes',
  pvc: 'persistentvolumeclaims',
  quota: 'resourcequotas',
  rc: 'replicationcontrollers',
  rs: 'replicasets.apps',
  sa: 'serviceaccounts',
  sc: 'storageclasses.storage.k8s.io',
  sts: 'statefulsets.apps',
  svc: 'services',
}

const pluralsOf = (singular: string): string[] => [`${singular}s`, `${singular}es`, singular.replace(/y$/, 'ies')]

/** Filters by properties that the subject of an object does not contain. */
export function wants(types: readonly string[]): (event: StoredEvent) => boolean {
  return ({ verb }) => (types.length === 0 ? verb !== 'moved' : types.includes(verb))
}

/** Returns the watched kinds; an empty list if EVENTS does not exist. */
export async function watchedIn(view: EventsView): Promise<ResourceRef[]> {
  return view.resources().catch((error: unknown) => {
    if (error instanceof NoEventsError) return []
    throw error
  })
}

/** Returns the objects that EVENTS has, without deleted ones. */
export async function presentObjects(view: EventsView, filter: ObjectFilter): Promise<KubeObject[]> {
  const found: KubeObject[] = []
  for await (const event of view.stored([filter])) if (isPresent(event)) found.push(event.object)
  return found
}

export const reconcilersIn = (view: EventsView): Promise<KubeObject[]> => presentObjects(view, { ref: RECONCILERS })
