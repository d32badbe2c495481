import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject, ResourceRef } from '#contracts'
import { isAlreadyExists, isConflict, isForbidden, type KubeClient, resourcePath } from '#kube'
import {
  NOWHERE,
  nameOf,
  servedIn,
  unservedBy,
  validationOf,
  WebhookProbe,
  webhookResources,
} from '#process/webhooks/probe'
import {
  type ConversionClient,
  type CustomResourceDefinition,
  definitionsOf,
  type Reconciler,
  type Resource,
} from '#sdk'
import { policyNameOf, SYSTEM_NAMESPACE } from '#spec'
import { base64, type TlsSecret } from './certificates.ts'
import { CONFIGURATIONS, CRDS, FIELD_MANAGER, found, type Installed, pathOf, type Says } from './installed-objects.ts'
import { WEBHOOK_SECRETS, WEBHOOKS, webhookCertificates } from './webhook-certificates.ts'

interface Definitions {
  plain: CustomResourceDefinition[]
  /** With conversions, for which the API server needs the webhook. */
  converted: CustomResourceDefinition[]
}

/** Returns the definitions of the functions' resources. Without an address, those with conversions are for comparisons alone. */
export function sortedDefinitions(functions: readonly Reconciler[], client = NOWHERE): Definitions {
  const all = definitionsOf(functions, client)
  const plain = all.filter(({ spec }) => spec.conversion === undefined)
  return { plain, converted: all.filter((one) => !plain.includes(one)) }
}

const isWebhook = ({ service }: ConversionClient): boolean =>
  service?.name === WEBHOOKS && service.namespace === SYSTEM_NAMESPACE

/** Whether the API server calls the webhook for the definition. */
export const usesWebhook = ({ spec: { conversion } }: CustomResourceDefinition): boolean =>
  conversion?.strategy === 'Webhook' && isWebhook(conversion.webhook.clientConfig)

/** An object by which the API server calls the webhook. */
interface Caller {
  name: string
  /** What it is asked, as a process says what it serves. */
  asks: string[]
  path: string
  clients: ConversionClient[]
  /** The patch by which it trusts these authorities. */
  trusting: (caBundle: string) => object
}

interface ValidatingConfiguration extends KubeObject {
  webhooks?: { clientConfig: ConversionClient; rules?: { apiGroups?: string[]; resources?: string[] }[] }[]
}

/** Whichever definitions and configurations of validate call the webhook: also those of functions that are not here. */
export async function* callersOfWebhook(kube: KubeClient): AsyncGenerator<Caller> {
  for await (const { items } of kube.list<CustomResourceDefinition & KubeObject>(resourcePath(CRDS)))
    for (const { metadata, spec } of items.filter(usesWebhook))
      yield {
        name: metadata.name,
        asks: [metadata.name],
        path: resourcePath(CRDS, undefined, metadata.name),
        clients: spec.conversion?.strategy === 'Webhook' ? [spec.conversion.webhook.clientConfig] : [],
        trusting: (caBundle) => ({ spec: { conversion: { webhook: { clientConfig: { caBundle } } } } }),
      }
  for await (const { items } of kube.list<ValidatingConfiguration>(resourcePath(CONFIGURATIONS)))
    for (const { metadata, webhooks = [] } of items) {
      const { name, resourceVersion } = metadata
      const own = webhooks.filter(({ clientConfig }) => isWebhook(clientConfig))
      const clients = own.map(({ clientConfig }) => clientConfig)
      const asks = own.flatMap(({ rules = [] }) =>
        rules.flatMap(({ apiGroups = [], resources = [] }) =>
          apiGroups.flatMap((group) => resources.map((plural) => validationOf({ resource: plural, group }))),
        ),
      )
      const trusting = (caBundle: string) => ({
        metadata: { resourceVersion },
        webhooks: webhooks.map(({ clientConfig, ...one }) => ({
          ...one,
          clientConfig: isWebhook(clientConfig) ? { ...clientConfig, caBundle } : clientConfig,
        })),
      })
      const path = resourcePath(CONFIGURATIONS, undefined, name)
      if (clients.length > 0) yield { name, asks, path, clients, trusting }
    }
}

/** The API server does not reach the webhook, and so no definition of the functions was applied. */
class WebhookError extends Error {
  override readonly name = 'WebhookError'
}

/** Pods that have waited for the Secret look for it each two minutes, and then start. */
const REACHED_WITHIN_MS = 300_000
const ASK_AGAIN_MS = 500
const PROBES = 20

/** Whether the webhook is deployed. */
export const hasWebhook = async (kube: KubeClient): Promise<boolean> => (await serviceIn(kube)) !== undefined

const serviceIn = (kube: KubeClient) =>
  found<KubeObject & { spec: { ports: { port: number }[] } }>(kube, pathOf('Service', SYSTEM_NAMESPACE, WEBHOOKS))

interface CertifiedWebhook {
  client: ConversionClient
  installed: Installed[]
}

/** Renews the certificates of the webhook where that is due, and returns its address. */
export async function certifiedWebhook(kube: KubeClient): Promise<CertifiedWebhook> {
  const [port] = (await serviceIn(kube))?.spec.ports ?? []
  if (port === undefined)
    throw new WebhookError(
      `there is no Service ${WEBHOOKS}, by which the API server converts objects and asks admit: apply what fairlead generate webhook prints`,
    )
  const { bundle, installed } = await certified(kube)
  const address = { namespace: SYSTEM_NAMESPACE, name: WEBHOOKS, path: '/convert', port: port.port }
  return { client: { caBundle: base64(bundle), service: address }, installed }
}

const TRIES = 5

/** Of two installations at the same time, the second takes what the first has written. */
async function certified(kube: KubeClient, tries = TRIES): Promise<{ bundle: string; installed: Installed[] }> {
  const present = new Map<string, KubeObject>()
  for (const name of Object.values(WEBHOOK_SECRETS)) {
    const secret = await found<KubeObject>(kube, pathOf('Secret', SYSTEM_NAMESPACE, name))
    if (secret !== undefined) present.set(name, secret)
  }
  const { authority, bundle, leaf, isCrossSigned } = webhookCertificates(present, await timeOf(kube))
  let refused: Error | undefined
  try {
    if (authority !== undefined) await written(kube, authority, present)
    refused = await trust(kube, base64(bundle))
    const { authority: name } = WEBHOOK_SECRETS
    const now = await found<TlsSecret>(kube, pathOf('Secret', SYSTEM_NAMESPACE, name))
    const own = authority ?? (present.get(name) as TlsSecret | undefined)
    // Another one has replaced it meanwhile, and what trusts it was set back.
    if (tries > 1 && now?.data['ca.crt'] !== own?.data['ca.crt']) return await certified(kube, tries - 1)
    // Who does not trust a new authority takes its leaf nevertheless, if the former one has signed it.
    if (leaf !== undefined && (refused === undefined || isCrossSigned)) await written(kube, leaf, present)
  } catch (error) {
    if (tries === 1 || !(isConflict(error) || isAlreadyExists(error))) throw error
    return certified(kube, tries - 1)
  }
  if (refused !== undefined) throw refused
  const result = (name: string, secret: TlsSecret | undefined): Installed => ({
    kind: 'Secret',
    namespace: SYSTEM_NAMESPACE,
    name,
    result: secret === undefined ? 'unchanged' : present.has(name) ? 'configured' : 'created',
  })
  const { authority: ca, leaf: tls } = WEBHOOK_SECRETS
  return { bundle, installed: [result(ca, authority), result(tls, leaf)] }
}

async function written(kube: KubeClient, secret: TlsSecret, present: ReadonlyMap<string, KubeObject>): Promise<void> {
  const { name } = secret.metadata
  const { resourceVersion } = present.get(name)?.metadata ?? {}
  const options = { fieldManager: FIELD_MANAGER }
  if (resourceVersion === undefined)
    return void (await kube.create(resourcePath(SECRETS, SYSTEM_NAMESPACE), secret, options))
  const exactly = { ...secret, metadata: { ...secret.metadata, resourceVersion } }
  await kube.replace(pathOf('Secret', SYSTEM_NAMESPACE, name), exactly, options)
}

const SECRETS = { group: '', version: 'v1', resource: 'secrets' }

/** Returns why one of the callers may not be changed. */
async function trust(kube: KubeClient, caBundle: string): Promise<Error | undefined> {
  let refused: Error | undefined
  for await (const { path, clients, trusting } of callersOfWebhook(kube))
    if (clients.some((one) => one.caBundle !== caBundle))
      await kube.patch(path, trusting(caBundle), 'merge', { fieldManager: FIELD_MANAGER }).catch((error: Error) => {
        if (!isForbidden(error)) throw error
        refused = error
      })
  return refused
}

/** The API server judges the certificates by its clock. That of this machine may be wrong. */
async function timeOf(kube: KubeClient): Promise<Date> {
  const review = { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview', metadata: {} }
  const { metadata } = await kube.create<{ metadata: { creationTimestamp: string } }>(
    '/apis/authentication.k8s.io/v1/selfsubjectreviews',
    review,
  )
  return new Date(metadata.creationTimestamp)
}

/**
 * Resolves as soon as the API server has proved that it reaches the webhook, and that the webhook has these functions in
 * the same form: the API server converts an object that it does not store to the stored version and back.
 */
export async function proveWebhook(
  kube: KubeClient,
  client: ConversionClient,
  functions: readonly Reconciler[],
  says: Says = () => undefined,
): Promise<void> {
  const resources = webhookResources(functions)
  const crd = WebhookProbe.crd(client)
  await kube.apply(pathOf(crd.kind, undefined, crd.metadata.name), crd, { fieldManager: FIELD_MANAGER, force: true })
  const because = await stillFails(
    () => probed(kube, resources),
    REACHED_WITHIN_MS,
    (because) => says(`waits for the webhook: ${because}`),
  )
  if (because !== undefined)
    throw new WebhookError(
      `the API server does not reach the webhook ${WEBHOOKS} after ${REACHED_WITHIN_MS / 1000} s, and no definition of these functions is applied: ${because}; see kubectl -n ${SYSTEM_NAMESPACE} logs deployment/${WEBHOOKS}`,
    )
}

/**
 * Resolves with undefined when a probe has not failed 20 times on end, and with the last reason if it fails after that time.
 * Each probe has a connection of its own, so that each of several API servers and processes very probably gets one.
 */
export async function stillFails(
  probe: () => Promise<string | undefined>,
  withinMs: number,
  waits: Says = () => undefined,
): Promise<string | undefined> {
  const deadline = performance.now() + withinMs
  for (let proved = 0; proved < PROBES; ) {
    const because = await probe()
    proved = because === undefined ? proved + 1 : 0
    if (because === undefined) continue
    waits(because)
    if (performance.now() > deadline) return because
    await sleep(ASK_AGAIN_MS)
  }
  return undefined
}

/** Returns why the API server does not convert with these functions at this moment, if one has conversions. */
export const webhookFails = async (kube: KubeClient, functions: readonly Reconciler[]): Promise<string | undefined> =>
  sortedDefinitions(functions).converted.length === 0 ? undefined : probed(kube, webhookResources(functions))

/** Returns the error for what the API server asks the webhook about, and the webhook does not have. */
export async function lostCallers(kube: KubeClient): Promise<Error | undefined> {
  const served = servedIn(await probe(kube))
  const callers = await Array.fromAsync(callersOfWebhook(kube))
  const lost = callers.filter(({ asks }) => asks.some((one) => served[one] === undefined)).map(({ name }) => name)
  if (lost.length === 0) return undefined
  return new WebhookError(
    `the API server asks the webhook about ${lost.join(', ')}, which it does not have: give its Deployment an image with the functions of all, or uninstall those that are gone`,
  )
}

/** Returns the versions of a kind that clients can use, if the API server converts its objects by a webhook. */
export async function servedVersions(
  kube: KubeClient,
  one: Pick<ResourceRef, 'group' | 'resource'>,
): Promise<string[]> {
  const crd = await found<CustomResourceDefinition>(kube, resourcePath(CRDS, undefined, nameOf(one)))
  if (crd?.spec.conversion?.strategy !== 'Webhook') return []
  return crd.spec.versions.filter(({ served }) => served).map(({ name }) => name)
}

/** Returns why the API server cannot ask the webhook about writes of a kind, if it has to. */
export async function validationFails(
  kube: KubeClient,
  one: Pick<ResourceRef, 'group' | 'resource'>,
): Promise<string | undefined> {
  const path = resourcePath(CONFIGURATIONS, undefined, policyNameOf(one))
  const { webhooks = [] } = (await found<ValidatingConfiguration>(kube, path)) ?? {}
  if (!webhooks.some(({ clientConfig }) => isWebhook(clientConfig))) return undefined
  const asked = validationOf(one)
  return probe(kube).then(
    (answer) => (servedIn(answer)[asked] === undefined ? `it does not have ${nameOf(one)}` : undefined),
    (error: Error) => {
      if (isForbidden(error)) throw error
      return error.message
    },
  )
}

const probed = (kube: KubeClient, resources: readonly Resource[]): Promise<string | undefined> =>
  probe(kube)
    .then((one) => otherThan(resources, one))
    .catch((error: Error) => {
      if (isForbidden(error)) throw error
      return error.message
    })

function probe(kube: KubeClient): Promise<KubeObject> {
  const { group, resource, kind } = WebhookProbe
  const path = resourcePath({ group, version: 'v1beta1', resource })
  const body = { apiVersion: `${group}/v1beta1`, kind, metadata: { name: 'probe' }, spec: {} }
  return kube.request<KubeObject>({ method: 'POST', path, body, query: { dryRun: 'All' }, alone: true })
}

function otherThan(resources: readonly Resource[], probe: KubeObject): string | undefined {
  const unserved = unservedBy(probe, resources)
  if (unserved.length === 0) return undefined
  return `it has other versions or checks of ${unserved.join(', ')} than these functions: give its Deployment their image`
}
