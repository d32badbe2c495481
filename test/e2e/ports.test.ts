import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Deployment, Job, type KubeObject, Node, Pod, StatefulSet } from 'fairlead'
import { trigger } from 'fairlead/events'
import { type RunningOperators, runOperators } from 'fairlead/testing/cluster'
import { connect } from 'nats'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { resourcePath } from '#kube'
import { AWX, awx } from '../../docs/examples/ports/awx.ts'
import { CronJob, cronJob } from '../../docs/examples/ports/cron-job.ts'
import { NodeMaintenance, nodeMaintenance } from '../../docs/examples/ports/node-maintenance.ts'
import { ScaledObject, scaledObject } from '../../docs/examples/ports/scaled-object.ts'
import { until } from './world.ts'

let operators: RunningOperators
let metric: Server
/** Messages that wait in a queue elsewhere. */
let queued = 0

beforeAll(async () => {
  metric = createServer((_, response) => void response.end(JSON.stringify({ queue: { length: queued } })))
  await once(metric.listen(0, '127.0.0.1'), 'listening')
  const functions = [nodeMaintenance, awx, scaledObject, cronJob]
  operators = await runOperators(functions, { controllers: true, node: 'kwok', timeoutSeconds: 120 })
})
afterAll(async () => {
  metric?.close()
  await operators?.[Symbol.asyncDispose]()
})

const containers = [{ name: 'main', image: 'registry.example.com/image' }]
const deployment = (name: string): KubeObject =>
  Deployment.of({
    metadata: { name },
    spec: {
      replicas: 1,
      selector: { matchLabels: { name } },
      template: { metadata: { labels: { name } }, spec: { containers } },
    },
  })
const isReady = (found: unknown) =>
  (found as { status?: { conditions?: { type: string; status: string }[] } } | undefined)?.status?.conditions?.some(
    ({ type, status }) => type === 'Ready' && status === 'True',
  ) === true
const ms = (time: string | Date | undefined) => new Date(time ?? Number.NaN).getTime()

it('a CronJob makes Jobs of its template, which the API server has kept as it is', async () => {
  const template = { spec: { backoffLimit: 1, template: { spec: { restartPolicy: 'Never', containers } } } }
  await operators.create(
    CronJob,
    CronJob.of({
      metadata: { name: 'report' },
      spec: { schedule: '*/2 * * * * *', concurrencyPolicy: 'Replace', jobTemplate: template },
    }),
  )
  await operators.until(CronJob, 'report', (found) => (found?.status?.active?.length ?? 0) > 0)
  await operators.patch(CronJob, 'report', { spec: { suspend: true } })
  const [job] = await operators.list(Job)
  expect(job?.spec).toMatchObject({ backoffLimit: 1, template: { spec: { containers } } })
  await operators.delete(CronJob, 'report')
  await until(async () => (await operators.list(Job)).length === 0)
})

it('an AWX starts its application when the tables are migrated', async () => {
  await operators.kube.create('/api/v1/persistentvolumes', {
    metadata: { name: 'postgres' },
    spec: { capacity: { storage: '8Gi' }, accessModes: ['ReadWriteOnce'], hostPath: { path: '/var/lib/postgres' } },
  })
  await operators.create(AWX, AWX.of({ metadata: { name: 'demo' }, spec: {} }))
  await operators.until(AWX, 'demo', isReady)
  const [database, migration, web] = [
    await operators.get(StatefulSet, 'demo-postgres'),
    await operators.get(Job, 'demo-migration-24-6-1'),
    await operators.get(Deployment, 'demo-web'),
  ]
  expect(ms(database?.metadata.creationTimestamp)).toBeLessThanOrEqual(ms(migration?.metadata.creationTimestamp))
  expect(ms(migration?.status?.completionTime)).toBeLessThanOrEqual(ms(web?.metadata.creationTimestamp))
  expect((await operators.get(AWX, 'demo'))?.status).toMatchObject({ version: '24.6.1' })
})

it('a ScaledObject scales when it is triggered, and not only when it polls', async () => {
  const { port } = metric.address() as AddressInfo
  const metadata = { url: `http://127.0.0.1:${port}/`, valueLocation: 'queue.length', targetValue: '5' }
  await operators.create(Deployment, deployment('worker'))
  await operators.create(
    ScaledObject,
    ScaledObject.of({
      metadata: { name: 'worker' },
      spec: {
        scaleTargetRef: { name: 'worker' },
        pollingInterval: 86_400,
        triggers: [{ type: 'metrics-api', metadata }],
      },
    }),
  )
  await operators.until(Deployment, 'worker', (found) => found?.spec?.replicas === 0 && !found.status?.replicas)
  queued = 12
  const connection = await connect({ servers: operators.cluster?.nats?.url ?? '' })
  try {
    const key = { reconciler: 'scaled-object', namespace: 'default', name: 'worker' }
    await trigger(connection, { ...key, cause: 'a message has come' })
    await operators.until(Deployment, 'worker', (found) => found?.spec?.replicas === 3)
  } finally {
    await connection.close()
  }
})

it('a NodeMaintenance cordons and drains its Node, and gives it back', async () => {
  const nodes = async () => {
    const all: KubeObject[] = []
    for await (const { items } of operators.kube.list(resourcePath(Node))) all.push(...items)
    return all.map((one) => Node.parse(one))
  }
  const [node] = await nodes()
  const nodeName = node?.metadata.name ?? ''
  const onNode = async () => (await operators.list(Pod)).filter(({ spec }) => spec?.nodeName === nodeName)
  expect((await onNode()).length).toBeGreaterThan(2)
  await operators.kube.create(
    resourcePath(NodeMaintenance),
    NodeMaintenance.of({ metadata: { name: 'disk' }, spec: { nodeName } }),
  )
  const maintained = async () =>
    NodeMaintenance.parse(await operators.kube.get(resourcePath(NodeMaintenance, undefined, 'disk')))
  await until(async () => (await maintained()).status.phase === 'Succeeded')
  expect((await maintained()).status).toMatchObject({ pendingPods: [], drainProgress: 100 })
  expect((await maintained()).status.evictionPods).toBeGreaterThan(2)
  expect(await onNode()).toEqual([])
  const [cordoned] = await nodes()
  expect(cordoned?.spec?.unschedulable).toBe(true)
  expect(cordoned?.metadata.labels).toMatchObject({ 'remediation.medik8s.io/exclude-from-remediation': 'true' })

  await operators.kube.delete(resourcePath(NodeMaintenance, undefined, 'disk'), { propagationPolicy: 'Background' })
  await until(async () => (await nodes())[0]?.spec?.unschedulable !== true)
  const [returned] = await nodes()
  expect(returned?.metadata.labels).toEqual(node?.metadata.labels)
  await operators.until(AWX, 'demo', isReady)
})
