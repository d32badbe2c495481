import { beforeAll, describe, expect, it } from 'vitest'
import { type AppliedObject, type KubeObject, type ResourceRef } from '#contracts'
import { resourcePath } from '#kube'
import { RETAINED_FOR, retainedFor } from '#spec'
import {
  CONFIG_MAPS,
  configMap,
  PODS,
  pod,
  type Scene,
  SECRETS,
  secret,
  until,
  useFixture,
  WIDGETS,
} from './fixture.ts'

const fixture = useFixture()

beforeAll(async () => {
  await fixture.listed(SECRETS)
})

const owns = [PODS, CONFIG_MAPS, SECRETS]
const retain = (object: KubeObject): AppliedObject => ({ ...object, retain: true })
const pathOf = (ref: ResourceRef, scene: Scene, name: string) => resourcePath(ref, scene.name, name)

/** Returns the metadata that identify the owner. */
async function belonging(scene: Scene, ref: ResourceRef, name: string) {
  const { annotations, ownerReferences } = (await scene.get(ref, name))?.metadata ?? {}
  return { retainedFor: annotations?.[RETAINED_FOR], owners: ownerReferences?.map(({ uid }) => uid) }
}

async function told(scene: Scene, name: string, reason: string): Promise<unknown[]> {
  await until(async () => (await scene.reported(name)).some((event) => event['reason'] === reason))
  return (await scene.reported(name)).filter((event) => event['reason'] === reason).map(({ note }) => note)
}

/** Deletes the widget, and makes another one of its name. */
async function replaceWidget(scene: Scene, name: string): Promise<KubeObject> {
  await fixture.kube.delete(pathOf(WIDGETS, scene, name))
  const widget = { apiVersion: 'test.fairlead.dev/v1', kind: 'Widget', metadata: { name }, spec: {} }
  const created = await fixture.kube.create<KubeObject>(resourcePath(WIDGETS, scene.name), widget)
  await fixture.events.put(WIDGETS, 'modified', created)
  return created
}

describe('a retained object', () => {
  it('of each kind is the function’s without an owner reference: seen, left alone, repaired and pruned', async () => {
    await using scene = await fixture.scene('retain-kinds', { spec: { owns } })
    const seen: string[] = []
    const all = [pod('p'), configMap('c', { a: '1' }), secret('s', { key: 'value' })].map(retain)
    const widget = await scene.widget('w', ({ owned }) => {
      seen.push(
        Object.values(owned)
          .flat()
          .map(({ metadata }) => metadata.name)
          .join(' '),
      )
      return { apply: all }
    })
    expect((await scene.ended('w')).result).toBe('success')
    for (const [ref, name] of [
      [PODS, 'p'],
      [CONFIG_MAPS, 'c'],
      [SECRETS, 's'],
    ] as const)
      expect(await belonging(scene, ref, name)).toEqual({ retainedFor: retainedFor(widget), owners: undefined })
    expect(await scene.requestsDuring(() => scene.run('w'))).toEqual([])
    expect(seen.at(-1)).toBe('p c s')

    await fixture.kube.patch(pathOf(CONFIG_MAPS, scene, 'c'), { data: { a: '2' } }, 'merge')
    await scene.see(CONFIG_MAPS, 'c', { resource: 'widgets', name: 'w' })
    await scene.run('w')
    expect(await scene.get(CONFIG_MAPS, 'c')).toMatchObject({ data: { a: '1' } })

    scene.behave('w', () => ({ apply: [] }))
    expect((await scene.run('w')).result).toBe('success')
    expect(await Promise.all([scene.get(CONFIG_MAPS, 'c'), scene.get(SECRETS, 's')])).toEqual([undefined, undefined])
    await until(async () => (await told(scene, 'w', 'Pruned')).length === 3)
  })

  it('is nothing of the next owner of that name, until its function returns it: then it is taken over, with an Event', async () => {
    await using scene = await fixture.scene('retain-again')
    let seen: string[] = []
    await scene.widget('w', () => ({ apply: [retain(configMap('c', { a: '1' })), retain(pod('p'))] }))
    await scene.ended('w')
    const before = await scene.get(CONFIG_MAPS, 'c')
    const next = await replaceWidget(scene, 'w')
    scene.behave('w', ({ owned }) => {
      seen = Object.values(owned)
        .flat()
        .map(({ metadata }) => metadata.name)
      return { apply: [] }
    })
    expect((await scene.run('w')).result).toBe('success')
    expect(seen).toEqual([])
    expect(await scene.get(CONFIG_MAPS, 'c')).toEqual(before)

    scene.behave('w', ({ owned }) => {
      seen = Object.values(owned)
        .flat()
        .map(({ metadata }) => metadata.name)
      return { apply: [retain(configMap('c', { a: '2' }))] }
    })
    expect((await scene.run('w')).result).toBe('success')
    expect(seen).toEqual(['c'])
    expect(await belonging(scene, CONFIG_MAPS, 'c')).toEqual({ retainedFor: retainedFor(next), owners: undefined })
    expect(await scene.get(CONFIG_MAPS, 'c')).toMatchObject({
      metadata: { uid: before?.metadata.uid },
      data: { a: '2' },
    })
    expect(await told(scene, 'w', 'Adopted')).toEqual([
      'ConfigMap retain-again/c was retained for an earlier Widget of this name, and is retained for this Widget now',
    ])

    scene.behave('w', () => ({ apply: [retain(configMap('c', { a: '2' })), retain(pod('p'))] }))
    expect((await scene.run('w')).message).toContain(
      'Pod retain-again/p exists, but was retained for an earlier Widget of this name: have the function give what it makes another name, or own the kind with strategy Apply',
    )
  })
})

describe('an owned object', () => {
  it('begins and ceases to be retained in one write, whoever has written its owner reference', async () => {
    await using scene = await fixture.scene('retain-switch')
    const widget = await scene.widget('w', () => ({ apply: [configMap('c', { a: '1' })] }))
    await scene.ended('w')
    const { ownerReferences } = (await scene.get(CONFIG_MAPS, 'c'))!.metadata
    const apply = { ...configMap('c'), metadata: { name: 'c', ownerReferences } }
    await fixture.kube.apply(pathOf(CONFIG_MAPS, scene, 'c'), apply, { fieldManager: 'another', force: true })
    await scene.see(CONFIG_MAPS, 'c', { resource: 'widgets', name: 'w' })

    const owned = { retainedFor: undefined, owners: [widget.metadata.uid] }
    const retained = { retainedFor: retainedFor(widget), owners: undefined }
    for (const [isRetained, expected] of [
      [true, retained],
      [false, owned],
      [true, retained],
    ] as const) {
      scene.behave('w', () => ({ apply: [{ ...configMap('c', { a: '1' }), retain: isRetained }] }))
      const requests = await scene.requestsDuring(() => scene.run('w'))
      expect(await belonging(scene, CONFIG_MAPS, 'c')).toEqual(expected)
      expect(requests).toEqual(['PATCH configmaps/c 200', 'PATCH configmaps/c 200'])
      expect(await scene.requestsDuring(() => scene.run('w'))).toEqual([])
    }
    expect(scene.writes('w').slice(-2)).toEqual(['patch ConfigMap c', 'apply ConfigMap c'])
  })

  it('that is deleted just before it begins to be retained is created again, retained', async () => {
    await using scene = await fixture.scene('retain-raced')
    const widget = await scene.widget('w', () => ({ apply: [configMap('c')] }))
    await scene.ended('w')
    let isFirst = true
    scene.behave('w', async () => {
      if (isFirst) await fixture.kube.delete(pathOf(CONFIG_MAPS, scene, 'c'))
      isFirst = false
      return { apply: [retain(configMap('c'))] }
    })
    expect((await scene.run('w')).result).toBe('success')
    expect(await belonging(scene, CONFIG_MAPS, 'c')).toEqual({ retainedFor: retainedFor(widget), owners: undefined })
  })
})
