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

/** Returns the resources of functions that have a version with a conversion. */
export const convertedResources = (functions: readonly Reconciler[]): Resource[] =>
  functions
    .map((one) => one.for)
    .filter(isResource)
    .filter((one) => one.versions().some(({ convert }) => convert !== undefined))

/** Whether a review is for objects of this kind. */
export const isOfProbe = (review: unknown): boolean =>
  isRecord(review) &&
  isRecord(review['request']) &&
  String(review['request']['desiredAPIVersion']).startsWith(`${WebhookProbe.group}/`)

const SERVES = 'fairlead.dev/serves'

/** Returns the object with what this process converts: the name of each resource, and a digest of its versions. */
export function withServed(probe: KubeObject, resources: readonly Resource[]): KubeObject {
  const served = Object.fromEntries(resources.map((one) => [nameOf(one), digestOf(one)]))
  const annotations = { ...probe.metadata.annotations, [SERVES]: JSON.stringify(served) }
  return { ...probe, metadata: { ...probe.metadata, annotations } }
}

/** Returns the resources that the process does not have which has converted the probe, or has in another form. */
export function unservedBy({ metadata }: KubeObject, resources: readonly Resource[]): string[] {
  const served = JSON.parse(metadata.annotations?.[SERVES] ?? '{}') as Record<string, string>
  return resources.filter((one) => served[nameOf(one)] !== digestOf(one)).map(nameOf)
}

const nameOf = ({ resource: plural, group }: Resource): string => `${plural}.${group}`

const ANY: ConversionClient = { caBundle: '' }

/** A probe is answered to whoever asks, so each digest is made once. */
const digests = new WeakMap<Resource, string>()

function digestOf(one: Resource): string {
  const digest = digests.get(one) ?? hash('sha256', JSON.stringify(one.crd(ANY).spec.versions)).slice(0, 16)
  digests.set(one, digest)
  return digest
}
