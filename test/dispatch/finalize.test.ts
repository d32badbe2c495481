import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { resourcePath } from '#kube'
import { finalizerOf } from '#spec'
import { CONFIG_MAPS, configMap, until, useFixture, WIDGETS } from './fixture.ts'

const fixture = useFixture()
const scene = fixture.useScene('finalize', { spec: { finalize: true } })
const FINALIZER = finalizerOf('finalize')

const pathOf = (name: string) => resourcePath(WIDGETS, scene.name, name)
const finalizers = async (name: string) => (await scene.get(WIDGETS, name))?.metadata.finalizers

/** Deletes it, and lets the store see that. */
async function remove(name: string): Promise<void> {
  await fixture.kube.delete(pathOf(name))
  await scene.see(WIDGETS, name)
}

describe('a finalizer', () => {
  it('is there before the function is called for the first time, and costs one request in an object’s life', async () => {
    let seen: unknown
    const requests = await scene.requestsDuring(async () => {
      await scene.widget('added', ({ object, finalizing }) => {
        seen ??= [object?.metadata.finalizers, finalizing]
        return { status: { phase: 'DONE' } }
      })
      await scene.ended('added')
      await scene.run('added')
    })
    expect(seen).toEqual([[FINALIZER], false])
    expect(requests.slice(1)).toEqual(['PATCH widgets/added 200', 'PATCH widgets/added/status 200'])
  })

  it('holds the object until the function has nothing left to do', async () => {
    const seen: boolean[] = []
    await scene.widget('held', ({ finalizing }) => {
      seen.push(finalizing)
      return { apply: [configMap('held-config')] }
    })
    await scene.ended('held')
    await remove('held')
    scene.behave('held', () => ({ apply: [], status: { phase: 'CLEANING' }, requeueAfterSeconds: 3600 }))
    expect((await scene.run('held')).result).toBe('requeue_after')
    expect(await scene.get(CONFIG_MAPS, 'held-config')).toBeUndefined()
    expect(await scene.get(WIDGETS, 'held')).toMatchObject({ status: { phase: 'CLEANING' } })

    scene.behave('held', ({ finalizing }) => {
      seen.push(finalizing)
      return {}
    })
    expect((await scene.run('held')).result).toBe('success')
    expect(await scene.get(WIDGETS, 'held')).toBeUndefined()
    expect([seen.slice(0, -1).includes(true), seen.at(-1)]).toEqual([false, true])
    const calls = seen.length
    expect((await scene.run('held')).result).toBe('success')
    expect(seen).toHaveLength(calls)
  })

  it('is never added to an object that is being deleted, also when nobody knew that yet', async () => {
    const other = 'test.fairlead.dev/other'
    let calls = 0
    const count = () => {
      calls++
      return {}
    }
    await scene.queue.declare('finalize')
    const widget = {
      apiVersion: 'test.fairlead.dev/v1',
      kind: 'Widget',
      metadata: { name: 'late', namespace: scene.name, finalizers: [other] },
      spec: {},
    }
    const created = await fixture.kube.create(resourcePath(WIDGETS, scene.name), widget)
    await fixture.events.put(WIDGETS, 'added', created)
    await fixture.kube.delete(pathOf('late'))
    scene.behave('late', count)
    expect((await scene.run('late')).result).toBe('success')
    expect(await finalizers('late')).toEqual([other])
    expect(calls).toBe(0)
  })

  it('leaves those of others where they are', async () => {
    const other = 'test.fairlead.dev/other'
    await scene.widget('shared', () => ({}))
    await scene.ended('shared')
    await fixture.kube.patch(pathOf('shared'), { metadata: { finalizers: [other, FINALIZER] } }, 'merge')
    await remove('shared')
    expect((await scene.run('shared')).result).toBe('success')
    expect(await finalizers('shared')).toEqual([other])
  })

  it('is taken back by a reconciler that does not finalize any more, without asking the function', async () => {
    await using former = await fixture.scene('former')
    let calls = 0
    await former.widget('left', () => {
      calls++
      return {}
    })
    await former.ended('left')
    const path = resourcePath(WIDGETS, 'former', 'left')
    await fixture.kube.patch(path, { metadata: { finalizers: [finalizerOf('former')] } }, 'merge')
    await fixture.kube.delete(path)
    await former.see(WIDGETS, 'left')
    await former.run('left')
    expect([await former.get(WIDGETS, 'left'), calls]).toEqual([undefined, 1])
  })
})

describe('an object that leaves the selection', () => {
  const label = async (name: string, tier: string) => {
    await fixture.kube.patch(resourcePath(WIDGETS, 'chosen', name), { metadata: { labels: { tier } } }, 'merge')
  }
  let chosen: typeof scene

  beforeAll(async () => {
    const selected = { ...WIDGETS, namespaces: ['chosen'], selector: 'tier!=none' }
    chosen = await fixture.scene('chosen', { spec: { for: selected, finalize: true } })
  })
  afterAll(() => chosen?.stop())

  it('gets its finalizer taken back, and keeps all that it has, without asking the function', async () => {
    let calls = 0
    await chosen.widget('leaves', () => {
      calls++
      return { apply: [configMap('leaves-config')] }
    })
    await chosen.ended('leaves')
    await label('leaves', 'none')
    await chosen.see(WIDGETS, 'leaves')
    const before = calls
    expect(await chosen.requestsDuring(() => chosen.run('leaves'))).toEqual(['PATCH widgets/leaves 200'])
    expect((await chosen.get(WIDGETS, 'leaves'))?.metadata.finalizers).toBeUndefined()
    expect(await chosen.get(CONFIG_MAPS, 'leaves-config')).toBeDefined()
    expect(await chosen.requestsDuring(() => chosen.run('leaves'))).toEqual([])
    expect(calls).toBe(before)
  })
})

describe('a paused object', () => {
  const annotate = async (name: string, value: string | null) => {
    await fixture.kube.patch(pathOf(name), { metadata: { annotations: { 'fairlead.dev/paused': value } } }, 'merge')
    await scene.see(WIDGETS, name)
  }

  it('is not written, only its status says so; runs and timers come as before; resumed, all is made good', async () => {
    let calls = 0
    await scene.widget('paused', () => {
      calls++
      return { status: { phase: 'RUNNING' }, requeueAfterSeconds: 0.1 }
    })
    await until(() => calls > 2)
    await annotate('paused', 'true')
    // A run that has begun before does not know of it.
    const paused = { status: 'True', reason: 'PausedByAnnotation' }
    await until(async () => expect(await scene.condition('paused', 'Paused')).toMatchObject(paused))
    scene.behave('paused', () => {
      calls = 0
      return { apply: [configMap('paused-config')], status: { phase: 'DONE' } }
    })
    const before = calls
    expect(await scene.requestsDuring(() => scene.run('paused'))).toEqual([])
    await remove('paused')
    await scene.run('paused')
    expect([await scene.get(CONFIG_MAPS, 'paused-config'), calls]).toEqual([undefined, before])
    expect(await finalizers('paused')).toEqual([FINALIZER])

    await annotate('paused', null)
    await scene.run('paused')
    expect(await scene.get(WIDGETS, 'paused')).toBeUndefined()
  })
})
