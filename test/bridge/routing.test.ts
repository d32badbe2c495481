import { describe, expect, it } from 'vitest'
import type { KubeObject, ResourceRef } from '#contracts'
import { finalizerOf, isRefused, RECONCILERS, RETAINED_FOR, readReconciler } from '#spec'
import { parseReconciler } from '../../bridge/reconcilers.ts'
import { type Owner, Routes } from '../../bridge/routing.ts'
import { configMaps, controlledBy, object, pods, reconciler, reconcilerObject, widgets } from './objects.ts'

const retainedFor = (owner: string) => ({ annotations: { [RETAINED_FOR]: owner } })

function keys(
  routes: Routes,
  ref: ResourceRef,
  changed: KubeObject,
  left: Owner[] = [],
  clusterScoped = false,
): string[] {
  const owner = routes.ownerOf(changed)
  const { namespace, name } = changed.metadata
  const owners = [...(owner ? [owner] : []), ...left]
  return routes
    .targetsOf(ref, { namespace, name, object: changed, owners }, () => clusterScoped)
    .map(({ reconciler, key }) => `${reconciler} ${key}`)
}

describe('a change is mapped', () => {
  const routes = new Routes([reconciler('widget', { for: widgets, owns: [pods] })])

  it.each<[string, ResourceRef, KubeObject, string[]]>([
    ['to the object itself', widgets, object('Widget', 'a.b'), ['widget default.a%2Eb']],
    ['to its controller owner', pods, object('Pod', 'p', controlledBy('Widget', 'a')), ['widget default.a']],
    [
      'to the owner whatever version names it',
      pods,
      object('Pod', 'p', controlledBy('Widget', 'a', 'example.com/v9')),
      ['widget default.a'],
    ],
    ['to nobody without a controller', pods, object('Pod', 'p'), []],
    [
      'to the object that it is retained for',
      pods,
      object('Pod', 'p', retainedFor('Widget.example.com/a/uid-a')),
      ['widget default.a'],
    ],
    [
      'to its controller alone, where it has an annotation as well',
      pods,
      object('Pod', 'p', { ...controlledBy('Gadget', 'g'), ...retainedFor('Widget.example.com/a/uid-a') }),
      [],
    ],
    [
      'to nobody when it is retained for an object of another group',
      pods,
      object('Pod', 'p', retainedFor('Widget.other.io/a/uid-a')),
      [],
    ],
    [
      'to nobody when it is retained for what no object can be called',
      pods,
      object('Pod', 'p', retainedFor('Widget.example.com/../uid-a')),
      [],
    ],
    ['to nobody when another kind controls it', pods, object('Pod', 'p', controlledBy('Gadget', 'a')), []],
    [
      'to nobody when another group controls it',
      pods,
      object('Pod', 'p', controlledBy('Widget', 'a', 'other.io/v1')),
      [],
    ],
    [
      'to nobody when its owner does not own that resource',
      configMaps,
      object('ConfigMap', 'c', controlledBy('Widget', 'a')),
      [],
    ],
  ])('%s', (_name, ref, changed, expected) => {
    expect(keys(routes, ref, changed)).toEqual(expected)
  })

  it('to the owner that the object has left, too', () => {
    const changed = object('Pod', 'p', controlledBy('Widget', 'new'))
    expect(keys(routes, pods, changed, [{ resource: 'widgets', name: 'old' }])).toEqual([
      'widget default.new',
      'widget default.old',
    ])
  })

  it('to the key of a cluster-scoped owner, which has no namespace', () => {
    expect(keys(routes, pods, object('Pod', 'p', controlledBy('Widget', 'a')), [], true)).toEqual(['widget _.a'])
  })

  it('to every Reconciler that asks, each once', () => {
    const two = new Routes([
      reconciler('widget', { for: widgets, owns: [pods, pods] }),
      reconciler('pod', { for: pods }),
      reconciler('other', { for: widgets, owns: [pods] }),
    ])
    const changed = object('Pod', 'p', controlledBy('Widget', 'a'))
    expect(keys(two, pods, changed)).toEqual(['pod default.p', 'widget default.a', 'other default.a'])
    expect(two.refs).toHaveLength(2)
  })
})

describe('a Reconciler hears only of', () => {
  it('what its selector matches', () => {
    const routes = new Routes([reconciler('widget', { for: { ...widgets, selector: 'tier=gold' } })])
    expect(keys(routes, widgets, object('Widget', 'a', { labels: { tier: 'gold' } }))).toHaveLength(1)
    expect(keys(routes, widgets, object('Widget', 'a'))).toHaveLength(0)
  })

  it('what it selected once, as long as that waits for it, and watches all for this if it finalizes', () => {
    const spec = {
      for: { ...widgets, namespaces: ['default'], selector: 'tier=gold' },
      changes: ['Generation'] as const,
    }
    const routes = new Routes([reconciler('widget', { ...spec, finalize: true })])
    const held = { finalizers: [finalizerOf('widget')] }
    const heard = (more: object) => keys(routes, widgets, object('Widget', 'a', more))
    expect(heard(held)).toEqual(['widget default.a'])
    expect(heard({ finalizers: [finalizerOf('other')] })).toEqual([])
    expect(heard({ ...held, namespace: 'other' })).toEqual([])
    expect(routes.selectionOf(widgets)).toEqual({})
    expect(new Routes([reconciler('widget', spec)]).selectionOf(widgets)).toEqual({ labelSelector: 'tier=gold' })
  })

  it('labels too, where they select, whatever else it looks at', () => {
    const countsOf = (selector?: string): unknown[] => {
      const asked: unknown[] = []
      const routes = new Routes([reconciler('widget', { for: { ...widgets, selector }, changes: ['Generation'] })])
      const counts = (predicates: readonly string[]) => asked.push(predicates) > 0
      const change = {
        namespace: 'default',
        name: 'a',
        object: object('Widget', 'a', { labels: { a: 'b' } }),
        owners: [],
      }
      routes.targetsOf(widgets, { ...change, counts }, () => false)
      return asked.flat()
    }
    expect([countsOf(), countsOf('a=b')]).toEqual([['Generation'], ['Generation', 'Labels']])
  })

  it('its namespaces, for owned objects as well', () => {
    const routes = new Routes([reconciler('widget', { for: { ...widgets, namespaces: ['one'] }, owns: [pods] })])
    const owned = controlledBy('Widget', 'a')
    expect(keys(routes, widgets, object('Widget', 'a', { namespace: 'one' }))).toEqual(['widget one.a'])
    expect(keys(routes, widgets, object('Widget', 'a'))).toEqual([])
    expect(keys(routes, pods, object('Pod', 'p', { namespace: 'one', ...owned }))).toEqual(['widget one.a'])
    expect(keys(routes, pods, object('Pod', 'p', owned))).toEqual([])
  })
})

it('what an object was like at its end is kept where a function finalizes, and only there', () => {
  const routes = new Routes([reconciler('a', { for: widgets, finalize: true, owns: [pods] })])
  expect([routes.isFinalized(widgets), routes.isFinalized(pods)]).toEqual([true, false])
})

describe('Reconcilers themselves', () => {
  const reconcilers = { ...RECONCILERS, kind: 'Reconciler' }

  it('are watched whole and all, whatever part of them somebody asks for', () => {
    const asked = [
      { for: { ...reconcilers, selector: 'a=b', namespaces: ['one'] } },
      { for: widgets, related: [{ ...reconcilers, metadataOnly: true }] },
    ]
    for (const spec of asked) {
      const routes = new Routes([reconciler('x', spec)])
      expect([routes.selectionOf(RECONCILERS), routes.namespacesOf(RECONCILERS)]).toEqual([{}, undefined])
    }
  })
})

describe('a Reconciler object', () => {
  it.each([
    ['for.namespaces.0', { for: { ...widgets, namespaces: ['team/a'] } }],
    ['for.namespaces', { for: { ...widgets, namespaces: [] } }],
    ['for.kind', { for: { ...widgets, kind: 'Wid/get' } }],
    ['serviceAccount.namespace', { for: widgets, serviceAccount: { name: 'a', namespace: 'b/c' } }],
    ['serviceAccount.name', { for: widgets, serviceAccount: { name: 'a:b', namespace: 'c' } }],
    ['related.0.selector', { for: widgets, related: [{ ...pods, selector: 'a in b' }] }],
    ['related.0.within', { for: widgets, related: [{ ...pods, within: 'Cluster', namespacePath: 'spec.namespace' }] }],
    ['related.0.namespacePath', { for: widgets, related: [{ ...pods, namespacePath: 'spec namespace' }] }],
    ['for.fieldSelector', { for: { ...widgets, fieldSelector: 'x' } }],
    ['invoke.http.url', { for: widgets, invoke: { http: { url: 'ftp://x' } } }],
  ])('is refused by bridge and dispatcher alike, for its %s', (path, spec) => {
    const made = reconcilerObject('x', spec)
    const refused = { reason: 'InvalidSpec', message: expect.stringContaining(`spec.${path}: `) as string }
    expect(readReconciler(made)).toEqual(refused)
    expect(parseReconciler(made)).toMatchObject(refused)
  })

  it('with a name that has no room in the name of a consumer is refused', () => {
    const named = (length: number) => readReconciler(reconcilerObject('n'.repeat(length), { for: widgets }))
    expect(named(250)).not.toHaveProperty('reason')
    expect(named(251)).toMatchObject({ message: 'metadata.name: has 251 characters, give it 250 at most' })
  })

  it('that is no valid one is refused with the path that is wrong', () => {
    const entry = parseReconciler(reconcilerObject('x', { for: { ...widgets, resource: '' } }))
    expect(entry).toMatchObject({
      reason: 'InvalidSpec',
      message: expect.stringContaining('spec.for.resource') as string,
    })
  })

  it.each([
    ['version', { version: 'v1/secrets?watch=true&x=' }],
    ['version', { version: 'v1/namespaces/default/secrets?x=' }],
    ['resource', { resource: 'pods%' }],
    ['group', { group: '../api' }],
  ])('whose %s would lead to other objects is refused', (field, elsewhere) => {
    const specs = {
      for: { for: { ...widgets, ...elsewhere } },
      'owns.0': { for: widgets, owns: [{ ...pods, ...elsewhere }] },
      'related.0': { for: widgets, related: [{ ...pods, ...elsewhere }] },
    }
    for (const [path, spec] of Object.entries(specs))
      expect(parseReconciler(reconcilerObject('x', spec))).toMatchObject({
        message: expect.stringContaining(`spec.${path}.${field}: lower-case letters`) as string,
      })
  })

  it('with a selector that is none is refused', () => {
    const entry = parseReconciler(reconcilerObject('x', { for: { ...widgets, selector: 'a>1' } }))
    expect(entry).toMatchObject({
      reason: 'InvalidSpec',
      message: expect.stringContaining('spec.for.selector: ') as string,
    })
  })

  it('that would select by fields which it does not want to see is refused', () => {
    const related = [{ ...pods, metadataOnly: true, fieldSelector: 'metadata.namespace=a,spec.nodeName=x' }]
    expect(parseReconciler(reconcilerObject('x', { for: widgets, related }))).toMatchObject({
      message: expect.stringContaining('spec.related.0.fieldSelector') as string,
    })
  })

  it('asks anew for every key when it is another one, or asks for other objects, and only then', () => {
    const idOf = (uid: string, spec: Parameters<typeof reconcilerObject>[1]) => {
      const made = reconcilerObject('x', spec)
      const entry = parseReconciler({ ...made, metadata: { ...made.metadata, uid } })
      return isRefused(entry) ? entry.message : entry.coverageId
    }
    const before = idOf('1', { for: widgets })
    expect(idOf('1', { for: widgets, concurrency: 3 })).toBe(before)
    expect(idOf('2', { for: widgets })).not.toBe(before)
    expect(idOf('1', { for: widgets, owns: [pods] })).not.toBe(before)
    expect(idOf('1', { for: { ...widgets, selector: 'a=b' } })).not.toBe(before)
  })
})
