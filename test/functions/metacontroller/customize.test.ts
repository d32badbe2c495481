import { describe, expect, it } from 'vitest'
import { composite, decorators } from '#functions/metacontroller'
import { type KubeObject, manifest } from '#sdk'
import { outcomeOf } from '#testing'
import { type HttpReceiver } from '../../support/http-receiver.ts'
import { bodyOf, CATSETS, configMap, controllerOf, decisionOf, parentOf, SERVED, startHook } from './hooks.ts'

const RELATED = 'fairlead.dev/related'
const STATEFUL_SETS = { apiVersion: 'apps/v1', resource: 'statefulsets' }
const RULES = { apiVersion: 'v1', resource: 'configmaps' }

interface Asking {
  customize?: 'v1' | 'v2'
  sync?: 'v1' | 'v2'
  scope?: 'namespaced' | 'cluster'
  granted?: string
}

const customized = (
  hook: Pick<HttpReceiver, 'url'>,
  {
    customize = 'v1',
    sync = 'v1',
    scope = 'namespaced',
    granted = 'configmaps.v1, statefulsets.v1.apps, namespaces.v1',
  }: Asking = {},
): KubeObject => {
  const controller = controllerOf('', {
    ...(scope === 'cluster' && { parentResource: { ...CATSETS, resource: 'cages' } }),
    hooks: {
      sync: { version: sync, webhook: { url: `${hook.url}/sync` } },
      customize: { version: customize, webhook: { url: `${hook.url}/customize` } },
    },
  })
  return { ...controller, metadata: { ...controller.metadata, annotations: { [RELATED]: granted } } }
}

/** Answers of both hooks. `rules`: what the customize hook answers, as JSON or as text. */
const answering = (rules: unknown, synced: object = { children: [] }) =>
  startHook((response) => {
    const isCustomize = response.req.url === '/customize'
    response.end(
      typeof rules === 'string' && isCustomize
        ? rules
        : JSON.stringify(isCustomize ? { relatedResources: rules } : synced),
    )
  })

const parent = (scope: Asking['scope'] = 'namespaced') =>
  scope === 'namespaced' ? parentOf() : parentOf({ kind: 'Cage' }, { name: 'cage', namespace: undefined })

const namespace = (name: string, labels: Record<string, string> = {}): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Namespace',
  metadata: { name, labels },
})

const OTHERS = [
  configMap('tom', { namespace: 'zoo', labels: { app: 'cats' } }),
  configMap('kit', { namespace: 'zoo', labels: { app: 'kittens' } }),
  configMap('rex', { namespace: 'kennel', labels: { app: 'dogs' } }),
  namespace('zoo', { of: 'cats' }),
  namespace('kennel', { of: 'dogs' }),
]

/** The names of the ConfigMaps that `sync` gets, or the failure. */
async function namesOf(rules: unknown, asking: Asking = {}): Promise<string[] | string> {
  await using hook = await answering(rules)
  try {
    await decisionOf(customized(hook, asking), parent(asking.scope), { others: OTHERS })
  } catch (error) {
    return (error as Error).message
  }
  return Object.keys(bodyOf(hook)['related']?.['ConfigMap.v1'] ?? {}).sort()
}

describe('the customize hook', () => {
  it('is asked of controller and parent before sync, which gets each named kind, if only as {}', async () => {
    await using hook = await answering([RULES, STATEFUL_SETS])
    await decisionOf(customized(hook), parentOf(), { others: OTHERS })
    expect(hook.received.map(({ url }) => url)).toEqual(['/customize', '/sync'])
    expect(Object.keys(bodyOf(hook, 0))).toEqual(['controller', 'parent'])
    expect(bodyOf(hook)['related']).toMatchObject({ 'ConfigMap.v1': { tom: {}, kit: {} }, 'StatefulSet.apps/v1': {} })
  })

  it('of a decorator gets the object as parent', async () => {
    await using hook = await answering([RULES], { attachments: [] })
    const { metadata } = customized(hook)
    const webhook = (path: string) => ({ webhook: { url: `${hook.url}/${path}` } })
    const controller = {
      apiVersion: 'metacontroller.k8s.io/v1alpha1',
      kind: 'DecoratorController',
      metadata,
      spec: { resources: [CATSETS], hooks: { sync: webhook('sync'), customize: webhook('customize') } },
    }
    const [first] = decorators(controller, SERVED)
    await outcomeOf(first!, { object: parentOf(), others: [controller, ...OTHERS] })
    expect(bodyOf(hook, 0)).toMatchObject({ parent: { metadata: { name: 'cats' } } })
    expect(Object.keys(bodyOf(hook)['related']?.['ConfigMap.v1'] as object)).toEqual(['tom', 'kit'])
  })

  const V2: Asking = { customize: 'v2', sync: 'v2' }
  const CLUSTER: Asking = { scope: 'cluster' }
  const MIXED: Asking = { customize: 'v2' }
  it.each([
    ['no rule', [], {}, []],
    ['null', null, {}, []],
    ['all of the namespace', [RULES], {}, ['kit', 'tom']],
    ['names', [{ ...RULES, names: ['tom', 'rex'] }], {}, ['tom']],
    ['labels', [{ ...RULES, labelSelector: { matchLabels: { app: 'kittens' } } }], {}, ['kit']],
    [
      'labels, with an expression',
      [{ ...RULES, labelSelector: { matchExpressions: [{ key: 'app', operator: 'NotIn', values: ['cats'] }] } }],
      {},
      ['kit'],
    ],
    [
      'two rules of one kind',
      [
        { ...RULES, names: ['tom'] },
        { ...RULES, names: ['kit'] },
      ],
      {},
      ['kit', 'tom'],
    ],
    ['the namespace of the parent', [{ ...RULES, namespace: 'zoo', names: ['tom'] }], {}, ['tom']],
    ['all namespaces, in v2', [RULES], V2, ['kennel/rex', 'zoo/kit', 'zoo/tom']],
    ['another namespace, in v2', [{ ...RULES, namespace: 'kennel' }], V2, ['kennel/rex']],
    [
      'namespaces by label, in v2',
      [{ ...RULES, namespaceSelector: { matchLabels: { of: 'dogs' } } }],
      V2,
      ['kennel/rex'],
    ],
    [
      'namespaces and labels, in v2',
      [
        {
          ...RULES,
          namespaceSelector: { matchLabels: { of: 'cats' } },
          labelSelector: { matchLabels: { app: 'cats' } },
        },
      ],
      V2,
      ['zoo/tom'],
    ],
    ['a namespace, of a cluster-scoped parent', [{ ...RULES, namespace: 'kennel' }], CLUSTER, ['kennel/rex']],
    [
      'namespaces by label, of a cluster-scoped parent',
      [{ ...RULES, namespaceSelector: { matchLabels: { of: 'dogs' } } }],
      CLUSTER,
      ['kennel/rex'],
    ],
    ['other namespaces, which sync of v1 cannot name', [RULES], MIXED, ['kit', 'tom']],
  ])('selects by %s', async (_, rules, asking, expected) => {
    expect(await namesOf(rules, asking)).toEqual(expected)
  })

  it.each([
    ['names beside labels', [{ ...RULES, names: ['a'], labelSelector: {} }], {}, 'names beside a selector'],
    ['names beside namespaces', [{ ...RULES, names: ['a'], namespaceSelector: {} }], V2, 'names beside a selector'],
    [
      'a namespace beside namespaces',
      [{ ...RULES, namespace: 'zoo', namespaceSelector: {} }],
      V2,
      'a namespace beside a namespaceSelector',
    ],
    [
      'another namespace, in v1',
      [{ ...RULES, namespace: 'kennel' }],
      {},
      'the namespace kennel, which is not that of the parent',
    ],
    ['namespaces, in v1', [{ ...RULES, namespaceSelector: {} }], {}, 'in version v2 alone'],
    [
      'namespaces of a cluster-scoped kind',
      [{ apiVersion: 'v1', resource: 'namespaces', namespaceSelector: {} }],
      V2,
      'its objects are cluster-scoped',
    ],
    ['a field that is misspelt', [{ ...RULES, labels: {} }], {}, 'Unrecognized key: "labels"'],
    ['no list', {}, {}, 'with relatedResources'],
    ['a misspelt answer', '{"related": []}', {}, 'without "relatedResources"'],
    ['no JSON', '<html>', {}, 'no valid JSON'],
  ])('is refused with %s', async (_, rules, asking, why) => {
    expect(await namesOf(rules, asking)).toContain(why)
  })

  it.each([
    [STATEFUL_SETS, {}, 'configmaps.v1', 'add statefulsets.v1.apps to its annotation fairlead.dev/related'],
    [
      { ...RULES, namespaceSelector: {} },
      V2,
      'configmaps.v1',
      'add namespaces.v1 to its annotation fairlead.dev/related',
    ],
  ])(
    'that names a kind that is not granted parks the parent, with the kind: %j',
    async (rule, asking, granted, why) => {
      await using hook = await answering([rule])
      const outcome = decisionOf(customized(hook, { ...asking, granted }), parentOf(), { others: OTHERS })
      await expect(outcome).rejects.toMatchObject({ reason: 'KindNotGranted', message: expect.stringContaining(why) })
    },
  )
})

describe('the Reconciler of a controller with a customize hook', () => {
  const relatedIn = (asking: Asking) =>
    manifest(composite(customized({ url: 'http://hook' }, asking), SERVED)).spec.related.map(
      ({ resource, byOwner, within }) => [resource, byOwner ? 'owned' : within],
    )

  it.each([
    ['v1', 'Namespace'],
    ['v2', 'Cluster'],
  ] as const)('reads what its annotation grants, in %s within %s', (customize, within) => {
    expect(relatedIn({ customize, granted: 'statefulsets.v1.apps' })).toEqual([
      ['compositecontrollers', 'Namespace'],
      ['configmaps', 'owned'],
      ['statefulsets', within],
    ])
  })

  it.each([
    ['', 'spec.hooks.customize needs the annotation fairlead.dev/related'],
    ['unicorns.v1', 'unicorns of v1 is not served'],
    ['configmaps', 'configmaps of  is not served'],
  ])('is refused with the annotation %j', (granted, why) => {
    expect(() => relatedIn({ granted })).toThrow(why)
  })
})
