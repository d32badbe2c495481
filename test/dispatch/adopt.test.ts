import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { resourcePath } from '#kube'
import { RECONCILER_ANNOTATION } from '#reconcile'
import { CONFIG_MAPS, configMap, PODS, startFixture, until, WIDGETS } from './fixture.ts'

let fixture: Awaited<ReturnType<typeof startFixture>>
type Scene = Awaited<ReturnType<typeof fixture.scene>>

beforeAll(async () => {
  fixture = await startFixture()
})
afterAll(() => fixture?.[Symbol.asyncDispose]())

const owns = [PODS, { ...CONFIG_MAPS, adopt: true }]

/** Creates a ConfigMap as another client, which the bridge has seen. */
async function theirs(scene: Scene, name: string, more: object = {}): Promise<KubeObject> {
  const object = { ...configMap(name, { theirs: 'yes' }), ...more }
  const created = await fixture.kube.create<KubeObject>(resourcePath(CONFIG_MAPS, scene.name), object, {
    fieldManager: 'kubectl-create',
  })
  await scene.see(CONFIG_MAPS, name)
  return created
}

const adoptedOf = async (scene: Scene, name: string) => {
  await until(async () => (await scene.reported(name)).some(({ reason }) => reason === 'Adopted'))
  return (await scene.reported(name)).filter(({ reason }) => reason === 'Adopted').map(({ note }) => note)
}

describe('an object without a controller, where the declaration says "adopt"', () => {
  it('is taken over in one write, with an Event, and then repaired and pruned as any other', async () => {
    const scene = await fixture.scene('adopt-free', { spec: { owns } })
    const before = await theirs(scene, 'c')
    const requests = await scene.requestsDuring(async () => {
      await scene.widget('w', () => ({ apply: [configMap('c', { ours: 'yes' })] }))
      expect((await scene.ended('w')).result).toBe('success')
    })
    expect(requests.filter((request) => request.includes('configmaps'))).toEqual([
      'PATCH configmaps/c 409',
      'GET configmaps/c 200',
      'PATCH configmaps/c 200',
    ])
    const widget = (await scene.get(WIDGETS, 'w'))!
    const after = await scene.get(CONFIG_MAPS, 'c')
    expect(after).toMatchObject({
      metadata: {
        uid: before.metadata.uid,
        annotations: { [RECONCILER_ANNOTATION]: expect.stringMatching(/^adopt-free\//) },
        ownerReferences: [{ uid: widget.metadata.uid, controller: true }],
      },
      data: { theirs: 'yes', ours: 'yes' },
    })
    expect(await adoptedOf(scene, 'w')).toEqual([
      'ConfigMap adopt-free/c had no controller, and is controlled by this Widget now',
    ])
    scene.behave('w', () => ({ apply: [] }))
    expect((await scene.run('w')).result).toBe('success')
    expect(await scene.get(CONFIG_MAPS, 'c')).toBeUndefined()
    await scene.stop()
  })

  it('stays as it is if what the function wants of it is refused', async () => {
    const scene = await fixture.scene('adopt-refused', { spec: { owns } })
    const before = await theirs(scene, 'c', { immutable: true })
    await scene.widget('w', () => ({ apply: [configMap('c', { theirs: 'no' })] }))
    expect(await scene.ended('w')).toMatchObject({ result: 'error', message: expect.stringContaining('immutable') })
    expect(await scene.get(CONFIG_MAPS, 'c')).toEqual(before)
    await scene.stop()
  })

  it('that somebody changes during the run is taken over with that change', async () => {
    const scene = await fixture.scene('adopt-raced', { spec: { owns } })
    await theirs(scene, 'c')
    let isFirst = true
    const behaviour = async () => {
      if (isFirst) {
        isFirst = false
        await fixture.kube.patch(resourcePath(CONFIG_MAPS, 'adopt-raced', 'c'), { data: { late: 'yes' } }, 'merge')
      }
      return { apply: [configMap('c', { ours: 'yes' })] }
    }
    await scene.widget('w', behaviour)
    expect((await scene.ended('w')).result).toBe('success')
    expect(await scene.get(CONFIG_MAPS, 'c')).toMatchObject({ data: { theirs: 'yes', late: 'yes', ours: 'yes' } })
    await scene.stop()
  })
})
