import { beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject, Outcome, RunInput } from '#contracts'
import { keyOf } from '#events'
import { resourcePath } from '#kube'
import { RECONCILER_ANNOTATION } from '#reconcile'
import { RECONCILERS } from '#spec'
import { DESIRED_ANNOTATION } from '../../reconcile/desired.ts'
import {
  CONFIG_MAPS,
  configMap,
  JOBS,
  PODS,
  pod,
  type Scene,
  SECRETS,
  secret,
  until,
  useFixture,
  WIDGETS,
} from './fixture.ts'
import { createdFor, ownedByWidget } from './objects.ts'

const fixture = useFixture()

beforeAll(async () => {
  for (const ref of [SECRETS, JOBS]) await fixture.listed(ref)
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
    await using one = await fixture.scene('mark-one', { spec: { owns } })
    await using other = await beside('mark-one', 'mark-other', { owns })
    const all = (letter: string) => [
      pod(`${letter}-pod`),
      configMap(`${letter}-config`, { letter }),
      secret(`${letter}-secret`, { letter }),
      job(`${letter}-job`, letter),
    ]
    await one.widget('w', () => ({ apply: all('a') }))
    expect((await one.ended('w')).result).toBe('success')
    const before = await Promise.all(owns.map((ref) => one.get(ref, `a-${ref.kind.toLowerCase().replace('map', '')}`)))
    expect(before.map((object) => object?.metadata.uid)).not.toContain(undefined)

    const seen: string[] = []
    const ended = await runs(other, 'mark-one', ({ owned }) => {
      seen.push(...Object.values(owned).flatMap(namesOf))
      return { apply: all('b') }
    })
    expect(ended.result).toBe('success')
    expect((await runs(other, 'mark-one', () => ({ apply: [] }))).result).toBe('success')
    expect((await runs(one, 'mark-one', () => ({ apply: all('a') }))).result).toBe('success')
    const after = await Promise.all(owns.map((ref) => one.get(ref, `a-${ref.kind.toLowerCase().replace('map', '')}`)))
    expect(after).toEqual(before)
    expect(await one.get(CONFIG_MAPS, 'b-config')).toBeUndefined()
    expect(seen.filter((name) => name.startsWith('a-'))).toEqual([])
  })

  it('both want one name: the second one says whose it is and how to hand it over', async () => {
    await using one = await fixture.scene('mark-named', { spec: { owns } })
    await using other = await beside('mark-named', 'mark-second', { owns })
    await one.widget('w', () => ({ apply: [configMap('shared', { by: 'mark-one' })] }))
    await one.ended('w')
    const wanting = () => ({ apply: [configMap('shared', { by: 'mark-other' })] })
    const { result, message = '' } = await runs(other, 'mark-named', wanting)
    expect(result).toBe('error')
    expect(message).toMatch(
      /^ConfigMap mark-named\/shared exists, but Reconciler mark-named created it for this Widget: have the function give what it makes another name, or hand the object over: kubectl annotate --overwrite configmaps shared -n mark-named fairlead.dev\/reconciler=mark-second\/[\w-]{16}$/,
    )
    expect(await one.get(CONFIG_MAPS, 'shared')).toMatchObject({ data: { by: 'mark-one' } })

    const [, mark] = /(mark-second\/\S+)$/.exec(message)!
    const path = resourcePath(CONFIG_MAPS, 'mark-named', 'shared')
    await fixture.kube.patch(path, { metadata: { annotations: { [RECONCILER_ANNOTATION]: mark } } }, 'merge')
    await one.see(CONFIG_MAPS, 'shared', { resource: 'widgets', name: 'w' })
    expect((await runs(other, 'mark-named', wanting)).result).toBe('success')
    expect((await runs(one, 'mark-named', () => ({ apply: [] }))).result).toBe('success')
    expect(await one.get(CONFIG_MAPS, 'shared')).toMatchObject({ data: { by: 'mark-other' } })
  })

  it('one renamed: with the identity of the former name it has its objects and finalizers, once that one is gone', async () => {
    await using former = await fixture.scene('mark-former', { spec: { owns, finalize: true } })
    await former.widget('w', () => ({ apply: [pod('kept'), pod('pruned'), configMap('changed', { a: '1', b: '1' })] }))
    await former.ended('w')
    const object = await fixture.kube.create<KubeObject>(resourcePath(RECONCILERS), {
      ...former.reconciler({ identity: 'mark-former' }),
      metadata: { name: 'mark-renamed' },
    })
    await using renamed = await fixture.scene('mark-renamed', { object, waitFor: false })
    const ready = async () => {
      const { status = {} } = await fixture.kube.get(resourcePath(RECONCILERS, undefined, 'mark-renamed'))
      return (status as { conditions?: { reason: string; message: string }[] }).conditions?.[0]
    }
    await until(async () => (await ready())?.reason === 'IdentityTaken')
    expect((await ready())?.message).toContain('kubectl delete reconciler mark-former')
    expect([former.dispatcher.serving(), renamed.dispatcher.serving()]).toEqual([['mark-former'], []])

    const gone = former.reconciler()
    await fixture.events.put(RECONCILERS, 'deleted', { ...gone, metadata: { ...gone.metadata, resourceVersion: '2' } })
    await until(() => renamed.dispatcher.serving().includes('mark-renamed') && former.dispatcher.serving().length === 0)
    const requests = await former.requestsDuring(() =>
      runs(renamed, 'mark-former', () => ({ apply: [pod('kept'), configMap('changed', { a: '2' })] })),
    )
    expect(requests).toEqual(['PATCH configmaps/changed 200', 'DELETE pods/pruned 200'])
    expect((await former.get(CONFIG_MAPS, 'changed'))?.['data']).toEqual({ a: '2' })
    await fixture.kube.delete(resourcePath(WIDGETS, 'mark-former', 'w'))
    await former.see(WIDGETS, 'w')
    await runs(renamed, 'mark-former', () => ({}))
    expect(await former.get(WIDGETS, 'w')).toBeUndefined()
    // Bridges of other test files would serve it.
    await fixture.kube.delete(resourcePath(RECONCILERS, undefined, 'mark-renamed'))
  })
})

describe('an object without a mark that has the same owner', () => {
  const owns = [PODS, CONFIG_MAPS, SECRETS]
  /** Three kinds of objects that `fieldManager` has created for the widget `w` of a namespace. */
  async function created(scene: Scene, fieldManager: string, annotations: Record<string, string>) {
    const { metadata } = (await scene.get(WIDGETS, 'w'))!
    const ownerReferences = [{ ...ownedByWidget(metadata.uid), name: 'w' }]
    for (const [ref, { metadata, ...content }] of [
      [PODS, pod('a-pod')],
      [CONFIG_MAPS, configMap('a-config', { a: '1' })],
      [SECRETS, secret('a-secret', { value: '1' })],
    ] as const) {
      const object = { ...content, metadata: { ...metadata, annotations, ownerReferences } }
      const path = resourcePath(ref, scene.name)
      await (ref === PODS
        ? fixture.kube.create(path, object, { fieldManager })
        : fixture.kube.apply(`${path}/${metadata.name}`, object, { fieldManager, force: true }))
      await scene.see(ref, metadata.name, { resource: 'widgets', name: 'w' })
    }
  }

  it.each([
    [
      'no annotations',
      'mark-unmarked',
      {},
      ['GET secrets/a-secret 200', 'GET pods/a-pod 200', 'GET secrets/a-secret 200'],
    ],
    [
      'annotations copied from an object of the reconciler',
      'mark-copied',
      { [DESIRED_ANNOTATION]: 'AAAAAAAAAAAAAAAA', [RECONCILER_ANNOTATION]: 'mark-copied/AAAAAAAAAAAAAAAA' },
      ['GET secrets/a-secret 200', 'GET pods/a-pod 200', 'GET configmaps/a-config 200', 'GET secrets/a-secret 200'],
    ],
  ])('of another controller, with %s, is not seen and stays; it is read once', async (_, name, annotations, reads) => {
    await using scene = await fixture.scene(name, { spec: { owns } })
    await scene.widget('w', () => ({}))
    await scene.ended('w')
    await created(scene, 'some-controller', annotations)
    const seen: string[] = []
    const look = () =>
      runs(scene, name, ({ owned }) => {
        seen.push(...Object.values(owned).flatMap(namesOf))
        return { apply: [] }
      })
    expect((await scene.requestsDuring(look)).sort()).toEqual([...reads].sort())
    expect(await scene.requestsDuring(look)).toEqual([])
    expect(seen).toEqual([])
    for (const [ref, object] of [
      [PODS, 'a-pod'],
      [CONFIG_MAPS, 'a-config'],
      [SECRETS, 'a-secret'],
    ] as const)
      expect(await scene.get(ref, object)).toBeDefined()
    const { message } = await runs(scene, name, () => ({ apply: [configMap('a-config', { a: '2' })] }))
    expect(message).toContain(
      `a-config exists, but Reconciler ${name} did not create it, although this Widget controls it`,
    )
  })

  it('of the reconciler from before there were marks is adopted: marked once where it is applied, then as any other', async () => {
    await using scene = await fixture.scene('mark-adopts', { spec: { owns } })
    await scene.widget('w', () => ({}))
    await scene.ended('w')
    await created(scene, 'fairlead-mark-adopts', { [DESIRED_ANNOTATION]: 'AAAAAAAAAAAAAAAA' })
    const all = [pod('a-pod'), configMap('a-config', { a: '1' }), secret('a-secret', { value: '1' })]
    const seen: string[] = []
    const wanted = () =>
      runs(scene, 'mark-adopts', ({ owned }) => {
        seen.push(...Object.values(owned).flatMap(namesOf))
        return { apply: all }
      })
    const requests = await scene.requestsDuring(wanted)
    expect(requests.filter((request) => !request.startsWith('GET')).sort()).toEqual([
      'PATCH configmaps/a-config 200',
      'PATCH secrets/a-secret 200',
    ])
    expect(seen).toContain('a-pod')
    const config = await scene.get(CONFIG_MAPS, 'a-config')
    expect(config?.metadata.annotations?.[RECONCILER_ANNOTATION]).toMatch(/^mark-adopts\/[\w-]{16}$/)
    expect(await scene.requestsDuring(wanted)).toEqual([])
    expect((await runs(scene, 'mark-adopts', () => ({ apply: [] }))).result).toBe('success')
    for (const [ref, object] of [
      [PODS, 'a-pod'],
      [CONFIG_MAPS, 'a-config'],
      [SECRETS, 'a-secret'],
    ] as const)
      expect(await scene.get(ref, object)).toBeUndefined()
  })

  it('of which only metadata are watched is told by its mark or, for a Secret, by one read', async () => {
    const metadataOnly = [
      { ...CONFIG_MAPS, metadataOnly: true },
      { ...SECRETS, metadataOnly: true },
    ]
    await using scene = await fixture.scene('mark-metadata', { spec: { owns: metadataOnly } })
    const widget = await scene.widget('w', () => ({}))
    await scene.ended('w')
    for (const [ref, object] of [
      [CONFIG_MAPS, createdFor(widget, 'mark-metadata', configMap('mine'))],
      [CONFIG_MAPS, createdFor(widget, 'mark-other', configMap('foreign'))],
      [SECRETS, createdFor(widget, 'mark-metadata', secret('mine', { value: '1' }))],
      [SECRETS, createdFor(widget, 'mark-other', secret('foreign', { value: '1' }))],
    ] as const) {
      const { apiVersion, kind, metadata } = await fixture.kube.create(resourcePath(ref, scene.name), object)
      const owner = { resource: 'widgets', name: 'w' }
      await fixture.events.put(ref, 'added', { apiVersion, kind, metadata }, { owner, referenceOnly: true })
    }
    let seen: string[][] = []
    const look = () =>
      runs(scene, 'mark-metadata', ({ owned }) => {
        seen = Object.values(owned).map(namesOf)
        return {}
      })
    expect((await scene.requestsDuring(look)).sort()).toEqual(['GET secrets/foreign 200', 'GET secrets/mine 200'])
    expect(seen).toEqual([['mine'], ['mine']])
    expect(await scene.requestsDuring(look)).toEqual([])
    expect((await runs(scene, 'mark-metadata', () => ({ apply: [] }))).result).toBe('success')
    for (const ref of [CONFIG_MAPS, SECRETS])
      expect([await scene.get(ref, 'mine'), (await scene.get(ref, 'foreign'))?.metadata.name]).toEqual([
        undefined,
        'foreign',
      ])

    const { annotations } = createdFor(widget, 'mark-metadata', secret('foreign', { value: '1' })).metadata
    await fixture.kube.patch(resourcePath(SECRETS, scene.name, 'foreign'), { metadata: { annotations } }, 'merge')
    await scene.see(SECRETS, 'foreign', { resource: 'widgets', name: 'w' })
    await look()
    expect(seen, 'after it was handed over').toEqual([[], ['foreign']])
  })
})

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
    await using scene = await fixture.scene('adopt-free', { spec: { owns: [PODS, { ...CONFIG_MAPS, adopt: true }] } })
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
  })
})
