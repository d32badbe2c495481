import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Invoke, Outcome } from '#contracts'
import { createDispatcher, type RunStep } from '#dispatch'
import { keyOf } from '#events'
import { resourcePath } from '#kube'
import { openQueue } from '#queue'
import { CONFIG_MAPS, configMap, silent, startFixture, until, WIDGETS } from './fixture.ts'

let fixture: Awaited<ReturnType<typeof startFixture>>
let scene: Awaited<ReturnType<typeof fixture.scene>>
/** The dispatcher's clock, while it stands still: epoch milliseconds. */
let stopped: number | undefined

beforeAll(async () => {
  fixture = await startFixture()
  scene = await fixture.scene('fights', { dispatcher: { now: () => new Date(stopped ?? Date.now()) } })
})
afterAll(async () => {
  await scene?.stop()
  await fixture?.[Symbol.asyncDispose]()
})

const declared =
  (name: string, value = 'ours') =>
  (): Outcome => ({ apply: [configMap(name, { value, other: 'o' })] })
const valueOf = async (name: string) =>
  ((await scene.get(CONFIG_MAPS, name)) as { data?: { value: string } } | undefined)?.data?.value

/** Another manager changes what the function declares, and the store sees it. */
async function change(name: string, value: string, fieldManager = 'rival "1"'): Promise<void> {
  await fixture.kube.patch(resourcePath(CONFIG_MAPS, 'fights', name), { data: { value } }, 'merge', { fieldManager })
  await scene.see(CONFIG_MAPS, name, { resource: WIDGETS.resource, name })
}

const takenBack = (steps: readonly RunStep[], name: string) =>
  steps.filter((step) => step.step === 'takenBack' && step.key === keyOf('fights', name))

describe('two controllers that set one field', () => {
  it('cost nothing where nobody fights, and a correction costs the requests that it did before', async () => {
    await scene.widget('calm', declared('calm'))
    await scene.ended('calm')
    expect(await scene.requestsDuring(() => scene.run('calm'))).toEqual([])
    await change('calm', 'theirs')
    expect(await scene.requestsDuring(() => scene.run('calm'))).toEqual([
      'PATCH configmaps/calm 409',
      'PATCH configmaps/calm 200',
    ])
    expect(takenBack(scene.steps, 'calm')).toMatchObject([{ isContested: false }])
    expect(await scene.requestsDuring(() => scene.run('calm'))).toEqual([])
    expect(await scene.condition('calm', 'Contested')).toBeUndefined()
  })

  it('are named on the object; the correction waits in the queue, an edit does not, and the end clears it', async () => {
    const start = Date.now()
    stopped = start
    await scene.widget('fought', declared('fought'))
    await scene.ended('fought')
    for (let turn = 0; turn < 5; turn++) {
      await change('fought', `theirs ${turn}`)
      await scene.run('fought')
      expect(await valueOf('fought')).toBe('ours')
    }
    expect(takenBack(scene.steps, 'fought').map((step) => 'isContested' in step && step.isContested)).toEqual([
      false,
      false,
      false,
      false,
      true,
    ])
    expect(await scene.condition('fought', 'Contested')).toMatchObject({
      status: 'True',
      reason: 'FieldConflict',
      message: expect.stringContaining('ConfigMap fights/fought: "rival \\"1\\"" has changed .data.value 5 times in '),
    })

    await change('fought', 'theirs 5')
    const from = scene.steps.length
    expect((await scene.run('fought')).result).toBe('requeue_after')
    stopped = undefined
    // Only its timer queues the key again.
    await until(async () => (await valueOf('fought')) === 'ours')
    expect(takenBack(scene.steps.slice(from), 'fought').length).toBeLessThanOrEqual(1)

    stopped = start + 1000
    await change('fought', 'theirs 6')
    const held = await scene.requestsDuring(() => scene.run('fought'))
    expect(held, 'not even asked for').toEqual([])
    expect(await valueOf('fought')).toBe('theirs 6')
    scene.behave('fought', declared('fought', 'edited'))
    await scene.run('fought')
    expect(await valueOf('fought')).toBe('edited')

    stopped = Date.now() + 11 * 60_000
    await scene.run('fought')
    expect(await scene.condition('fought', 'Contested')).toMatchObject({ status: 'False', reason: 'Settled' })
    const last = await scene.run('fought')
    expect(last.result).toBe('success')
    stopped = undefined
  })

  it('are counted together by three processes that take the key in turn', async () => {
    const steps: RunStep[] = []
    const abort = new AbortController()
    const invoke: Invoke = async () => declared('shared')()
    scene.behave('shared', declared('shared'))
    const others: Promise<void>[] = []
    for (const instance of ['second', 'third']) {
      const queue = await openQueue(fixture.js, { prefix: 'fights', log: silent })
      const { kube, events } = fixture
      const functions = new Map([['fights', invoke]])
      const observer = (step: RunStep) => void steps.push(step)
      const dispatcher = createDispatcher({ kube, events, queue, functions, instance, log: silent, observer })
      others.push(dispatcher.run(abort.signal, 2000))
      await until(() => dispatcher.serving().includes('fights'))
    }
    await scene.widget('shared', declared('shared'))
    await until(async () => (await scene.get(CONFIG_MAPS, 'shared')) !== undefined)
    const all = () => takenBack([...scene.steps, ...steps], 'shared').length
    for (let turn = 0; turn < 5; turn++) {
      await until(async () => (await scene.queue.depth('fights')).running === 0)
      await change('shared', `theirs ${turn}`)
      await scene.enqueue('shared')
      await until(() => all() === turn + 1)
    }
    await until(async () => (await scene.condition('shared', 'Contested'))?.['status'] === 'True')
    abort.abort()
    await Promise.all(others)
  })
})
