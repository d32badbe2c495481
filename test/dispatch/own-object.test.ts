import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject, Outcome } from '#contracts'
import { keyOf } from '#events'
import { resourcePath } from '#kube'
import { CONFIG_MAPS, configMap, startFixture, until, WIDGETS } from './fixture.ts'

let fixture: Awaited<ReturnType<typeof startFixture>>
let scene: Awaited<ReturnType<typeof fixture.scene>>
const MARK = 'metadata.fairlead.dev/own'

beforeAll(async () => {
  fixture = await startFixture()
  scene = await fixture.scene('own', { spec: { writes: ['Metadata', 'Deletion'] } })
})
afterAll(async () => {
  await scene?.stop()
  await fixture?.[Symbol.asyncDispose]()
})

const pathOf = (name: string) => resourcePath(WIDGETS, 'own', name)

async function metadataOf(name: string): Promise<Pick<KubeObject['metadata'], 'labels' | 'annotations'>> {
  const { labels = {}, annotations = {} } = (await scene.get(WIDGETS, name))!.metadata
  const { [MARK]: _, ...others } = annotations
  return { labels, annotations: others }
}

/** Another manager merges this into the metadata, and the store sees it. */
async function edit(name: string, metadata: object, fieldManager = 'kubectl-label'): Promise<void> {
  await fixture.kube.patch(pathOf(name), { metadata }, 'merge', { fieldManager })
  await scene.see(WIDGETS, name)
}

/** Runs the object with a function that returns this outcome, and returns the requests to the API server. */
async function runs(name: string, outcome: Outcome): Promise<string[]> {
  scene.behave(name, () => outcome)
  return scene.requestsDuring(() => scene.run(name))
}

describe('labels and annotations that a function keeps on its object', () => {
  it('are written before the status, in one request each, and not again while nothing differs', async () => {
    const outcome = { metadata: { labels: { tier: 'web' }, annotations: { note: 'a b' } }, status: { phase: 'DONE' } }
    const requests = await scene.requestsDuring(async () => {
      await scene.widget('written', () => outcome)
      expect((await scene.ended('written')).result).toBe('success')
    })
    expect(requests.slice(1)).toEqual(['PATCH widgets/written 200', 'PATCH widgets/written/status 200'])
    expect(scene.writes('written')).toEqual(['metadata Widget written', 'status Widget written'])
    expect(await metadataOf('written')).toEqual(outcome.metadata)
    expect(await runs('written', outcome)).toEqual([])
  })

  it('are removed when the function stops returning them; keys of others stay', async () => {
    await scene.widget('fewer', () => ({ metadata: { labels: { a: '1', b: '2' }, annotations: { note: 'x' } } }))
    await scene.ended('fewer')
    await edit('fewer', { labels: { theirs: 'y' }, annotations: { theirs: 'z' } })
    expect(await runs('fewer', { metadata: { labels: { b: '2' } } })).toEqual(['PATCH widgets/fewer 200'])
    expect(await metadataOf('fewer')).toEqual({ labels: { b: '2', theirs: 'y' }, annotations: { theirs: 'z' } })
    expect(await runs('fewer', {})).toEqual([])
    expect(await runs('fewer', { metadata: {} })).toEqual(['PATCH widgets/fewer 200'])
    expect((await scene.get(WIDGETS, 'fewer'))?.metadata).toMatchObject({
      labels: { theirs: 'y' },
      annotations: { theirs: 'z' },
    })
    expect((await scene.get(WIDGETS, 'fewer'))?.metadata.annotations).not.toHaveProperty([MARK])
    expect(await runs('fewer', { metadata: {} })).toEqual([])
  })

  it('are taken back when another manager has changed one, and the object’s users are told', async () => {
    const outcome = { metadata: { labels: { a: '1', b: '2' } } }
    await scene.widget('changed-by-hand', () => outcome)
    await scene.ended('changed-by-hand')
    await edit('changed-by-hand', { labels: { a: 'theirs' } })
    const [refused, taken, ...others] = await runs('changed-by-hand', outcome)
    expect([refused, taken, others]).toEqual([
      'PATCH widgets/changed-by-hand 409',
      'PATCH widgets/changed-by-hand 200',
      [],
    ])
    expect((await metadataOf('changed-by-hand')).labels).toEqual({ a: '1', b: '2' })
    const events = async () => (await scene.reported('changed-by-hand')).map(({ reason, note }) => ({ reason, note }))
    await until(async () => (await events()).length > 0)
    const note = expect.stringMatching(/labels\.a: conflict with "kubectl-label"/)
    expect(await events()).toEqual([{ reason: 'FieldConflict', note }])
  })

  it('are refused while another reconciler has set one to another value: that one stays, and the object says so', async () => {
    const former = await fixture.scene('own-former', {
      spec: { for: { ...WIDGETS, namespaces: ['own'] }, writes: ['Metadata'] },
    })
    const enqueue = () => former.queue.enqueue('own-former', keyOf('own', 'contested'))
    const metadata = async () => metadataOf('contested')
    former.behave('contested', () => ({ metadata: { labels: { a: 'theirs' } } }))
    await scene.widget('contested', () => ({}))
    await scene.ended('contested')
    await enqueue()
    await until(async () => (await metadata()).labels?.['a'] === 'theirs')
    await scene.see(WIDGETS, 'contested')
    scene.behave('contested', () => ({ metadata: { labels: { a: '1', b: '2' } }, status: { phase: 'DONE' } }))
    expect((await scene.run('contested')).result).toBe('error')
    expect((await metadata()).labels).toEqual({ a: 'theirs' })
    expect(await scene.condition('contested')).toMatchObject({
      status: 'False',
      reason: 'FieldConflict',
      message: expect.stringMatching(/labels\.a: conflict with "metadata.fairlead.dev\/own-former".*return other keys/),
    })
    former.behave('contested', () => ({ metadata: {} }))
    await scene.see(WIDGETS, 'contested')
    await enqueue()
    await until(async () => (await metadata()).labels?.['b'] === '2')
    expect((await metadata()).labels).toEqual({ a: '1', b: '2' })
    await former.stop()
  })

  it('that another manager has set to the same value are shared', async () => {
    await scene.widget('shared', () => ({}))
    await scene.ended('shared')
    await edit('shared', { labels: { a: '1' } })
    expect(await runs('shared', { metadata: { labels: { a: '1' } } })).toEqual(['PATCH widgets/shared 200'])
    await runs('shared', { metadata: {} })
    expect((await metadataOf('shared')).labels).toEqual({ a: '1' })
  })

  it('are decided again on what has changed meanwhile', async () => {
    const seen: (string | undefined)[] = []
    await scene.widget('moved', async ({ object }) => {
      const { note = 'none' } = object!.metadata.annotations ?? {}
      seen.push(note)
      if (seen.length === 1)
        await fixture.kube.patch(pathOf('moved'), { metadata: { annotations: { note: 'new' } } }, 'merge')
      return { metadata: { labels: { seen: note } } }
    })
    expect((await scene.ended('moved')).result).toBe('success')
    expect([seen[0], seen.at(-1), (await metadataOf('moved')).labels]).toEqual(['none', 'new', { seen: 'new' }])
    expect(scene.writes('moved')).toEqual(['metadata Widget moved'])
  })

  it('make no object that was deleted meanwhile', async () => {
    let calls = 0
    await scene.widget('deleted', async () => {
      if (++calls === 1) await fixture.kube.delete(pathOf('deleted'))
      return { metadata: { labels: { a: '1' } } }
    })
    expect((await scene.ended('deleted')).result).toBe('success')
    expect([calls, await scene.get(WIDGETS, 'deleted')]).toEqual([1, undefined])
  })

  it('are not written to another object of the same name', async () => {
    let calls = 0
    await scene.widget('replaced', async () => {
      if (++calls > 1) return {}
      const { apiVersion, kind, metadata, spec } = (await scene.get(WIDGETS, 'replaced'))!
      const { name, namespace } = metadata
      await fixture.kube.delete(pathOf('replaced'))
      await fixture.kube.create(resourcePath(WIDGETS, 'own'), { apiVersion, kind, metadata: { name, namespace }, spec })
      return { metadata: { labels: { a: '1' } } }
    })
    expect((await scene.ended('replaced')).result).toBe('success')
    expect((await metadataOf('replaced')).labels).toEqual({})
  })

  it('can be those of a kind whose status is another controller’s', async () => {
    const others = await fixture.scene('own-others', {
      spec: {
        for: { ...CONFIG_MAPS, namespaces: ['own-others'], status: 'Untouched' },
        owns: [],
        writes: ['Metadata'],
      },
    })
    others.behave('theirs', () => ({ metadata: { labels: { seen: 'yes' } } }))
    const { metadata, ...rest } = configMap('theirs', { a: '1' })
    const path = resourcePath(CONFIG_MAPS, 'own-others')
    const created = await fixture.kube.create<KubeObject>(path, { ...rest, metadata })
    await fixture.events.put(CONFIG_MAPS, 'added', created)
    await others.run('theirs')
    expect(await others.get(CONFIG_MAPS, 'theirs')).toMatchObject({
      metadata: { labels: { seen: 'yes' } },
      data: { a: '1' },
    })
    await others.stop()
  })
})

describe('a function that asks for the deletion of its object', () => {
  it('gets it after everything else, and the object’s timer goes with it', async () => {
    await scene.widget('ends', () => ({
      apply: [configMap('ends-config')],
      metadata: { labels: { over: 'true' } },
      status: { phase: 'DONE' },
      deleteObject: true,
      requeueAfterSeconds: 3600,
    }))
    expect((await scene.ended('ends')).result).toBe('success')
    expect(scene.writes('ends')).toEqual([
      'apply ConfigMap ends-config',
      'metadata Widget ends',
      'status Widget ends',
      'delete Widget ends',
    ])
    expect(await scene.get(WIDGETS, 'ends')).toBeUndefined()
    expect(await runs('ends', { deleteObject: true })).toEqual([])
  })

  it('keeps an object that has changed meanwhile, and is asked again', async () => {
    let calls = 0
    await scene.widget('changed', async ({ object }) => {
      if (++calls === 1) await fixture.kube.patch(pathOf('changed'), { spec: { keep: true } }, 'merge')
      return { deleteObject: (object!.spec as { keep?: boolean }).keep !== true }
    })
    expect((await scene.ended('changed')).result).toBe('success')
    expect(calls).toBe(2)
    expect((await scene.get(WIDGETS, 'changed'))?.metadata.deletionTimestamp).toBeUndefined()
  })

  it('is refused it without the declaration', async () => {
    const without = await fixture.scene('own-without')
    await without.widget('w', () => ({ deleteObject: true }))
    expect((await without.ended('w')).result).toBe('terminal')
    expect(await without.condition('w')).toMatchObject({ reason: 'InvalidOutcome' })
    await without.stop()
  })

  it('finalizes it in the same run', async () => {
    const finalizing = await fixture.scene('own-finalize', { spec: { finalize: true, writes: ['Deletion'] } })
    const seen: boolean[] = []
    await finalizing.widget('w', (input) => {
      seen.push(input.finalizing)
      return input.finalizing ? { apply: [] } : { apply: [configMap('w-config')], deleteObject: true }
    })
    expect((await finalizing.ended('w')).result).toBe('success')
    expect(finalizing.writes('w')).toEqual([
      'finalizers Widget w',
      'apply ConfigMap w-config',
      'delete Widget w',
      'delete ConfigMap w-config',
      'finalizers Widget w',
    ])
    expect(await finalizing.get(WIDGETS, 'w')).toBeUndefined()
    await finalizing.stop()
  })
})

describe('with the generated rights only', () => {
  const NAME = 'own-rights'
  const spec = {
    for: { ...WIDGETS, namespaces: [NAME] },
    owns: [],
    writes: ['Metadata', 'Deletion'],
    serviceAccount: { name: 'robot', namespace: NAME },
  }
  const grant = (writes: string[]) => fixture.grant(NAME, { ...spec, writes })

  it('labels and the deletion need the declaration, and no more than that', async () => {
    const limited = await fixture.scene(NAME, { spec })
    await grant(['Deletion'])
    await limited.widget('w', () => ({ metadata: { labels: { a: '1' } }, deleteObject: true }))
    await until(async () => (await limited.condition('w'))?.['status'] === 'False')
    expect(await limited.condition('w')).toMatchObject({
      reason: 'Forbidden',
      message: expect.stringMatching(/User "system:serviceaccount:own-rights:robot" cannot patch resource "widgets"/),
    })
    await grant(spec.writes)
    await until(() => limited.writes('w').at(-1) === 'delete Widget w')
    expect(limited.writes('w').slice(-2)).toEqual(['metadata Widget w', 'delete Widget w'])
    expect(await limited.get(WIDGETS, 'w')).toBeUndefined()
    await limited.stop()
  })
})
