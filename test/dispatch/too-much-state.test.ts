import { afterAll, beforeAll, expect, it } from 'vitest'
import type { RunInput } from '#contracts'
import { CONFIG_MAPS, PODS, startFixture, until, WIDGETS } from './fixture.ts'

const MIB = 2 ** 20
const { strategy: _, ...configMaps } = CONFIG_MAPS

let fixture: Awaited<ReturnType<typeof startFixture>>
beforeAll(async () => {
  fixture = await startFixture()
})
afterAll(() => fixture?.[Symbol.asyncDispose]())

let version = 1
async function putMap(namespace: string, name: string, bytes: number, verb: 'added' | 'deleted' = 'added') {
  const metadata = { name, namespace, uid: `${namespace}-${name}`, resourceVersion: String(++version) }
  const data = { filler: 'x'.repeat(bytes) }
  await fixture.events.put(configMaps, verb, { apiVersion: 'v1', kind: 'ConfigMap', metadata, data })
}

const scene = (name: string) =>
  fixture.scene(name, {
    spec: { owns: [PODS], related: [configMaps], backoff: { initialSeconds: 0.05, maxSeconds: 600 } },
    dispatcher: { maxStateBytes: MIB },
  })

it('a run that would read too much calls no function, and its object says what it read and what to do', async () => {
  const crowded = await scene('crowded')
  for (let index = 0; index < 4; index++) await putMap('crowded', `map-${index}`, 400 * 1024)
  const calls: RunInput[] = []
  await crowded.widget('w', (input) => {
    calls.push(input)
    return {}
  })
  expect(await crowded.ended('w')).toMatchObject({ result: 'error' })
  expect(calls).toEqual([])
  const condition = await crowded.condition('w')
  expect(condition).toMatchObject({ status: 'False', reason: 'TooMuchState' })
  expect(condition?.['message']).toMatch(
    /^the function is not called, because .* larger than 1 MiB together: 3 configmaps\.v1 \(1\.2 MiB\) were read .* raise FAIRLEAD_MAX_STATE_MIB$/,
  )
  const armed = crowded.stepsOf('w').find((step) => step.step === 'armed')
  expect((armed?.at.getTime() ?? 0) - Date.now()).toBeGreaterThan(200_000)

  for (let index = 1; index < 4; index++) await putMap('crowded', `map-${index}`, 0, 'deleted')
  await crowded.see(WIDGETS, 'w')
  expect(await crowded.run('w')).toMatchObject({ result: 'success' })
  expect(calls[0]?.related['ConfigMap.v1']).toHaveLength(1)
  expect(await crowded.condition('w')).toMatchObject({ status: 'True' })
  await crowded.stop()
})

it('many runs of more than a page each, with much more than the limits together, all end well', async () => {
  const many = await fixture.scene('many-large', {
    spec: { owns: [PODS], related: [configMaps] },
    dispatcher: { maxStateBytes: 4 * MIB },
  })
  for (let index = 0; index < 6; index++) await putMap('many-large', `map-${index}`, 400 * 1024)
  const names = Array.from({ length: 40 }, (_, index) => `w-${index}`)
  const given: number[] = []
  for (const name of names)
    await many.widget(name, ({ related }) => {
      given.push(related['ConfigMap.v1']?.length ?? 0)
      return {}
    })
  for (const name of names) expect(await many.ended(name)).toMatchObject({ result: 'success' })
  expect(new Set(given)).toEqual(new Set([6]))
  await many.stop()
})

it('a paused object with too much state is still shown as paused', async () => {
  const paused = await scene('crowded-paused')
  for (let index = 0; index < 4; index++) await putMap('crowded-paused', `map-${index}`, 400 * 1024)
  const widget = await paused.widget('w', () => ({}))
  await paused.ended('w')
  await fixture.kube.patch(
    `/apis/test.fairlead.dev/v1/namespaces/crowded-paused/widgets/${widget.metadata.name}`,
    { metadata: { annotations: { 'fairlead.dev/paused': 'true' } } },
    'merge',
  )
  await paused.see(WIDGETS, 'w')
  expect(await paused.run('w')).toMatchObject({ result: 'success' })
  await until(async () => (await paused.condition('w', 'Paused'))?.['status'] === 'True')
  await paused.stop()
})
