import { describe, expect, it } from 'vitest'
import { decorators } from '#functions/metacontroller'
import { type KubeObject, manifest } from '#sdk'
import { type Given, outcomeOf, simulate } from '#testing'
import { bodyOf, CATSETS, CONFIG_MAPS, childOf, configMap, parentOf, SERVED, startHook } from './hooks.ts'

const STATEFUL_SETS = { apiVersion: 'apps/v1', resource: 'statefulsets' }
const OF_DECORATOR = 'metacontroller.k8s.io/decorator-controller'

const decoratorOf = (url: string, spec: object = {}, name = 'labeller'): KubeObject => ({
  apiVersion: 'metacontroller.k8s.io/v1alpha1',
  kind: 'DecoratorController',
  metadata: { name, uid: 'controller-1' },
  spec: {
    resources: [CATSETS],
    attachments: [{ ...CONFIG_MAPS, updateStrategy: { method: 'InPlace' } }],
    hooks: { sync: { webhook: { url } } },
    ...spec,
  },
})

const decisionOf = (controller: KubeObject, object: KubeObject, { others = [], ...given }: Partial<Given> = {}) => {
  const [first] = decorators(controller, SERVED)
  return outcomeOf(first!, { object, others: [controller, ...others], ...given })
}

const attached = (parent: KubeObject, name: string, decorator = 'labeller') =>
  childOf(parent, configMap(name, { annotations: { [OF_DECORATOR]: decorator } }), {})

describe('what a hook of a DecoratorController is asked', () => {
  it.each(['v1', 'v2'] as const)(
    'has controller, object, attachments, related and finalizing, in %s',
    async (version) => {
      await using hook = await startHook({ attachments: [] })
      const parent = parentOf()
      const controller = decoratorOf('', { hooks: { sync: { version, webhook: { url: hook.url } } } })
      await decisionOf(controller, parent, { others: [attached(parent, 'tom')] })
      expect(bodyOf(hook)).toMatchObject({
        controller: { kind: 'DecoratorController' },
        object: { metadata: { name: 'cats' } },
        attachments: { 'ConfigMap.v1': { [version === 'v1' ? 'tom' : 'zoo/tom']: {} } },
        related: {},
        finalizing: false,
      })
    },
  )

  it('has only attachments of this controller', async () => {
    await using hook = await startHook({ attachments: [] })
    const parent = parentOf()
    const others = [attached(parent, 'mine'), attached(parent, 'theirs', 'other'), childOf(parent, configMap('child'))]
    await decisionOf(decoratorOf(hook.url), parent, { others })
    expect(Object.keys(bodyOf(hook)['attachments']?.['ConfigMap.v1'] as object)).toEqual(['mine'])
  })

  const annotationSelector = {
    matchAnnotations: { a: 'b' },
    matchExpressions: [{ key: 'c', operator: 'NotIn', values: ['d'] }],
  }
  it.each([
    [{ a: 'b' }, 1],
    [{ a: 'b', c: 'e' }, 1],
    [{ a: 'b', c: 'd' }, 0],
    [{}, 0],
    [undefined, 0],
  ])('is asked of an object with the annotations %j %d times', async (annotations, times) => {
    await using hook = await startHook({ attachments: [] })
    const controller = decoratorOf(hook.url, { resources: [{ ...CATSETS, annotationSelector }] })
    const outcome = await decisionOf(controller, parentOf({}, { annotations }))
    expect(hook.received).toHaveLength(times)
    expect(Object.keys(outcome)).toHaveLength(times)
  })
})

describe('what an answer to a DecoratorController does', () => {
  const answered = async (answer: object, parent = parentOf()) => {
    await using hook = await startHook(answer)
    return await decisionOf(decoratorOf(hook.url), parent)
  }

  it('applies attachments, with the annotation of their controller', async () => {
    const { apply } = await answered({ attachments: [configMap('tom', { annotations: { a: 'b' } })] })
    expect(apply?.map(({ metadata }) => metadata.annotations)).toEqual([{ a: 'b', [OF_DECORATOR]: 'labeller' }])
  })

  it.each([
    [{ labels: { a: 'b', c: null } }, { labels: { a: 'b' } }],
    [{ annotations: { a: 'b' }, attachments: [] }, { annotations: { a: 'b' } }],
    [{ labels: { c: null } }, { labels: {} }],
    [{ attachments: [] }, undefined],
    [{ labels: null, annotations: null }, undefined],
  ])('%j keeps %j of the object', async (answer, metadata) => {
    expect((await answered(answer)).metadata).toEqual(metadata)
  })

  it.each([
    [{ status: { a: 1 } }, 'a status'],
    [{ labels: { a: 1 } }, '"labels" that is no map of text'],
    [{ label: { a: 'b' } }, 'without any field that is known'],
    [{ labels: {}, attachment: [] }, 'without "attachments"'],
    [{ children: [] }, 'without any field that is known'],
    [{ attachments: [{ apiVersion: 'v1', kind: 'Pod', metadata: { name: 'a' } }] }, 'not in spec.attachments'],
  ])('%j is refused, and deletes nothing', async (answer, why) => {
    await expect(answered(answer)).rejects.toThrow(why)
  })

  it('leaves a status of null as it is, and asks for another run', async () => {
    expect(await answered({ status: null, resyncAfterSeconds: 3 })).toEqual({ apply: [], requeueAfterSeconds: 3 })
  })

  it('writes labels and attachments, and takes back what it has set', async () => {
    let answer: object = { labels: { purrs: 'yes' }, attachments: [configMap('tom')] }
    await using hook = await startHook((response) => void response.end(JSON.stringify(answer)))
    const controller = decoratorOf(hook.url)
    const [first] = decorators(controller, SERVED)
    const world = simulate(first!, { objects: [parentOf({}, { labels: { of: 'others' } }), controller] })
    await world.runUntilIdle()
    expect(world.object?.metadata.labels).toEqual({ of: 'others', purrs: 'yes' })
    answer = { labels: { purrs: null }, attachments: [] }
    world.edit({ spec: { changed: true } })
    await world.runUntilIdle()
    expect(world.object?.metadata.labels).toEqual({ of: 'others' })
    expect(world.writes.filter(({ verb }) => verb === 'delete')).toHaveLength(1)
  })
})

describe('the Reconcilers of a DecoratorController', () => {
  const made = (spec: object, name?: string) =>
    decorators(decoratorOf('http://hook', spec, name), SERVED).map((one) => manifest(one))

  it('are one for each resource, which is in the name', () => {
    const both = made({ resources: [{ ...CATSETS, labelSelector: { matchLabels: { a: 'b' } } }, STATEFUL_SETS] })
    expect(both.map(({ metadata, spec }) => [metadata.name, spec.for.kind, spec.for.selector])).toEqual([
      ['decorator-labeller-catsets-ctl-example-com', 'CatSet', 'a=b'],
      ['decorator-labeller-statefulsets-apps', 'StatefulSet', undefined],
    ])
    expect(both[0]?.spec).toMatchObject({ for: { status: 'Untouched' }, writes: ['Metadata'], finalize: false })
  })

  it.each([
    [undefined, 'CreateOnly'],
    ['OnDelete', 'CreateOnly'],
    ['Recreate', 'CreateOnly'],
    ['InPlace', 'Apply'],
  ])('write attachments of the method %s by the strategy %s', (method, strategy) => {
    const attachments = [{ ...CONFIG_MAPS, ...(method && { updateStrategy: { method } }) }]
    expect(made({ attachments })[0]?.spec.owns).toMatchObject([{ kind: 'ConfigMap', strategy }])
  })

  it('know the finalizer of Metacontroller', () => {
    const webhook = { url: 'http://hook' }
    expect(made({ hooks: { sync: { webhook }, finalize: { webhook } } })[0]?.spec).toMatchObject({
      finalize: true,
      formerFinalizers: ['metacontroller.io/decoratorcontroller-labeller'],
    })
  })

  const finalize = { finalize: { webhook: { url: 'http://hook' } } }
  it.each([
    [{ attachments: [{ ...CONFIG_MAPS, updateStrategy: { method: 'RollingInPlace' } }] }, 'updateStrategy.method'],
    [{ hooks: { customize: {} } }, 'spec.hooks.customize'],
    [{ resources: [] }, 'spec.resources'],
    [{ resources: [CATSETS, { ...CATSETS, apiVersion: 'ctl.example.com/v2' }] }, 'catsets.ctl.example.com once more'],
    [
      { resources: [{ ...CATSETS, annotationSelector: { matchAnnotations: { a: 'b' } } }], hooks: finalize },
      'beside selectors in spec.resources',
    ],
    [
      { resources: [{ ...CATSETS, labelSelector: { matchLabels: { a: 'b' } } }], hooks: finalize },
      'beside selectors in spec.resources',
    ],
    [{ somethingNew: true }, 'somethingNew'],
  ])('are refused for what is not offered, by its path: %j', (spec, path) => {
    expect(() => made(spec)).toThrow(path)
    expect(() => made(spec)).toThrow('DecoratorController labeller has what is not offered')
  })

  it('stop when the controller does not name their resource any more', async () => {
    await using hook = await startHook({ attachments: [] })
    const [first] = decorators(decoratorOf(hook.url), SERVED)
    const now = decoratorOf(hook.url, { resources: [STATEFUL_SETS] })
    const outcome = await outcomeOf(first!, { object: parentOf(), others: [now] })
    expect(outcome).toEqual({ events: [expect.objectContaining({ reason: 'ControllerChanged' })] })
    expect(hook.received).toEqual([])
  })
})
