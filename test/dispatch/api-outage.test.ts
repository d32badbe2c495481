import { afterAll, beforeAll, expect, it } from 'vitest'
import { borrowCluster } from '../support/borrowed.ts'
import { configMap, until, useFixture } from './fixture.ts'

let cluster: Awaited<ReturnType<typeof borrowCluster>>
beforeAll(async () => {
  cluster = await borrowCluster()
})
afterAll(() => cluster?.[Symbol.asyncDispose]())

const fixture = useFixture(() => cluster)

const FIRST = 'first'
const QUEUED = ['b', 'e', 'c', 'a', 'd']

it('an API server that is away fails no key: the queue stands still, and goes on in its order when the API server is back', async () => {
  await using scene = await fixture.scene('outage', {
    spec: { concurrency: 1, backoff: { initialSeconds: 600, maxSeconds: 600 } },
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
  expect(failed).toMatchObject({ result: 'error' })
  for (const name of QUEUED) await scene.enqueue(name)
  const started = () => since().flatMap((step) => (step.step === 'started' ? [step] : []))
  await until(() => started().some((step) => nameOf(step) === QUEUED[0]))
  await cluster.recover()

  await until(
    () => since().filter((step) => step.step === 'finished' && step.result === 'success').length === 1 + QUEUED.length,
  )
  expect(started().map(({ attempt }) => attempt)).toEqual(started().map(() => 0))
  expect([...new Set(started().map(nameOf))].filter((name) => name !== FIRST)).toEqual(QUEUED)
  const broken = fixture.requests.slice(requests).filter(({ code, path }) => code === '<error>' && path !== '/readyz')
  expect(broken, 'the one that noticed it').toHaveLength(1)
})
