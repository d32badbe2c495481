import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { coverageId, reconcilerSpec } from '#spec'
import { Identities } from '../../dispatch/dispatcher.ts'
import { WIDGETS } from './fixture.ts'

const object = (name: string, year: number, identity?: string): KubeObject => ({
  apiVersion: 'fairlead.dev/v1alpha1',
  kind: 'Reconciler',
  metadata: { name, creationTimestamp: `${year}-01-01T00:00:00Z` },
  spec: { for: WIDGETS, invoke: { pull: {} }, ...(identity !== undefined && { identity }) },
})
const known = (...objects: KubeObject[]): Identities => {
  const identities = new Identities()
  for (const one of objects) identities.update({ verb: 'added', object: one })
  identities.complete()
  return identities
}

describe('a Reconciler is alone with the status of its objects', () => {
  const of = (name: string, more: object = {}, identity?: string): KubeObject => {
    const one = object(name, 2030, identity)
    return { ...one, spec: { ...(one.spec as object), for: { ...WIDGETS, ...more } } }
  }
  it.each<[what: string, other: KubeObject, isAlone: boolean, own?: object]>([
    ['not beside another one for the kind', of('b'), false],
    ['not beside one in a common namespace', of('b', { namespaces: ['x', 'y'] }), false, { namespaces: ['y'] }],
    ['not beside one for all namespaces', of('b'), false, { namespaces: ['y'] }],
    ['beside one in other namespaces', of('b', { namespaces: ['x'] }), true, { namespaces: ['y'] }],
    ['beside one for another kind', of('b', { resource: 'gadgets' }), true],
    ['beside one that writes no status', of('b', { status: 'Untouched' }), true],
    ['beside one under its former name, which is not served', of('b', {}, 'a'), true],
  ])('%s', (_, other, isAlone, own) => {
    const identities = known(of('a', own), other)
    expect(identities.isAlone('a')).toBe(isAlone)
    identities.update({ verb: 'modified', object: of('b', { resource: 'gadgets' }) })
    expect(identities.isAlone('a')).toBe(true)
    identities.update({ verb: 'modified', object: of('b') })
    identities.update({ verb: 'deleted', object: of('b') })
    expect(identities.isAlone('a')).toBe(true)
  })
})

describe('of Reconcilers with one identity', () => {
  it.each([
    ['a new name beside the former one', [object('new', 2031, 'old'), object('old', 2030)], 'old'],
    ['the former name comes back', [object('old', 2031), object('new', 2030, 'old')], 'new'],
    ['two new names', [object('b', 2030, 'old'), object('a', 2030, 'old')], 'a'],
  ])('the oldest one is served: %s', (_, objects, holder) => {
    const identities = known(...objects)
    expect(objects.map(({ metadata }) => identities.holderOf(metadata.name))).toEqual([holder, holder])
  })

  it('none is served before all Reconcilers are known', () => {
    const identities = new Identities()
    identities.update({ verb: 'added', object: object('new', 2031, 'old') })
    expect(identities.holderOf('new')).toBeUndefined()
  })

  it('the others are named when one comes, changes its identity or goes, and only then', () => {
    const identities = known(object('old', 2030))
    const update = (verb: 'added' | 'modified' | 'deleted', one: KubeObject) => identities.update({ verb, object: one })
    expect(update('added', object('new', 2031, 'old'))).toEqual(['old'])
    expect(update('modified', { ...object('new', 2031, 'old'), status: {} })).toEqual([])
    expect(update('modified', object('new', 2031))).toEqual(['old'])
    expect(update('modified', object('new', 2031, 'old'))).toEqual(['old'])
    expect(update('deleted', object('old', 2030))).toEqual(['new'])
    expect(identities.holderOf('new')).toBe('new')
  })
})

it('a Reconciler with another identity wants every key enqueued again', () => {
  const idOf = (identity?: string) => {
    const one = object('a', 2030, identity)
    return coverageId(one, reconcilerSpec.parse(one.spec))
  }
  expect(new Set([idOf(), idOf('b'), idOf('c')]).size).toBe(3)
})
