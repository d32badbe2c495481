import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { KubeObject, ResourceRef } from '#contracts'
import { NameIndex, Rounds } from '#primitives'
import { finalizerOf, isRefused, parseSelector, RECONCILERS, RETAINED_FOR, readReconciler } from '#spec'
import {
  askedNamespaces,
  namespacesOf,
  parseReconciler,
  type Reconciler,
  type ResourceAsk,
  widest,
} from '../../bridge/reconcilers.ts'
import { Registry } from '../../bridge/registry.ts'
import { FanOuts } from '../../bridge/relation.ts'
import { type Owner, Routes } from '../../bridge/routing.ts'
import { silent } from '../support/silent.ts'
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

const MANY = 1000
const names = Array.from({ length: MANY }, (_, number) => `r${number}`)

/** The same Reconcilers, and how many selectors have been asked so far. */
function counted(reconcilers: Reconciler[]): { routes: Routes; asked: () => number } {
  let asked = 0
  const counting = reconcilers.map((one) => ({
    ...one,
    selects: (changed: KubeObject) => {
      asked++
      return one.selects(changed)
    },
  }))
  return { routes: new Routes(counting), asked: () => asked }
}

describe('of 1,000 Reconcilers a change looks at', () => {
  it('the one that selects its labels', () => {
    const selectors = ['team=NAME', 'tier in (gold, NAME),team==NAME', 'team in (NAME, other)']
    for (const selector of selectors) {
      const { routes, asked } = counted(
        names.map((name) => reconciler(name, { for: { ...widgets, selector: selector.replaceAll('NAME', name) } })),
      )
      const labels = { team: 'r7', tier: 'gold' }
      expect(keys(routes, widgets, object('Widget', 'a', { labels }))).toEqual(['r7 default.a'])
      expect(asked()).toBeLessThanOrEqual(2)
    }
  })

  it('the one that asks for its namespace', () => {
    const { routes, asked } = counted(
      names.map((name) => reconciler(name, { for: { ...widgets, namespaces: [name] } })),
    )
    expect(keys(routes, widgets, object('Widget', 'a', { namespace: 'r7' }))).toEqual(['r7 r7.a'])
    expect(asked()).toBe(1)
  })

  it('the one whose finalizer it has', () => {
    const { routes, asked } = counted(
      names.map((name) => reconciler(name, { for: { ...widgets, selector: `team=${name}` } })),
    )
    const held = object('Widget', 'a', { finalizers: [finalizerOf('r7')] })
    expect(keys(routes, widgets, held)).toEqual(['r7 default.a'])
    expect(asked()).toBe(1)
  })

  it('the one that owns it', () => {
    let looked = 0
    const kinds = names.map((name) => ({ ...widgets, resource: `${name}s`, kind: `K${name}` }))
    const routes = new Routes(names.map((name, at) => reconciler(name, { for: kinds[at] ?? widgets, owns: [pods] })))
    const changed = object('Pod', 'p', controlledBy('Kr7', 'a'))
    const owner = routes.ownerOf(changed)
    const change = { namespace: 'default', name: 'p', object: changed, owners: owner ? [owner] : [] }
    const targets = routes.targetsOf(pods, change, () => looked++ < 0)
    expect(targets.map(({ reconciler: name }) => name)).toEqual(['r7'])
    expect(looked).toBe(1)
  })
})

it('a change reaches all Reconcilers that select it, whatever their selectors', () => {
  const label = fc.record({ key: fc.constantFrom('a', 'b'), value: fc.constantFrom('', 'x', 'y') })
  const requirement = fc.oneof(
    label.map(({ key, value }) => `${key}=${value}`),
    label.map(({ key, value }) => `${key}!=${value}`),
    label.map(({ key, value }) => `${key} in (x, ${value})`),
    label.map(({ key, value }) => `${key} notin (${value})`),
    label.map(({ key }) => key),
    label.map(({ key }) => `!${key}`),
  )
  const asked = fc.record({
    selector: fc.array(requirement, { maxLength: 3 }).map((all) => all.join(',')),
    namespaces: fc.option(fc.subarray(['n', 'm'], { minLength: 1 }), { nil: undefined }),
  })
  const changed = fc.record({
    labels: fc.dictionary(fc.constantFrom('a', 'b'), fc.constantFrom('', 'x', 'y')),
    namespace: fc.constantFrom('n', 'm'),
    finalizers: fc.subarray(['0', '1', '2'].map(finalizerOf)),
  })
  fc.assert(
    fc.property(fc.array(asked, { maxLength: 5 }), changed, (all, { namespace, ...metadata }) => {
      const reconcilers = all.map(({ selector, namespaces }, at) =>
        reconciler(`${at}`, { for: { ...widgets, ...(selector && { selector }), ...(namespaces && { namespaces }) } }),
      )
      const widget = object('Widget', 'w', { ...metadata, namespace })
      const isHeard = ({ name, spec, selects }: Reconciler) =>
        (spec.for.namespaces?.includes(namespace) ?? true) &&
        (selects(widget) || metadata.finalizers.includes(finalizerOf(name)))
      const expected = reconcilers.filter(isHeard).map(({ name }) => `${name} ${namespace}.w`)
      expect(keys(new Routes(reconcilers), widgets, widget)).toEqual(expected)
    }),
  )
})

describe('a Reconciler is routed again', () => {
  it('when its spec changes, and not when its status does', () => {
    let changes = 0
    const registry = new Registry(silent, '', () => changes++)
    const at = (generation: number, status: object, more: object = {}) => {
      const made = reconcilerObject('widget', { for: { ...widgets, ...more } })
      return { ...made, metadata: { ...made.metadata, generation }, status }
    }
    registry.listed([at(1, {})])
    for (const phase of ['a', 'b', 'c']) registry.changed('modified', at(1, { phase }))
    expect(changes).toBe(1)
    expect(registry.served.map(({ object: { status } }) => status)).toEqual([{ phase: 'c' }])
    registry.changed('modified', at(2, {}, { selector: 'a=b' }))
    registry.changed('deleted', at(2, {}, { selector: 'a=b' }))
    expect(changes).toBe(3)
    expect(isRefused(parseReconciler(at(1, {})))).toBe(false)
  })
})

const ask = (more: Partial<ResourceAsk> = {}): ResourceAsk => ({ ref: pods, ...more })

describe('of several who ask for one resource', () => {
  it.each<[string, ResourceAsk[], ReturnType<typeof widest>]>([
    [
      'one gets what it asks for',
      [ask({ selector: 'a=b', fieldSelector: 'c=d' })],
      { labelSelector: 'a=b', fieldSelector: 'c=d' },
    ],
    ['those that agree get it, too', [ask({ selector: 'a=b' }), ask({ selector: 'a=b' })], { labelSelector: 'a=b' }],
    ['those that do not agree get everything', [ask({ selector: 'a=b' }), ask({ selector: 'a=c' })], {}],
    ['one that wants everything gets it', [ask({ selector: 'a=b' }), ask()], {}],
    ['metadata are enough if they are for all', [ask({ metadataOnly: true })], { metadataOfKind: 'Pod' }],
    [
      'whole objects if they disagree about the kind, which metadata do not tell',
      [ask({ metadataOnly: true }), ask({ metadataOnly: true, ref: { ...pods, kind: 'Pot' } })],
      {},
    ],
    ['metadata are not enough if one wants more', [ask({ metadataOnly: true }), ask()], {}],
  ])('%s', (_name, asks, selection) => {
    expect(widest(asks)).toEqual(selection)
  })

  it.each<[string, ResourceAsk[], boolean]>([
    ['metadata, whoever asks', [ask(), ask({ selector: 'a=b' }), ask({ fieldSelector: 'metadata.name=a' })], true],
    ['whole objects where one selects by another field', [ask(), ask({ fieldSelector: 'type=Opaque' })], false],
    ['whole objects where names of others are in its body', [ask(), ask({ namesInBody: true })], false],
  ])('of a kind of which only references travel is watched: %s', (_name, asks, isMetadata) => {
    expect(widest(asks, true).metadataOfKind).toBe(isMetadata ? 'Pod' : undefined)
  })

  it.each<[string, ResourceAsk[], string[] | undefined]>([
    [
      'each namespace is watched that one of them names',
      [ask({ namespaces: ['b'] }), ask({ namespaces: ['a', 'b'] })],
      ['a', 'b'],
    ],
    ['all are watched at once when one names none', [ask({ namespaces: ['b'] }), ask()], undefined],
    [
      'all are watched at once when they are many',
      [ask({ namespaces: Array.from({ length: 17 }, (_, i) => `${i}`) })],
      undefined,
    ],
  ])('%s', (_name, asks, namespaces) => {
    expect(namespacesOf(askedNamespaces(asks))).toEqual(namespaces)
  })
})

describe('an index of names', () => {
  it('gives who names something now, and forgets what nobody names', () => {
    const index = new NameIndex()
    index.set('k1', ['a', 'b'])
    index.set('k2', ['a'])
    expect([index.keysOf('a'), index.keysOf('b')]).toEqual([['k1', 'k2'], ['k1']])
    index.set('k1', ['b', 'c'])
    expect([index.keysOf('a'), index.keysOf('b'), index.keysOf('c')]).toEqual([['k2'], ['k1'], ['k1']])
    index.set('k1', [])
    index.set('k2', [])
    expect(['a', 'b', 'c'].flatMap((name) => index.keysOf(name))).toEqual([])
  })

  it('is soon done with all that one object has room for: to compare each name with each took minutes', () => {
    const index = new NameIndex()
    const names = (letter: string) => Array.from({ length: 200_000 }, (_, n) => letter + n)
    index.set('k', names('a'))
    index.set('k', names('b'))
    expect([index.keysOf('a1'), index.keysOf('b1')]).toEqual([[], ['k']])
  })
})

describe('what concerns all keys', () => {
  it('is done once for all who ask while it is being done, after they asked, and again after a failure', async () => {
    const rounds: PromiseWithResolvers<void>[] = []
    const fanOut = new Rounds(() => {
      const round = Promise.withResolvers<void>()
      rounds.push(round)
      return round.promise
    })
    const first = fanOut.run()
    const later = [fanOut.run(), fanOut.run()]
    expect(rounds).toHaveLength(1)
    rounds[0]?.reject(new Error('NATS is away'))
    await expect(first).rejects.toThrow('away')
    await new Promise(setImmediate)
    expect(rounds).toHaveLength(2)
    const last = fanOut.run()
    rounds[1]?.resolve()
    await Promise.all(later)
    await new Promise(setImmediate)
    rounds[2]?.resolve()
    await last
    expect(rounds).toHaveLength(3)
  })

  it('is done as the last who asked has it, after a failure too: a spec that has changed counts at once', async () => {
    const fanOuts = new FanOuts()
    const done: string[] = []
    const as = (spec: string) => async () => void done.push(spec)
    const failing = fanOuts.run('a', () => Promise.reject(new Error('NATS is away')))
    await expect(failing).rejects.toThrow('away')
    await fanOuts.run('a', as('new'))
    const held = Promise.withResolvers<void>()
    const first = fanOuts.run('a', () => held.promise)
    const waiting = [fanOuts.run('a', as('old')), fanOuts.run('a', as('newer'))]
    held.resolve()
    await Promise.all([first, ...waiting])
    expect(done).toEqual(['new', 'newer'])
  })
})

it.each<[selector: string, labels: Record<string, string>, matches: boolean]>([
  ['', {}, true],
  ['app=web', { app: 'web' }, true],
  ['app == web', { app: 'web' }, true],
  ['app=web', { app: 'db' }, false],
  ['app=', { app: '' }, true],
  ['app!=web', { app: 'db' }, true],
  ['app!=web', {}, true],
  ['app in (web, db)', { app: 'db' }, true],
  ['app in (web,db)', {}, false],
  ['app notin (web,db)', {}, true],
  ['app notin (web,db)', { app: 'web' }, false],
  ['app', { app: '' }, true],
  ['!app', { app: '' }, false],
  ['!app', {}, true],
  ['constructor', {}, false],
  ['!constructor', {}, true],
  ['app.kubernetes.io/name=x,tier in (a,b),!old', { 'app.kubernetes.io/name': 'x', tier: 'b' }, true],
  ['app.kubernetes.io/name=x,tier in (a,b),!old', { 'app.kubernetes.io/name': 'x', tier: 'b', old: '' }, false],
])('%s of %o: %s', (selector, labels, matches) => {
  expect(parseSelector(selector)(labels)).toBe(matches)
})

it.each(['a=b=c', 'in (a)', 'a in b', 'a>1', 'a,', '-a'])('refuses %s and says what is possible', (selector) => {
  expect(() => parseSelector(selector)).toThrow(/is not a label requirement: write key=value/)
})
