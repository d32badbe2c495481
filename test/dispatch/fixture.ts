import { afterAll, beforeAll, inject } from 'vitest'
import type {
  Invoke,
  KubeObject,
  Outcome,
  PerformInput,
  ReadInput,
  ResourceRef,
  RunContext,
  RunInput,
} from '#contracts'
import { createDispatcher, type Dispatcher, type DispatcherDeps, type RunStep } from '#dispatch'
import { type EventStore, keyOf, type OwnerKey, openEventStore } from '#events'
import { functionRbac, reconcilerCrd } from '#install'
import {
  createKubeClient,
  isAlreadyExists,
  isNotFound,
  type KubeClient,
  loadKubeConfig,
  type RequestReport,
  resourcePath,
} from '#kube'
import type { JetStream } from '#nats'
import { openQueue, type QueueOptions, type WorkQueue } from '#queue'
import { coverageId, RECONCILERS, reconcilerSpec } from '#spec'
import { connectTo } from '../support/jetstream.ts'
import type { SharedServers } from '../support/setup.ts'
import { silent } from '../support/silent.ts'
import { until } from '../support/wait.ts'
import { CONFIG_MAPS, PODS, WIDGETS } from './objects.ts'

export { silent } from '../support/silent.ts'
export { until } from '../support/wait.ts'
export { CONFIG_MAPS, configMap, JOBS, PODS, pod, SECRETS, secret, WIDGETS } from './objects.ts'

const CRDS = { group: 'apiextensions.k8s.io', version: 'v1', resource: 'customresourcedefinitions' }
const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }

const GRACE_MS = 2000

type Behaviour = (input: RunInput, context: RunContext) => Outcome | Promise<Outcome>
type External = (input: ReadInput | PerformInput, context: RunContext) => unknown

let ready: Promise<SharedServers> | undefined
let files = 0

/** Shared with the other workers: whoever asks first makes the kinds of resources there. */
async function sharedServers(): Promise<SharedServers> {
  const answer = await fetch(inject('sharedServers'))
  if (!answer.ok) throw new Error(await answer.text())
  const servers = (await answer.json()) as SharedServers
  const kube = createKubeClient({
    ...(await loadKubeConfig({ paths: [servers.kubeconfig] })),
    userAgent: 'fairlead-test',
  })
  await installCrds(kube)
  await kube.close()
  return servers
}

/** Real servers and a store for the tests of a file. `own` gives another API server, which the file may stop. */
export function useFixture(own?: () => { kubeconfig: string }): Fixture {
  const fixture = new Fixture()
  beforeAll(() => fixture.open(own?.()))
  afterAll(() => fixture[Symbol.asyncDispose]())
  return fixture
}

export async function startFixture(): Promise<Fixture> {
  const fixture = new Fixture()
  await fixture.open()
  return fixture
}

/** Tests do the bridge's work themselves, so that each test states the known events. */
export class Fixture {
  kube!: KubeClient
  js!: JetStream
  events!: EventStore
  readonly requests: RequestReport[] = []

  async open(own?: { kubeconfig: string }): Promise<void> {
    ready ??= sharedServers()
    const { natsUrl, ...shared } = await ready
    this.kube = createKubeClient({
      ...(await loadKubeConfig({ paths: [(own ?? shared).kubeconfig] })),
      userAgent: 'fairlead-test',
      onRequest: (request) => this.requests.push(request),
    })
    if (own !== undefined) await installCrds(this.kube)
    this.js = await connectTo(natsUrl)
    const prefix = `file${process.pid}-${++files}`
    this.events = await openEventStore(this.js, { prefix, cluster: 'test', log: silent })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.js?.close()
    await this.kube?.close()
  }

  /** The rights that are generated for a Reconciler. Its account is not made. */
  async grant(name: string, spec: object): Promise<void> {
    const RESOURCES: Record<string, string> = {
      ClusterRole: 'clusterroles',
      ClusterRoleBinding: 'clusterrolebindings',
      RoleBinding: 'rolebindings',
    }
    const declared = reconcilerSpec.parse({ ...spec, invoke: { pull: {} } })
    for (const object of functionRbac({ metadata: { name }, spec: declared })) {
      const ref = { group: 'rbac.authorization.k8s.io', version: 'v1', resource: RESOURCES[object.kind]! }
      const path = resourcePath(ref, object.metadata.namespace, object.metadata.name)
      await this.kube.apply(path, object, { fieldManager: 'test' })
    }
  }

  /** A Reconciler of the API server's: for widgets of the namespace with its name, and without objects of its own. */
  reconciler(name: string, spec: object = {}, labels: Record<string, string> = {}): Promise<KubeObject> {
    return this.kube.create(resourcePath(RECONCILERS), {
      apiVersion: 'fairlead.dev/v1alpha1',
      kind: 'Reconciler',
      metadata: { name, labels },
      spec: { for: { ...WIDGETS, namespaces: [name] }, owns: [], invoke: { pull: {} }, ...spec },
    })
  }

  /** A bridge has listed all of this resource. */
  async listed(ref: ResourceRef): Promise<void> {
    await this.events.setCursor(ref, undefined, { resourceVersion: '1', at: '2030-01-01T00:00:00Z' })
  }

  /** A namespace of its own, a queue of its own, and a dispatcher that serves widgets there. */
  async scene(name: string, options: SceneOptions = {}): Promise<Scene> {
    const scene = new Scene(this, name, options)
    await scene.start()
    return scene
  }

  /** As scene(), for all tests of a file or of a block. */
  useScene(name: string, options: SceneOptions = {}): Scene {
    const scene = new Scene(this, name, options)
    beforeAll(() => scene.start())
    afterAll(() => scene.stop())
    return scene
  }
}

interface SceneOptions {
  queue?: Pick<QueueOptions, 'leaseMs' | 'now'>
  dispatcher?: Partial<DispatcherDeps>
  spec?: object
  /** The grace period for runs after stop(), in milliseconds. */
  graceMs?: number
  /** A Reconciler of the API server's; left out: one that EVENTS alone knows. */
  object?: KubeObject
  /** False: the dispatcher is not going to serve it (yet). */
  waitFor?: false
}

/** Reconciler, namespace and queue prefix have one name. */
export class Scene {
  readonly steps: RunStep[] = []
  readonly name: string
  queue!: WorkQueue
  dispatcher!: Dispatcher
  readonly #fixture: Fixture
  readonly #options: SceneOptions
  readonly #behaviours = new Map<string, Behaviour>()
  readonly #abort = new AbortController()
  #external: External = () => null
  #running: Promise<void> | undefined

  constructor(fixture: Fixture, name: string, options: SceneOptions) {
    this.#fixture = fixture
    this.name = name
    this.#options = options
  }

  async start(): Promise<void> {
    const { kube, js, events } = this.#fixture
    const { name } = this
    await kube.create('/api/v1/namespaces', { metadata: { name } })
    await kube.create(`/api/v1/namespaces/${name}/serviceaccounts`, { metadata: { name: 'default' } })
    this.queue = await openQueue(js, { prefix: name, log: silent, ...this.#options.queue })
    this.dispatcher = createDispatcher({
      kube,
      events,
      queue: this.queue,
      functions: new Map([[name, this.#invoke]]),
      instance: 'test',
      log: silent,
      observer: (step) => this.steps.push(step),
      ...this.#options.dispatcher,
    })
    for (const ref of [WIDGETS, PODS, CONFIG_MAPS]) if (!(await events.cursor(ref))) await this.#fixture.listed(ref)
    await events.put(RECONCILERS, 'added', this.#options.object ?? this.reconciler())
    this.#running = this.dispatcher.run(this.#abort.signal, this.#options.graceMs ?? GRACE_MS)
    if (this.#options.waitFor !== false) await until(() => this.dispatcher.serving().includes(name))
  }

  reconciler(more: object = {}): KubeObject {
    const spec = {
      for: { ...WIDGETS, namespaces: [this.name] },
      owns: [PODS, CONFIG_MAPS],
      invoke: { pull: {} },
      backoff: { initialSeconds: 0.05, maxSeconds: 0.2 },
      ...this.#options.spec,
      ...more,
    }
    const metadata = { name: this.name, uid: `uid-${this.name}`, resourceVersion: '1' }
    return { apiVersion: 'fairlead.dev/v1alpha1', kind: 'Reconciler', metadata, spec }
  }

  coverage(): string {
    const object = this.reconciler()
    return coverageId(object, reconcilerSpec.parse(object.spec))
  }

  /** Creates a widget, sets the behaviour of its function, stores it in EVENTS and enqueues it. */
  async widget(name: string, behaviour: Behaviour): Promise<KubeObject> {
    this.#behaviours.set(name, behaviour)
    const widget = {
      apiVersion: 'test.fairlead.dev/v1',
      kind: 'Widget',
      metadata: { name, namespace: this.name },
      spec: {},
    }
    const created = await this.#fixture.kube.create(resourcePath(WIDGETS, this.name), widget)
    await this.#fixture.events.put(WIDGETS, 'added', created)
    await this.enqueue(name)
    return created
  }

  behave(name: string, behaviour: Behaviour): void {
    this.#behaviours.set(name, behaviour)
  }

  /** How the functions of all widgets read and change their external system. */
  behaveOutside(external: External): void {
    this.#external = external
  }

  enqueue(name: string, why: { cause?: string } = {}): Promise<unknown> {
    return this.queue.enqueue(this.name, keyOf(this.name, name), why)
  }

  /** The next run of this key that ends from now on. */
  async run(name: string, why: { cause?: string } = {}): Promise<RunStep & { step: 'finished' }> {
    const from = this.steps.length
    await this.enqueue(name, why)
    return this.ended(name, from)
  }

  async ended(name: string, from = 0): Promise<RunStep & { step: 'finished' }> {
    const key = keyOf(this.name, name)
    const find = () =>
      this.steps.slice(from).find((step) => step.step === 'finished' && step.key === key) as
        | (RunStep & { step: 'finished' })
        | undefined
    await until(() => find() !== undefined)
    return find()!
  }

  get(ref: ResourceRef, name: string): Promise<KubeObject | undefined> {
    return this.#fixture.kube.get(resourcePath(ref, this.name, name)).catch((error: unknown) => {
      if (!isNotFound(error)) throw error
      return undefined
    })
  }

  /** What the watch would have stored by now. */
  async see(ref: ResourceRef, name: string, owner?: OwnerKey): Promise<void> {
    const object = await this.get(ref, name)
    if (object !== undefined) await this.#fixture.events.put(ref, 'modified', object, { owner })
  }

  async condition(name: string, type = 'Reconciled'): Promise<Record<string, unknown> | undefined> {
    const status = (await this.get(WIDGETS, name))?.status as { conditions?: Record<string, unknown>[] } | undefined
    return status?.conditions?.find((condition) => condition['type'] === type)
  }

  async reported(name: string): Promise<KubeObject[]> {
    const found: KubeObject[] = []
    for await (const page of this.#fixture.kube.list(resourcePath(EVENTS, this.name))) found.push(...page.items)
    return found.filter((event) => (event['regarding'] as { name: string }).name === name)
  }

  stepsOf(name: string): RunStep[] {
    const key = keyOf(this.name, name)
    return this.steps.filter((step) => step.key === key)
  }

  writes(name: string): string[] {
    return this.stepsOf(name).flatMap((step) =>
      step.step === 'written' ? `${step.verb} ${step.kind} ${step.name}` : [],
    )
  }

  /** Requests that the API server has answered since, Events aside. */
  async requestsDuring(act: () => Promise<unknown>): Promise<string[]> {
    const from = this.#fixture.requests.length
    await act()
    return this.#fixture.requests
      .slice(from)
      .filter(({ path }) => path.includes(`/namespaces/${this.name}/`) && !path.includes('events.k8s.io'))
      .map(({ method, path, code }) => `${method} ${path.split(`/${this.name}/`)[1]} ${code}`)
  }

  async stop(): Promise<void> {
    this.#abort.abort()
    await this.#running
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  readonly #invoke: Invoke = async (input, context) => {
    const behaviour = this.#behaviours.get(input.object?.metadata.name ?? '')
    if (input.ask !== undefined) return this.#external(input, context)
    return behaviour === undefined ? {} : behaviour(input, context)
  }
}

async function installCrds(kube: KubeClient): Promise<void> {
  for (const crd of [reconcilerCrd(), widgetCrd])
    await kube.create(resourcePath(CRDS), crd).catch((error: unknown) => {
      if (!isAlreadyExists(error)) throw error
    })
  const isEstablished = async (name: string) => {
    const { status } = await kube.get(resourcePath(CRDS, undefined, name))
    const { conditions } = (status ?? {}) as { conditions?: { type: string; status: string }[] | null }
    return (conditions ?? []).some((condition) => condition.type === 'Established' && condition.status === 'True')
  }
  await until(() => isEstablished('widgets.test.fairlead.dev'))
  await until(() => isEstablished('reconcilers.fairlead.dev'))
}

const anything = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true }

const widgetCrd = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'widgets.test.fairlead.dev' },
  spec: {
    group: 'test.fairlead.dev',
    scope: 'Namespaced',
    names: { kind: 'Widget', plural: 'widgets', singular: 'widget', listKind: 'WidgetList' },
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        subresources: { status: {} },
        schema: { openAPIV3Schema: { type: 'object', properties: { spec: anything, status: anything } } },
      },
    ],
  },
}
