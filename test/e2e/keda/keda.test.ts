import { readFile } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import type { KubeObject } from '#contracts'
import type { Cluster } from '#lab'
import { openTestQueue, type TestQueue } from '../../queue/support.ts'
import { type Kubectl, kubectlFor } from '../../support/kubectl.ts'
import { startTestCluster } from '../../support/servers.ts'
import { type ShippedNats, startShippedNats } from '../../support/shipped-users.ts'
import { until } from '../../support/wait.ts'
import { startKeda } from './servers.ts'

const SYSTEM = 'fairlead-system'
const FUNCTIONS = 'fairlead-functions'
/** The controller of autoscalers looks every 15 s, KEDA every 5 s. */
const SCALES_WITHIN_MS = 120_000

interface ScaledObject extends KubeObject {
  spec: {
    cooldownPeriod: number
    minReplicaCount: number
    advanced?: object
    triggers: { metadata: { natsServerMonitoringEndpoint: string } }[]
  }
}

describe.skipIf(process.env['FAIRLEAD_KEDA'] === undefined)('KEDA, by npm run soak keda', () => {
  const stack = new AsyncDisposableStack()
  let cluster: Cluster
  let nats: ShippedNats
  let test: TestQueue
  let kubectl: Kubectl

  beforeAll(async () => {
    nats = stack.use(await startShippedNats(['']))
    cluster = stack.use(await startTestCluster({ controllers: true, node: 'kwok' }))
    kubectl = await kubectlFor(cluster)
    test = stack.use(await openTestQueue(nats.url, ''))
    for (const reconciler of ['at', 'website']) await test.queue.declare(reconciler)
    for (const namespace of [SYSTEM, FUNCTIONS]) await kubectl(['create', 'namespace', namespace])
    await startKeda(cluster, kubectl)
  }, 3_600_000)
  afterAll(() => stack.disposeAsync())

  const replicas = async (namespace: string, name: string) =>
    Number(await kubectl(['-n', namespace, 'get', `deployment/${name}`, '-o', 'jsonpath={.spec.replicas}']))
  const scaledTo = (namespace: string, name: string, count: number) =>
    until(async () => (await replicas(namespace, name)) === count, {
      timeoutMs: SCALES_WITHIN_MS,
      what: `deployment/${name} has ${count} replicas`,
    })

  /** A file of deploy/keda, with the address of NATS here, without waiting before scaling in. */
  async function apply(file: string, change: Partial<ScaledObject['spec']> = {}): Promise<void> {
    const text = await readFile(new URL(`../../../deploy/keda/${file}`, import.meta.url), 'utf8')
    const object = parse(text) as ScaledObject
    for (const { metadata } of object.spec.triggers)
      metadata.natsServerMonitoringEndpoint = new URL(nats.monitoringUrls[0] ?? '').host
    const behavior = { scaleDown: { stabilizationWindowSeconds: 0 } }
    Object.assign(object.spec, { cooldownPeriod: 5, advanced: { horizontalPodAutoscalerConfig: { behavior } } }, change)
    await kubectl(['apply', '-f', '-'], object)
  }

  /** Takes all that is queued, as dispatchers do. */
  async function work(reconciler: string): Promise<void> {
    const worker = test.queue.serve({ reconciler, slots: 50, handler: async () => ({ kind: 'done' }) })
    await until(async () => (await test.queue.depth(reconciler)).queued === 0)
    await worker.drain(5000)
  }
  const wait = (reconciler: string, count: number) =>
    Promise.all(Array.from({ length: count }, (_, index) => test.queue.enqueue(reconciler, `n.${index}`)))

  it('scales dispatchers 1 → 5 → 1 by the keys that wait, down to none and up again', {
    timeout: 600_000,
  }, async () => {
    await kubectl(['apply', '-f', '-'], deployment(SYSTEM, 'fairlead-dispatcher'))
    await apply('scaledobject.yaml', { minReplicaCount: 1 })
    await scaledTo(SYSTEM, 'fairlead-dispatcher', 1)
    await wait('at', 450)
    await scaledTo(SYSTEM, 'fairlead-dispatcher', 5)
    await work('at')
    await scaledTo(SYSTEM, 'fairlead-dispatcher', 1)
    await apply('scaledobject.yaml')
    await scaledTo(SYSTEM, 'fairlead-dispatcher', 0)
    await wait('at', 1)
    await scaledTo(SYSTEM, 'fairlead-dispatcher', 1)
  })

  it('scales a function over HTTP by the keys of its own Reconciler', { timeout: 600_000 }, async () => {
    await kubectl(['apply', '-f', '-'], deployment(FUNCTIONS, 'website'))
    await apply('function.yaml')
    await scaledTo(FUNCTIONS, 'website', 1)
    await wait('website', 140)
    await scaledTo(FUNCTIONS, 'website', 3)
    expect(await replicas(SYSTEM, 'fairlead-dispatcher')).toBe(1)
    await work('website')
    await scaledTo(FUNCTIONS, 'website', 1)
  })
})

const deployment = (namespace: string, name: string) => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name, namespace },
  spec: {
    replicas: 1,
    selector: { matchLabels: { app: name } },
    template: {
      metadata: { labels: { app: name } },
      spec: { containers: [{ name: 'main', image: 'busybox', resources: { requests: { cpu: '1m' } } }] },
    },
  },
})
