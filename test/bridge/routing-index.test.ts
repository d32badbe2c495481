import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { finalizerOf, isRefused } from '#spec'
import { parseReconciler, type Reconciler } from '../../bridge/reconcilers.ts'
import { Registry } from '../../bridge/registry.ts'
import { Routes } from '../../bridge/routing.ts'
import { silent } from '../support/silent.ts'
import { controlledBy, object, pods, reconciler, reconcilerObject, widgets } from './objects.ts'

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

const keysOf = (routes: Routes, ref: typeof widgets, changed: KubeObject): string[] => {
  const owner = routes.ownerOf(changed)
  const { namespace, name } = changed.metadata
  const change = { namespace, name, object: changed, owners: owner ? [owner] : [] }
  return routes.targetsOf(ref, change, () => false).map((target) => `${target.reconciler} ${target.key}`)
}

describe('of 1,000 Reconcilers a change looks at', () => {
  it('the one that selects its labels', () => {
    const selectors = ['team=NAME', 'tier in (gold, NAME),team==NAME', 'team in (NAME, other)']
    for (const selector of selectors) {
      const { routes, asked } = counted(
        names.map((name) => reconciler(name, { for: { ...widgets, selector: selector.replaceAll('NAME', name) } })),
      )
      const labels = { team: 'r7', tier: 'gold' }
      expect(keysOf(routes, widgets, object('Widget', 'a', { labels }))).toEqual(['r7 default.a'])
      expect(asked()).toBeLessThanOrEqual(2)
    }
  })

  it('the one that asks for its namespace', () => {
    const { routes, asked } = counted(
      names.map((name) => reconciler(name, { for: { ...widgets, namespaces: [name] } })),
    )
    expect(keysOf(routes, widgets, object('Widget', 'a', { namespace: 'r7' }))).toEqual(['r7 r7.a'])
    expect(asked()).toBe(1)
  })

  it('the one whose finalizer it has', () => {
    const { routes, asked } = counted(
      names.map((name) => reconciler(name, { for: { ...widgets, selector: `team=${name}` } })),
    )
    const held = object('Widget', 'a', { finalizers: [finalizerOf('r7')] })
    expect(keysOf(routes, widgets, held)).toEqual(['r7 default.a'])
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
      expect(keysOf(new Routes(reconcilers), widgets, widget)).toEqual(expected)
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
