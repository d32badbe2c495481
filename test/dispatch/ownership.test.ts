import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject, Outcome, RunInput } from '#contracts'
import { keyOf } from '#events'
import { CONFIG_MAPS, configMap, PODS, pod, startFixture, until, WIDGETS } from './fixture.ts'

const SECRETS = { ...CONFIG_MAPS, resource: 'secrets', kind: 'Secret' } as const
const JOBS = { group: 'batch', version: 'v1', resource: 'jobs', kind: 'Job', strategy: 'Recreate' } as const

let fixture: Awaited<ReturnType<typeof startFixture>>
type Scene = Awaited<ReturnType<typeof fixture.scene>>

beforeAll(async () => {
  fixture = await startFixture()
  for (const ref of [SECRETS, JOBS])
    await fixture.events.setCursor(ref, undefined, { resourceVersion: '1', at: '2030-01-01T00:00:00Z' })
})
afterAll(() => fixture?.[Symbol.asyncDispose]())

const secret = (name: string, value: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name },
  stringData: { value },
})
const job = (name: string, image: string): KubeObject => ({
  apiVersion: 'batch/v1',
  kind: 'Job',
  metadata: { name },
  spec: { template: { spec: { restartPolicy: 'Never', containers: [{ name: 'c', image }] } } },
})

/** A second reconciler for the widgets of `first`. */
const beside = (first: string, name: string, spec: object = {}) =>
  fixture.scene(name, { spec: { for: { ...WIDGETS, namespaces: [first] }, ...spec } })

/** One run of the widget `w` of namespace `first`, and how it ended. */
async function runs(scene: Scene, first: string, behaviour: (input: RunInput) => Outcome) {
  const from = scene.steps.length
  scene.behave('w', behaviour)
  await scene.queue.enqueue(scene.name, keyOf(first, 'w'))
  const ended = () => scene.steps.slice(from).flatMap((step) => (step.step === 'finished' ? [step] : []))[0]
  await until(() => ended() !== undefined)
  return ended()!
}

const namesOf = (objects: KubeObject[] | undefined): string[] => (objects ?? []).map(({ metadata }) => metadata.name)

describe('two reconcilers for one object', () => {
  const owns = [PODS, CONFIG_MAPS, SECRETS, JOBS]

  it('neither see, prune, repair nor recreate what the other one has created', async () => {
    const one = await fixture.scene('one', { spec: { owns } })
    const other = await beside('one', 'other', { owns })
    const all = (letter: string) => [
      pod(`${letter}-pod`),
      configMap(`${letter}-config`, { letter }),
      secret(`${letter}-secret`, letter),
      job(`${letter}-job`, letter),
    ]
    await one.widget('w', () => ({ apply: all('a') }))
    expect((await one.ended('w')).result).toBe('success')
    const before = await Promise.all(owns.map((ref) => one.get(ref, `a-${ref.kind.toLowerCase().replace('map', '')}`)))
    expect(before.map((object) => object?.metadata.uid)).not.toContain(undefined)

    const seen: string[] = []
    const ended = await runs(other, 'one', ({ owned }) => {
      seen.push(...Object.values(owned).flatMap(namesOf))
      return { apply: all('b') }
    })
    expect(ended.result).toBe('success')
    expect((await runs(other, 'one', () => ({ apply: [] }))).result).toBe('success')
    expect((await runs(one, 'one', () => ({ apply: all('a') }))).result).toBe('success')
    const after = await Promise.all(owns.map((ref) => one.get(ref, `a-${ref.kind.toLowerCase().replace('map', '')}`)))
    expect(after).toEqual(before)
    expect(await one.get(CONFIG_MAPS, 'b-config')).toBeUndefined()
    expect(seen.filter((name) => name.startsWith('a-'))).toEqual([])
    await Promise.all([one.stop(), other.stop()])
  })
})
