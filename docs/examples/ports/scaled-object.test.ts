import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Deployment } from 'fairlead'
import { type ExternalModel, given, lawsOf, type Scenario, simulate } from 'fairlead/testing'
import { describe, expect, it } from 'vitest'
import { ScaledObject, scaledObject } from './scaled-object.ts'

type Spec = Parameters<typeof ScaledObject.of>[0]['spec']
const trigger = (metadata = {}): Spec['triggers'] => [
  {
    type: 'metrics-api',
    metadata: { url: 'http://127.0.0.1:1', valueLocation: 'queue.0.length', targetValue: '5', ...metadata },
  },
]
const scaled = (spec: Partial<Spec> = {}, more: { status?: object; annotations?: Record<string, string> } = {}) =>
  ScaledObject.of({
    metadata: { name: 'worker', namespace: 'default', ...(more.annotations && { annotations: more.annotations }) },
    spec: { scaleTargetRef: { name: 'worker' }, triggers: trigger(), ...spec },
    ...(more.status && { status: more.status }),
  })
const worker = (replicas: number) =>
  Deployment.of({ metadata: { name: 'worker', namespace: 'default' }, spec: { replicas } as never })

/** Messages that wait in a queue elsewhere. */
interface Queue {
  length: number
}
const queue = (length: number): ExternalModel<typeof ScaledObject, Queue> => ({
  state: { length },
  read: (state) => ({ value: state.length }),
})
const started = (length: number, spec: Partial<Spec> = {}) =>
  simulate(scaledObject, { objects: [scaled(spec), worker(3)], external: queue(length) })
type World = ReturnType<typeof started>
const replicasOf = (world: World) => world.list(Deployment)[0]?.spec?.replicas
/** A trigger runs the object now, and not only when it polls. Scaled again, it may wait for up to a minute. */
async function comes(world: World, length: number): Promise<number | undefined> {
  world.external.length = length
  await world.runUntilIdle()
  await world.advance(60)
  return replicasOf(world)
}

const scenario: Scenario<typeof ScaledObject, Queue> = {
  objects: [scaled({ advanced: { restoreToOriginalReplicaCount: true } }), worker(3)],
  external: queue(0),
  steps: [
    ['messages come', (world) => void (world.external.length = 12)],
    ['somebody else scales', (world) => world.patch(Deployment, { spec: { replicas: 1 } })],
    ['all are done', (world) => void (world.external.length = 0)],
    ['the cooldown ends', (world) => world.pass(300)],
    ['the Deployment goes', (world) => world.delete(Deployment)],
  ],
}

describe('a ScaledObject', () => {
  it.each(lawsOf(scaledObject, scenario))('%s', (_, holds) => holds(), 60_000)

  const object = scaled({}, { status: { phase: 'Active', originalReplicaCount: 3 } })
  it.each([
    given('no Deployment', scaledObject, { object, external: { value: 1 } }).returns({
      conditions: [{ type: 'Ready', status: 'False', reason: 'TargetNotFound' }],
    }),
    given('a metric that does not answer', scaledObject, {
      object,
      others: [worker(3)],
      external: { error: 'the metric answers 503' },
    }).returns({
      conditions: [{ reason: 'TriggerError', message: 'the metric answers 503' }],
      requeueAfterSeconds: 30,
    }),
    given('the annotation that pauses it', scaledObject, {
      object: scaled({}, { annotations: { 'autoscaling.keda.sh/paused': 'true' } }),
      others: [worker(3)],
      external: { value: 100 },
    }).returns({ conditions: [{ status: 'True', reason: 'ScaledObjectPaused' }] }),
    given('a minimum above the maximum', scaledObject, { object: scaled({ maxReplicaCount: 0 }), external: {} }).throws(
      'maxReplicaCount',
    ),
  ])('with %s', (_, holds) => holds())

  it('starts pods as soon as a message comes, and ends them when none has come for the cooldown', async () => {
    const world = started(0)
    await world.runUntilIdle()
    expect(replicasOf(world)).toBe(0)
    expect(await comes(world, 12)).toBe(3)
    expect(await comes(world, 1000)).toBe(100)
    expect(await comes(world, 0)).toBe(1)
    expect(world.object?.status).toMatchObject({ phase: 'CoolingDown', cooldownEnd: '2030-01-01T00:07:00.000Z' })
    await world.advance(239)
    expect(replicasOf(world)).toBe(1)
    await world.advance(61)
    expect(replicasOf(world)).toBe(0)
    expect(world.object?.status).toMatchObject({ phase: 'Idle', originalReplicaCount: 3 })
  })

  it('polls the metric, and is active above its activation target only', async () => {
    const world = started(0, { triggers: trigger({ activationTargetValue: '10' }) })
    await world.runUntilIdle()
    world.external.length = 11
    await world.advance(29)
    expect(replicasOf(world)).toBe(0)
    await world.advance(1)
    expect(replicasOf(world)).toBe(3)
    const idle = started(10, { triggers: trigger({ activationTargetValue: '10' }) })
    await idle.runUntilIdle()
    expect(replicasOf(idle)).toBe(0)
  })

  it.each([
    [true, 3],
    [false, 100],
  ])('with restoreToOriginalReplicaCount %s leaves %i replicas behind', async (restores, left) => {
    const world = started(0, { advanced: { restoreToOriginalReplicaCount: restores } })
    await comes(world, 1000)
    world.delete()
    await world.runUntilIdle()
    expect(world.object).toBeUndefined()
    expect(replicasOf(world)).toBe(left)
  })

  it.each([
    ['{"queue":[{"length":"7"}]}', 200, { value: 7 }],
    ['{"queue":[]}', 200, { error: 'the metric cannot be read: no number at queue.0.length' }],
    ['', 503, { error: 'the metric answers 503' }],
  ])('reads %s with the code %i', async (body, code, result) => {
    const server = createServer((_, response) => void response.writeHead(code).end(body)).listen(0, '127.0.0.1')
    await new Promise((done) => server.once('listening', done))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/stats`
    const object = ScaledObject.parse(scaled({ triggers: trigger({ url }) }))
    const { signal } = new AbortController()
    expect(await scaledObject.external?.read({ object, signal } as never)).toEqual(result)
    await new Promise((done) => server.close(done))
  })
})
