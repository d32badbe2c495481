import { readFile } from 'node:fs/promises'
import { parse } from 'yaml'
import { type BridgeDeps, type BridgeObserver, createBridge, type ResourceStatus } from '#bridge'
import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { type EventStore, keyOf, openEventStore } from '#events'
import {
  createKubeClient,
  isNotFound,
  isRetriable,
  type KubeClient,
  loadKubeConfig,
  resourcePath,
  type WatchEvent,
  type WatchOptions,
} from '#kube'
import { connectJetStream, incarnationOf, type JetStream, Watermark } from '#nats'
import { unlessAborted } from '#primitives'
import { openQueue } from '#queue'
import { RECONCILERS } from '#spec'
import { silent } from '../support/silent.ts'
import { until } from '../support/wait.ts'
import { configMaps, reconcilerObject, widgets } from './objects.ts'

export { silent } from '../support/silent.ts'
export { until } from '../support/wait.ts'

export async function kubeClientOf(kubeconfig: string): Promise<KubeClient> {
  return createKubeClient({ ...(await loadKubeConfig({ paths: [kubeconfig] })), userAgent: 'bridge-test' })
}

const RBAC = '/apis/rbac.authorization.k8s.io/v1'
type Rule = Record<'apiGroups' | 'resources' | 'verbs', string[]>

/** A client of the service account `default`, which may do nothing yet. */
export async function restrictedClient(kube: KubeClient, kubeconfig: string): Promise<KubeClient> {
  const { server, ca } = await loadKubeConfig({ paths: [kubeconfig] })
  const path = '/api/v1/namespaces/default/serviceaccounts/default/token'
  const { token } = (await kube.create<{ status: { token: string } }>(path, { spec: {} })).status
  return createKubeClient({ server, ca, token: async () => token, userAgent: 'bridge-test' })
}

/** Lets the service account `default` do something, everywhere or in one namespace. */
export async function grant(kube: KubeClient, name: string, rule: Rule, namespace?: string): Promise<void> {
  const kind = namespace === undefined ? 'ClusterRole' : 'Role'
  const at = namespace === undefined ? RBAC : `${RBAC}/namespaces/${namespace}`
  await kube.create(`${at}/${kind.toLowerCase()}s`, { metadata: { name }, rules: [rule] })
  await kube.create(`${at}/${kind.toLowerCase()}bindings`, {
    metadata: { name },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind, name },
    subjects: [{ kind: 'ServiceAccount', name: 'default', namespace: 'default' }],
  })
}

/** Revokes the permissions in all namespaces. */
export async function revoke(kube: KubeClient, name: string): Promise<void> {
  await kube.delete(`${RBAC}/clusterrolebindings/${name}`)
}

const widgetVersion = (name: string, isServed: boolean) => ({
  name,
  served: isServed,
  storage: isServed,
  schema: { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
})

const widgetDefinition = (scope: string) => ({
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'widgets.example.com' },
  spec: {
    group: 'example.com',
    names: { kind: 'Widget', listKind: 'WidgetList', plural: 'widgets', singular: 'widget' },
    scope,
    versions: [widgetVersion('v1', true)],
  },
})

const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'

export async function installReconcilers(kube: KubeClient): Promise<void> {
  const file = new URL('../../crds/fairlead.dev_reconcilers.yaml', import.meta.url)
  await kube.create(DEFINITIONS, parse(await readFile(file, 'utf8')) as object)
  await until(() => isServed(kube, RECONCILERS), { what: 'Reconcilers are served' })
}

/** Takes the definition away, and with it every widget. */
export async function removeWidgets(kube: KubeClient): Promise<void> {
  const path = `${DEFINITIONS}/widgets.example.com`
  await kube.delete(path)
  await until(() => kube.get(path).then(() => false, isNotFound), { what: 'the definition has gone' })
}

/** Version v1 is not served any more, v2 is. */
export async function moveWidgetsToV2(kube: KubeClient): Promise<void> {
  const versions = [widgetVersion('v1', false), widgetVersion('v2', true)]
  await kube.patch(`${DEFINITIONS}/widgets.example.com`, { spec: { versions } }, 'merge')
}

export async function installWidgets(kube: KubeClient, scope = 'Namespaced'): Promise<void> {
  await kube.create(DEFINITIONS, widgetDefinition(scope))
  await until(() => isServed(kube, widgets), { what: 'widgets are served' })
}

async function isServed(kube: KubeClient, ref: ResourceRef): Promise<boolean> {
  return kube.get(resourcePath(ref)).then(
    () => true,
    (error: unknown) => {
      if (isNotFound(error) || isRetriable(error)) return false
      throw error
    },
  )
}

export const createReconciler = (kube: KubeClient, ...spec: Parameters<typeof reconcilerObject>): Promise<KubeObject> =>
  kube.create(resourcePath(RECONCILERS), reconcilerObject(...spec))

export async function removeReconcilers(kube: KubeClient): Promise<void> {
  await kube.request({ method: 'DELETE', path: resourcePath(RECONCILERS) })
}

export const configMap = (name: string, value: string, metadata: Partial<KubeObject['metadata']> = {}): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace: 'default', ...metadata },
  data: { value },
})

export const configMapPath = (name?: string): string => resourcePath(configMaps, 'default', name)

/** Replaces, so that each call is one version. */
export const writeConfigMap = (kube: KubeClient, name: string, value: string): Promise<KubeObject> =>
  kube.replace(configMapPath(name), configMap(name, value))

interface Enqueued {
  reconciler: string
  key: string
  lane: 'high' | 'low'
  cause: string
}

interface StartOptions
  extends Pick<BridgeDeps, 'ownWrites' | 'silenceSeconds' | 'staysMs' | 'sweep' | 'orphans' | 'triggers' | 'now'> {
  prefix: string
  observer?: BridgeObserver
  noticeRestarts?: boolean
  replicas?: 1 | 3
  /** The time at the end for changes that were read. */
  graceMs?: number
  /** Delays each write to EVENTS. */
  before?: (object: KubeObject) => Promise<void>
  /** Stands between the bridge and EVENTS. */
  through?: (events: EventStore) => EventStore
  /** Left out: as a user who may do everything. */
  connect?: () => Promise<JetStream>
}

/** A bridge on a stream of its own, whose enqueued keys are written down. */
export async function startBridge(
  kube: KubeClient,
  natsUrl: string,
  {
    prefix,
    observer = {},
    noticeRestarts = false,
    before = async () => {},
    through = (events) => events,
    connect,
    replicas,
    graceMs = 2000,
    ...options
  }: StartOptions,
) {
  const kept = replicas === undefined ? {} : { replicas }
  const js = await (connect?.() ?? connectJetStream({ servers: natsUrl, name: prefix }))
  const events = await openEventStore(js, { prefix, cluster: 'test', log: silent, ...kept })
  const queue = await openQueue(js, { prefix, log: silent, ...kept })
  const enqueued: Enqueued[] = []
  const relists: { resource: string; because: string; objects: number; changed: number; deleted: number }[] = []
  const bridge = createBridge({
    kube,
    events: slowed(through(events), before),
    queue: {
      declare: (reconciler) => queue.declare(reconciler),
      isServed: (reconciler) => queue.isServed(reconciler),
      find: (of) => queue.find(of),
      async enqueue(reconciler, key, { lane = 'high', cause = '' } = {}) {
        const result = await queue.enqueue(reconciler, key, { lane, cause })
        enqueued.push({ reconciler, key, lane, cause })
        return result
      },
      announce(reconciler, key, options) {
        return { noted: false, safe: this.enqueue(reconciler, key, options).then(() => 'token' as const) }
      },
    },
    log: silent,
    ...options,
    ...(noticeRestarts && {
      incarnation: incarnationOf(js, [events, queue], { creates: true }),
      watermark: new Watermark(js, queue),
    }),
    observer: { ...observer, relisted: (report) => relists.push(report) },
  })
  const stop = new AbortController()
  const running = bridge.run(stop.signal, graceMs)
  return {
    kube,
    js,
    events,
    bridge,
    queue,
    enqueued,
    relists,
    keysOf: (reconciler: string) =>
      [...new Set(enqueued.filter((entry) => entry.reconciler === reconciler).map(({ key }) => key))].sort(),
    synced: (resource: string) =>
      until(async () => bridge.status().resources.some((r) => r.resource === resource && r.synced), {
        what: `${resource} is synced`,
      }),
    /** Resolves when the cursors are stored behind all that was read: the next bridge goes on from there. */
    rested: () =>
      until(
        async () => {
          const cursors = await Array.fromAsync(events.cursors())
          const isStored = ({ resource, namespace, resourceVersion }: ResourceStatus) =>
            cursors.some(
              (cursor) =>
                resourceName(cursor.ref) === resource &&
                cursor.scope === namespace &&
                cursor.resourceVersion === resourceVersion,
            )
          const isResting = (one: ResourceStatus) => one.synced && one.unconfirmed === 0 && isStored(one)
          return bridge.status().resources.every(isResting)
        },
        { what: 'the cursors are stored' },
      ),
    async [Symbol.asyncDispose]() {
      stop.abort()
      await running
      await js.close()
    },
  }
}

const slowed = (events: EventStore, before: (object: KubeObject) => Promise<void>): EventStore =>
  new Proxy(events, {
    get(target, name) {
      if (name === 'put')
        return (...args: Parameters<EventStore['put']>) => before(args[2]).then(() => target.put(...args))
      const value: unknown = Reflect.get(target, name, target)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })

/** As long as `isHeld`, changes of widgets do not arrive by a watch. */
export function withSlowWatch(kube: KubeClient) {
  const slow = { isHeld: false, kube: { ...kube, watch } }
  async function* watch<T>(path: string, options: WatchOptions = {}): AsyncGenerator<WatchEvent<T>> {
    const isOfChanges = path === resourcePath(widgets) && !options.sendInitialEvents
    for await (const event of kube.watch<T>(path, options)) {
      if (slow.isHeld && isOfChanges && options.signal) await unlessAborted(new Promise(() => {}), options.signal)
      yield event
    }
  }
  return slow
}

/** What a store has of a resource, by key: resourceVersion, or `deleted`. */
export async function stored(events: EventStore, ref: ResourceRef): Promise<Map<string, string>> {
  const found = new Map<string, string>()
  for await (const { key, deleted, resourceVersion } of events.identities(ref))
    found.set(keyOf(key.namespace, key.name), deleted ? 'deleted' : resourceVersion)
  return found
}

/** Returns the version of every ConfigMap that a store has or had. */
export async function versions(events: EventStore): Promise<Map<string, string>> {
  const found = new Map<string, string>()
  for await (const { key, resourceVersion } of events.identities(configMaps))
    found.set(keyOf(key.namespace, key.name), resourceVersion)
  return found
}

/** What the API server has, by key: resourceVersion. */
export async function present(kube: KubeClient, ref: ResourceRef, namespace?: string): Promise<Map<string, string>> {
  const found = new Map<string, string>()
  for await (const { items } of kube.list(resourcePath(ref, namespace)))
    for (const { metadata } of items)
      found.set(keyOf(metadata.namespace, metadata.name), metadata.resourceVersion ?? '')
  return found
}

/** EVENTS has exactly the objects of the API server, in their newest versions. */
export async function untilEqual(
  kube: KubeClient,
  events: EventStore,
  ref: ResourceRef,
  namespace?: string,
): Promise<void> {
  let difference: unknown
  await until(
    async () => {
      const wanted = await present(kube, ref, namespace)
      const live = new Map([...(await stored(events, ref))].filter(([, version]) => version !== 'deleted'))
      difference = { missing: minus(wanted, live), surplus: minus(live, wanted) }
      return minus(wanted, live).length + minus(live, wanted).length === 0
    },
    { what: `EVENTS has the ${ref.resource} of the API server` },
  ).catch((error: Error) => {
    throw new Error(`${error.message}: ${JSON.stringify(difference)}`, { cause: error })
  })
}

const minus = (a: Map<string, string>, b: Map<string, string>): [string, string][] =>
  [...a].filter(([key, version]) => b.get(key) !== version)

/** Messages that a stream has ever taken. */
export async function lastSequence(js: JetStream, stream: string): Promise<number> {
  return (await js.admin.streams.info(stream)).state.last_seq
}

/** Condition Synced of a Reconciler has this reason. */
export async function untilCondition(kube: KubeClient, name: string, reason: string): Promise<void> {
  let said: unknown
  await until(
    async () => {
      const object = await kube.get(resourcePath(RECONCILERS, undefined, name))
      const { conditions = [] } = (object.status ?? {}) as { conditions?: { type: string; reason: string }[] }
      said = conditions
      return conditions.some((condition) => condition.type === 'Synced' && condition.reason === reason)
    },
    { what: `${name} is ${reason}` },
  ).catch((error: Error) => {
    throw new Error(`${error.message}: ${JSON.stringify(said)}`, { cause: error })
  })
}

/**
 * Returns the keys that were enqueued for the Reconciler since `act` began, after a later change has passed through.
 * ConfigMaps of the namespace `other` are watched.
 */
export async function enqueuedBy(
  bridge: Awaited<ReturnType<typeof startBridge>>,
  reconciler: string,
  act: () => Promise<unknown>,
): Promise<string[]> {
  bridge.enqueued.length = 0
  await act()
  const sign = `sign-${++signs}`
  await bridge.kube.create(
    resourcePath(configMaps, 'other'),
    configMap(sign, '', { namespace: 'other', labels: { sign } }),
  )
  await until(async () => (await stored(bridge.events, configMaps)).has(`other.${sign}`), {
    what: 'a later change has come through',
  })
  await until(async () => bridge.bridge.status().resources.every(({ unconfirmed }) => unconfirmed === 0), {
    what: 'nothing is under way',
  })
  return bridge.keysOf(reconciler)
}

let signs = 0
