import { describe, expect, it } from 'vitest'
import type { KubeObject, Outcome } from '#contracts'
import { keyOf } from '#events'
import { resourcePath } from '#kube'
import { configMap, until, useFixture, WIDGETS } from './fixture.ts'

const fixture = useFixture()
const scene = fixture.useScene('own', { spec: { writes: ['Metadata', 'Deletion'] } })
const MARK = 'metadata.fairlead.dev/own'

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
    await using former = await fixture.scene('own-former', {
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
  })

  it('that another manager has set to the same value are shared', async () => {
    await scene.widget('shared', () => ({}))
    await scene.ended('shared')
    await edit('shared', { labels: { a: '1' } })
    expect(await runs('shared', { metadata: { labels: { a: '1' } } })).toEqual(['PATCH widgets/shared 200'])
    await runs('shared', { metadata: {} })
    expect((await metadataOf('shared')).labels).toEqual({ a: '1' })
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

  it('finalizes it in the same run', async () => {
    await using finalizing = await fixture.scene('own-finalize', { spec: { finalize: true, writes: ['Deletion'] } })
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
    await using limited = await fixture.scene(NAME, { spec })
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
  })
})
