import { describe, expect, it } from 'vitest'
import type { RunInput } from '#contracts'
import { resourcePath } from '#kube'
import { startHttpReceiver } from '../support/http-receiver.ts'
import { CONFIG_MAPS, configMap, PODS, until, useFixture, WIDGETS } from './fixture.ts'

const MIB = 2 ** 20
const { strategy: _, ...configMaps } = CONFIG_MAPS

const fixture = useFixture()

let version = 1
async function putMap(namespace: string, name: string, bytes: number, verb: 'added' | 'deleted' = 'added') {
  const metadata = { name, namespace, uid: `${namespace}-${name}`, resourceVersion: String(++version) }
  const data = { filler: 'x'.repeat(bytes) }
  await fixture.events.put(configMaps, verb, { apiVersion: 'v1', kind: 'ConfigMap', metadata, data })
}

const spec = { owns: [PODS], related: [configMaps], backoff: { initialSeconds: 0.05, maxSeconds: 600 } }
const dispatcher = { maxStateBytes: MIB }
const scene = (name: string, more: object = {}) => fixture.scene(name, { spec: { ...spec, ...more }, dispatcher })

describe('a function', () => {
  it('is not called with more than the limit, and its object says what was read and what to do', async () => {
    const calls: RunInput[] = []
    await using crowded = await scene('crowded')
    for (let index = 0; index < 4; index++) await putMap(crowded.name, `map-${index}`, 400 * 1024)
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

    for (let index = 1; index < 4; index++) await putMap(crowded.name, `map-${index}`, 0, 'deleted')
    await crowded.see(WIDGETS, 'w')
    expect(await crowded.run('w')).toMatchObject({ result: 'success' })
    expect(calls[0]?.related['ConfigMap.v1']).toHaveLength(1)
    expect(await crowded.condition('w')).toMatchObject({ status: 'True' })
  })

  it('that sets fields of more than 64 objects reads these alone, whatever else there is of their kind', async () => {
    const of = { owns: [], related: [], patches: [configMaps] }
    await using many = await scene('many-patched', of)
    for (let index = 0; index < 4; index++) await putMap(many.name, `other-${index}`, 400 * 1024)
    const names = Array.from({ length: 65 }, (_, index) => `patched-${index}`)
    for (const name of names) {
      const path = resourcePath(configMaps, many.name)
      await fixture.events.put(configMaps, 'added', await fixture.kube.create(path, configMap(name)))
    }
    const patch = names.map((name) => ({
      ...configMap(name),
      metadata: { name, namespace: many.name, labels: { by: 'w' } },
    }))
    await many.widget('w', () => ({ patch }))
    expect(await many.ended('w')).toMatchObject({ result: 'success' })
    expect((await many.get(CONFIG_MAPS, 'patched-64'))?.metadata.labels).toEqual({ by: 'w' })
  })

  it('that returns an object over the limit of the API server is told which, and the others are written', async () => {
    const large = configMap('large', { filler: 'x'.repeat(4 * MIB) })
    await using oversize = await fixture.scene('oversize', { spec: { ...spec, owns: [CONFIG_MAPS], related: [] } })
    await oversize.widget('w', () => ({ apply: [large, configMap('small')] }))
    expect(await oversize.ended('w')).toMatchObject({ result: 'error' })
    expect(await oversize.condition('w')).toMatchObject({
      status: 'False',
      reason: 'TooLarge',
      message: expect.stringContaining('ConfigMap oversize/large'),
    })
    expect((await oversize.get(CONFIG_MAPS, 'small'))?.metadata.name).toBe('small')
  })
})

it('an answer over HTTP of more than 32 MiB is not read, and its object says so until the next one', async () => {
  const name = 'remote-endless'
  let status = { text: 'x'.repeat(33 * MIB) }
  await using server = await startHttpReceiver((_, response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'fairlead-function': name })
    response.end(JSON.stringify({ status }))
  })
  await using endless = await scene(name, { invoke: { http: { url: server.url } } })
  await endless.widget('w', () => ({}))
  expect(await endless.ended('w')).toMatchObject({ result: 'terminal' })
  expect(await endless.condition('w')).toMatchObject({
    status: 'False',
    reason: 'AnswerTooLarge',
    message: expect.stringContaining('larger than 33554432 bytes: return fewer or smaller objects'),
  })
  status = { text: 'short' }
  await endless.see(WIDGETS, 'w')
  expect(await endless.run('w')).toMatchObject({ result: 'success' })
})

it('many runs of more than a page each, with much more than the limits together, all end well', async () => {
  await using many = await fixture.scene('many-large', {
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
})

it('a paused object with too much state is still shown as paused', async () => {
  await using paused = await scene('crowded-paused')
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
})
