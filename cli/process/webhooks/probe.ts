import { hash } from 'node:crypto'
import { isRecord, type KubeObject } from '#contracts'
import { type ConversionClient, isResource, type Reconciler, type Resource, resource, z } from '#sdk'

/**
 * The kind by which an installation proves, before anything depends on it, that the API server reaches the webhook and that
 * it knows the resources. Nothing is stored of it.
 */
export const WebhookProbe: Resource = resource({
  group: 'fairlead.dev',
  version: 'v1',
  kind: 'WebhookProbe',
  plural: 'webhookprobes',
  scope: 'Cluster',
  spec: z.object({}),
  status: z.object({}),
  served: [{ version: 'v1beta1', spec: z.object({}), convert: [] }],
})

/** Returns the resources of functions for which the API server calls the webhook: with a conversion, `validate` or `admit`. */
export function webhookResources(functions: readonly Reconciler[]): Resource[] {
  const resources = functions.map((one) => one.for).filter(isResource)
  return [...new Map(resources.map((one) => [nameOf(one), one])).values()].filter(
    (one) => one.validatingWebhook !== undefined || isConverted(one),
  )
}

/** Whether a version of the resource has a conversion. */
export const isConverted = (one: Resource): boolean => one.versions().some(({ convert }) => convert !== undefined)

/** Whether a review is for objects of this kind. */
export const isOfProbe = (review: unknown): boolean =>
  isRecord(review) &&
  isRecord(review['request']) &&
  String(review['request']['desiredAPIVersion']).startsWith(`${WebhookProbe.group}/`)

const SERVES = 'fairlead.dev/serves'

/** Returns the object with what this process serves: the name of each resource, a digest of its versions, and what it is asked. */
export function withServed(probe: KubeObject, resources: readonly Resource[]): KubeObject {
  const served = Object.fromEntries(resources.flatMap(servicesOf))
  const annotations = { ...probe.metadata.annotations, [SERVES]: JSON.stringify(served) }
  return { ...probe, metadata: { ...probe.metadata, annotations } }
}

/** Returns what the process serves which has converted the probe: names, each with a digest. */
export const servedIn = ({ metadata }: KubeObject): Record<string, string> =>
  JSON.parse(metadata.annotations?.[SERVES] ?? '{}') as Record<string, string>

/** Returns the resources that the process does not have which has converted the probe, or has in another form. */
export function unservedBy(probe: KubeObject, resources: readonly Resource[]): string[] {
  const served = servedIn(probe)
  return resources.filter((one) => servicesOf(one).some(([name, how]) => served[name] !== how)).map(nameOf)
}

/** Returns the name of the definition. */
export const nameOf = ({ resource: plural, group }: Pick<Resource, 'resource' | 'group'>): string =>
  `${plural}.${group}`

/** Returns the name by which a process says that it answers for the writes of a resource. */
export const validationOf = (one: Pick<Resource, 'resource' | 'group'>): string => `validate ${nameOf(one)}`

/** An address for comparisons of definitions alone. */
export const NOWHERE: ConversionClient = { caBundle: '' }

/** A probe is answered to whoever asks, so each digest is made once. */
const services = new WeakMap<Resource, (readonly [name: string, digest: string])[]>()

/** A process that is asked more than it has to be is none of another release. */
function servicesOf(one: Resource): (readonly [name: string, digest: string])[] {
  const known = services.get(one)
  if (known !== undefined) return known
  const webhook = one.validatingWebhook?.(NOWHERE, [])
  const made = [
    [nameOf(one), digestOf(one.crd(NOWHERE).spec.versions)] as const,
    ...(webhook ? [[validationOf(one), digestOf(webhook)] as const] : []),
  ]
  services.set(one, made)
  return made
}

const digestOf = (value: unknown): string => hash('sha256', JSON.stringify(value)).slice(0, 16)
