import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { resourcePath } from '#kube'
import { finalizerOf, patchManagerOf, patchRecord, patchRecordOf, RECONCILERS, RETAINED_FOR, retainedFor } from '#spec'
import { CONFIG_MAPS, configMap, PODS, pod, SECRETS, secret, silent, until, useFixture, WIDGETS } from './fixture.ts'
import { createdFor } from './objects.ts'

const fixture = useFixture()

/** A dispatcher in dry-run mode, and its log. */
async function dryRunScene(name: string, more: object = {}) {
  const steps: (Record<string, unknown> & { would: string })[] = []
  const log = {
    ...silent,
    info: (fields: object, message: string) => {
      if (message === 'dry run') steps.push(fields as (typeof steps)[number])
    },
  }
  await fixture.listed(SECRETS)
  const owns = [PODS, { ...CONFIG_MAPS, adopt: true }, SECRETS]
  const spec = { dryRun: true, finalize: true, writes: ['Metadata', 'Deletion'], owns, ...more }
  return { steps, scene: await fixture.scene(name, { spec, dispatcher: { log } }) }
}

describe('a reconciler in dry-run mode', () => {
  it('says what it would do, after defaults and admission, and does nothing; its timers go on', async () => {
    const { steps, scene } = await dryRunScene('dry', { external: {} })
    const asked = new Set<string>()
    scene.behaveOutside(({ ask }) => asked.add(ask) && null)
    let calls = 0
    const widget = await scene.widget('w', () => {
      calls++
      return {
        apply: [pod('w-pod'), configMap('w-config', { a: '1' })],
        metadata: { labels: { a: '1' } },
        status: { phase: 'RUNNING' },
        effect: { kind: 'set', address: 'a' },
        events: [{ type: 'Normal', reason: 'Started', message: 'it runs' }],
        requeueAfterSeconds: 0.1,
      }
    })
    expect((await scene.ended('w')).result).toBe('requeue_after')
    const rounds = calls
    const inShort = steps.map(({ would, kind, reason, effect }) => `${would} ${kind ?? reason ?? effect}`)
    expect(new Set(inShort)).toEqual(
      new Set([
        'change Widget',
        'create ConfigMap',
        'create Pod',
        'perform {"kind":"set","address":"a"}',
        'tell Started',
      ]),
    )
    expect(asked).toEqual(new Set(['read']))
    expect(steps.find(({ kind }) => kind === 'Pod')?.['differences']).toContainEqual({
      path: '.spec.terminationGracePeriodSeconds',
      after: 30,
    })
    const ofWidget = steps.filter(({ kind }) => kind === 'Widget').flatMap(({ differences }) => differences)
    for (const change of [
      { path: '.metadata.labels.a', after: '1' },
      { path: '.status.phase', after: 'RUNNING' },
    ])
      expect(ofWidget).toContainEqual(change)
    await until(() => calls > rounds)
    expect(await scene.get(WIDGETS, 'w')).toEqual(widget)
    expect([await scene.get(PODS, 'w-pod'), await scene.get(CONFIG_MAPS, 'w-config')]).toEqual([undefined, undefined])
    expect(await scene.reported('w')).toEqual([])
    expect(scene.writes('w')).toEqual([])
    await scene.stop()
  })

  it('shows changes and deletions against the cluster, failures too, and no value of a Secret', async () => {
    const { steps, scene } = await dryRunScene('dry-changes')
    const path = resourcePath(CONFIG_MAPS, scene.name)
    await scene.widget('w', () => ({}))
    await scene.ended('w')
    const widget = (await scene.get(WIDGETS, 'w'))!
    for (const name of ['kept', 'pruned']) {
      await fixture.kube.create(path, createdFor(widget, scene.name, configMap(name, { a: 'old' })))
      await scene.see(CONFIG_MAPS, name, { resource: 'widgets', name: 'w' })
    }
    await fixture.kube.patch(`${path}/kept`, { data: { a: 'newer than known' } }, 'merge')
    steps.length = 0
    const wanted = secret('s', { password: 'hunter2' })
    scene.behave('w', ({ finalizing }) =>
      finalizing ? {} : { apply: [configMap('kept', { a: 'new' }), wanted], deleteObject: true },
    )
    await scene.run('w')
    expect(steps.find(({ name }) => name === 'kept')).toMatchObject({
      would: 'change',
      differences: expect.arrayContaining([{ path: '.data.a', before: 'newer than known', after: 'new' }]),
    })
    expect(steps.find(({ name }) => name === 'pruned')).toMatchObject({ would: 'delete', kind: 'ConfigMap' })
    expect(steps.find(({ kind }) => kind === 'Secret')).toMatchObject({ would: 'create' })
    expect(steps.find(({ kind, would }) => kind === 'Widget' && would === 'delete')).toBeDefined()
    expect(JSON.stringify(steps)).not.toMatch(/hunter2|aHVudGVyMg/)

    const { apiVersion, kind, metadata } = wanted
    const stored = { apiVersion, kind, metadata, data: { password: btoa('hunter2') } }
    await fixture.kube.create(resourcePath(SECRETS, scene.name), createdFor(widget, scene.name, stored))
    await scene.see(SECRETS, 's', { resource: 'widgets', name: 'w' })
    steps.length = 0
    scene.behave('w', ({ owned }) => ({ apply: [stored, ...owned['ConfigMap.v1']!] }))
    await scene.run('w')
    expect(steps.filter(({ kind }) => kind === 'Secret')).toEqual([])

    steps.length = 0
    scene.behave('w', () => ({ apply: [{ ...pod('bad'), spec: { containers: [] } }] }))
    expect((await scene.run('w')).result).toBe('error')
    expect(steps.find(({ reason }) => reason === 'Invalid')).toMatchObject({ would: 'tell', type: 'Warning' })
    expect(await scene.condition('w')).toBeUndefined()
    await scene.stop()
  })
})

describe('a dry run', () => {
  it('shows the fields of others that would be set and given back, and touches neither them nor the record', async () => {
    const patches = [CONFIG_MAPS, SECRETS]
    const { steps, scene } = await dryRunScene('dry-patches', { owns: [], patches })
    const { name: namespace } = scene
    const widget = await scene.widget('w', () => ({}))
    await scene.ended('w')
    const manager = patchManagerOf(namespace, widget)
    for (const [name, data] of [
      ['theirs', { a: 'theirs' }],
      ['given', { b: 'ours' }],
    ] as const) {
      const path = resourcePath(CONFIG_MAPS, namespace, name)
      const map = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace }, data }
      await fixture.kube.apply(path, map, { fieldManager: name === 'given' ? manager : 'theirs' })
      await scene.see(CONFIG_MAPS, name)
    }
    await fixture.kube.create(resourcePath(SECRETS, namespace), secret('s', {}))
    await scene.see(SECRETS, 's')
    const annotation = patchRecordOf(namespace)
    const given = {
      group: '',
      version: 'v1',
      resource: 'configmaps',
      kind: 'ConfigMap',
      namespace,
      name: 'given',
      paths: '',
    }
    const annotations = { [annotation]: patchRecord(widget, [given]) }
    const finalizers = [finalizerOf(namespace)]
    const path = resourcePath(WIDGETS, namespace, 'w')
    const recorded = await fixture.kube.patch<KubeObject>(path, { metadata: { annotations, finalizers } }, 'merge')
    await scene.see(WIDGETS, 'w')
    const before = await Promise.all(['theirs', 'given'].map((one) => scene.get(CONFIG_MAPS, one)))
    const fields = (kind: string, name: string, data: object) => ({
      apiVersion: 'v1',
      kind,
      metadata: { name, namespace },
      data,
    })
    for (const [patch, shown] of [
      [[], ['change given .data']],
      [
        [fields('ConfigMap', 'theirs', { c: 'ours' }), fields('Secret', 's', { password: 'aHVudGVyMg==' })],
        ['change theirs .data.c', 'change s .data'],
      ],
    ] as const) {
      steps.length = 0
      scene.behave('w', () => ({ patch: [...patch] }))
      expect(await scene.run('w')).toMatchObject({ result: 'success' })
      const changes = steps.flatMap(({ would, name, differences }) =>
        ((differences as { path: string }[] | undefined) ?? []).map((one) => `${would} ${String(name)} ${one.path}`),
      )
      for (const one of shown)
        expect(
          changes.some((change) => change.startsWith(one)),
          `${one} in ${changes}`,
        ).toBe(true)
    }
    expect(JSON.stringify(steps)).not.toMatch(/aHVudGVyMg|hunter2/)
    expect(await Promise.all(['theirs', 'given'].map((one) => scene.get(CONFIG_MAPS, one)))).toEqual(before)
    expect(await scene.get(WIDGETS, 'w')).toEqual(recorded)
    expect(scene.writes('w')).toEqual([])
    await scene.stop()
  })

  it('shows what would be adopted, and what would begin to be retained, be retained from the start, and be given up', async () => {
    const { steps, scene } = await dryRunScene('dry-retained')
    const path = resourcePath(CONFIG_MAPS, scene.name)
    await scene.widget('w', () => ({}))
    await scene.ended('w')
    const widget = (await scene.get(WIDGETS, 'w'))!
    const mine = (name: string) => createdFor(widget, scene.name, configMap(name))
    const { metadata, ...content } = mine('given-up')
    const annotations = { ...metadata.annotations, [RETAINED_FOR]: retainedFor(widget) }
    const before = [
      mine('owned'),
      { ...content, metadata: { ...metadata, annotations, ownerReferences: [] } },
      { ...configMap('free'), metadata: { name: 'free', namespace: scene.name } },
    ]
    for (const object of before) {
      await fixture.kube.create(path, object)
      const owner = object.metadata.name === 'free' ? undefined : { resource: 'widgets', name: 'w' }
      await scene.see(CONFIG_MAPS, object.metadata.name, owner)
    }
    const present = () => Promise.all(before.map((object) => scene.get(CONFIG_MAPS, object.metadata.name)))
    const untouched = await present()
    steps.length = 0
    scene.behave('w', () => ({
      apply: [configMap('free'), ...['owned', 'new'].map((name) => ({ ...configMap(name), retain: true }))],
    }))
    expect(await scene.run('w')).toMatchObject({ result: 'success' })
    const shown = steps.map(({ would, kind, name, retained }) => ({ would, kind, name, retained }))
    expect(shown).toEqual(
      expect.arrayContaining([
        { would: 'change', kind: 'ConfigMap', name: 'free', retained: undefined },
        { would: 'change', kind: 'ConfigMap', name: 'owned', retained: true },
        { would: 'create', kind: 'ConfigMap', name: 'new', retained: true },
        { would: 'delete', kind: 'ConfigMap', name: 'given-up', retained: true },
      ]),
    )
    expect(steps.filter(({ would }) => would === 'tell').map(({ reason }) => reason)).toEqual(['Adopted', 'Pruned'])
    expect(await present()).toEqual(untouched)
    await scene.stop()
  })
})

describe('a reconciler that is paused', () => {
  it('runs nothing; keys wait, and run when it goes on', async () => {
    await using scene = await fixture.scene('held')
    const change = async (paused: boolean, version: string) => {
      const changed = scene.reconciler({ paused })
      changed.metadata.resourceVersion = version
      await fixture.events.put(RECONCILERS, 'modified', changed)
    }
    let calls = 0
    await scene.widget('w', () => {
      calls++
      return calls === 1 ? { requeueAfterSeconds: 5 } : {}
    })
    await scene.ended('w')
    await change(true, '2')
    await until(() => scene.dispatcher.serving().length === 0)
    await until(async () => (await scene.queue.depth('held')).queued === 1)
    expect(calls).toBe(1)
    await change(false, '3')
    await until(() => calls === 2)
  })
})
