import { afterAll, beforeAll, expect, it } from 'vitest'
import { resourcePath } from '#kube'
import { ApiServerAwayError, Gate, Outage, PRIORITY } from '../../dispatch/gate.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { CONFIG_MAPS, configMap, until, useFixture } from './fixture.ts'

let cluster: Awaited<ReturnType<typeof borrowCluster>>
beforeAll(async () => {
  cluster = await borrowCluster()
})
afterAll(() => cluster?.[Symbol.asyncDispose]())

const fixture = useFixture(() => cluster)

/** A key that has waited once for this backoff does not run within a test. */
const COUNTED = { initialSeconds: 600, maxSeconds: 600 }
const AWAY = /^the API server is away: /

const FIRST = 'first'
const QUEUED = ['b', 'e', 'c', 'a', 'd']

it('an API server that is away fails no key: the queue stands still, and goes on in its order when the API server is back', async () => {
  await using scene = await fixture.scene('outage', {
    spec: { concurrency: 1, backoff: COUNTED },
  })
  for (const name of [FIRST, ...QUEUED]) {
    await scene.widget(name, () => ({}))
    await scene.ended(name)
    scene.behave(name, () => ({ apply: [configMap(name)] }))
  }
  const from = scene.steps.length
  const since = () => scene.steps.slice(from)
  const requests = fixture.requests.length
  const nameOf = ({ key }: { key: string }) => key.split('.').at(-1) ?? ''

  await cluster.processes.kill('kube-apiserver')
  const failed = await scene.run(FIRST)
  expect(failed).toMatchObject({ result: 'error', message: expect.stringMatching(AWAY) })
  for (const name of QUEUED) await scene.enqueue(name)
  const started = () => since().flatMap((step) => (step.step === 'started' ? [step] : []))
  await until(() => started().some((step) => nameOf(step) === QUEUED[0]))
  await cluster.recover()

  await until(
    () => since().filter((step) => step.step === 'finished' && step.result === 'success').length === 1 + QUEUED.length,
  )
  expect(started().map(({ attempt }) => attempt)).toEqual(started().map(() => 0))
  expect([...new Set(started().map(nameOf))].filter((name) => name !== FIRST)).toEqual(QUEUED)
  const broken = fixture.requests
    .slice(requests)
    .filter(({ code, path }) => code === '<error>' && !path.startsWith('/readyz'))
  expect(broken, 'the one that noticed it').toHaveLength(1)
})

it('an API server that hangs for longer than runs wait delays no key after its return, and a failure of the function still counts', async () => {
  await using scene = await fixture.scene('hung', { spec: { backoff: COUNTED } })
  const names = ['a', 'b', 'c']
  for (const name of names) {
    await scene.widget(name, () => ({}))
    await scene.ended(name)
    scene.behave(name, () => ({ apply: [configMap(name)] }))
  }
  await scene.widget('own', () => ({}))
  await scene.ended('own')
  scene.behave('own', () => {
    throw new TypeError('no such field')
  })
  const from = scene.steps.length
  const stepsOf = (name: string) => scene.steps.slice(from).filter(({ key }) => key === `hung.${name}`)
  const ended = (name: string) => stepsOf(name).flatMap((step) => (step.step === 'finished' ? [step] : []))

  cluster.processes.signal('kube-apiserver', 'SIGSTOP')
  try {
    for (const name of [...names, 'own']) await scene.enqueue(name)
    await until(() => names.every((name) => ended(name).length >= 2))
  } finally {
    cluster.processes.signal('kube-apiserver', 'SIGCONT')
  }
  await cluster.ready()
  const returnedAt = performance.now()
  await until(() => names.every((name) => ended(name).at(-1)?.result === 'success'))
  expect(performance.now() - returnedAt, 'milliseconds after its return').toBeLessThan(20_000)
  for (const name of names) expect(await scene.get(CONFIG_MAPS, name)).toBeDefined()
  const attempts = (name: string) => stepsOf(name).flatMap((step) => (step.step === 'started' ? [step.attempt] : []))
  expect(new Set(names.flatMap(attempts))).toEqual(new Set([0]))
  const failures = names.flatMap(ended).filter(({ result }) => result === 'error')
  expect(failures.filter(({ message = '' }) => !AWAY.test(message))).toEqual([])
  expect(ended('own').map(({ message }) => message)).toEqual(['no such field'])
  await scene.run('own')
  expect(attempts('own')).toEqual([0, 1])
})

it('an API server that has lost etcd is away until it has etcd again', async () => {
  const gate = new Gate(1, new Outage(fixture.kube, Math.random))
  const create = (name: string, signal?: AbortSignal) => {
    const object = { ...configMap(name), metadata: { name, namespace: 'default' } }
    const path = resourcePath(CONFIG_MAPS, 'default')
    const caller = { reconciler: 'one', kind: PRIORITY.create }
    return gate.run(caller, () => fixture.kube.create(path, object, { timeoutMs: 3000 }), { signal })
  }
  await cluster.processes.kill('etcd')
  await expect(create('first')).rejects.toThrow(ApiServerAwayError)
  await expect(create('first')).rejects.toThrow(/^the API server is away: 127\.0\.0\.1:\d+ is not ready \(etcd/)
  const waiting = create('second', new AbortController().signal)
  await cluster.recover()
  expect(await waiting).toMatchObject({ metadata: { name: 'second' } })
})
