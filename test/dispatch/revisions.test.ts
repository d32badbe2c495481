import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { coverageId, type Revision, reconcilerSpec } from '#spec'
import { recorded, repeatedAt } from '../../dispatch/serve/reconciler-lifecycle.ts'

const now = new Date('2030-01-01T00:00:00Z')
const minutes = (count: number) => new Date(now.getTime() + count * 60_000)
const known = (...names: string[]): Revision[] => names.map((name) => ({ name, at: now.toISOString() }))

describe('the revisions of a function', () => {
  it('are recorded in the order of their first answers; an older one that answers again changes nothing', () => {
    const first = recorded([], 'a', now)
    expect(first).toEqual(known('a'))
    const second = recorded(first!, 'b', now)
    expect(second).toEqual(known('a', 'b'))
    expect([recorded(second!, 'a', now), recorded(second!, 'b', now)]).toEqual([undefined, undefined])
  })

  it('are recorded up to ten', () => {
    const names = Array.from('abcdefghij')
    expect(recorded(known(...names), 'k', now)).toEqual(known(...names.slice(1), 'k'))
  })

  it.each([
    ['the newest one', 'b', minutes(0), undefined],
    ['an older one during the roll-out', 'a', minutes(9), minutes(10.5)],
    ['an older one after it', 'a', minutes(10), undefined],
    ['one that is not recorded yet', 'c', minutes(0), undefined],
  ])('say when an object runs again that was run by %s', (_, name, at, again) =>
    expect(repeatedAt(known('a', 'b'), name, { now: at, random: () => 0.5 })).toEqual(again),
  )

  it('say nothing while there is only one', () =>
    expect(repeatedAt(known('a'), 'a', { now, random: () => 0.5 })).toBeUndefined())
})

describe('what a Reconciler gets', () => {
  const kind = { group: 'example.com', version: 'v1', resource: 'widgets', kind: 'Widget' }
  const idOf = (revisions: Revision[], more: object = {}) => {
    const metadata = { name: 'a', uid: 'u' }
    const object: KubeObject = { apiVersion: 'v1', kind: 'Reconciler', metadata, status: { revisions } }
    return coverageId(object, reconcilerSpec.parse({ invoke: { pull: {} }, for: kind, ...more }))
  }

  it('is a run of every object when a second revision is recorded, not when the first one is', () => {
    expect(idOf(known('a'))).toBe(idOf([]))
    expect(idOf(known('a', 'b'))).not.toBe(idOf(known('a')))
    expect(idOf(known('b', 'c'))).not.toBe(idOf(known('a', 'b')))
  })

  it('is what its author says where that is given', () => {
    const revision = 'by hand'
    expect(idOf(known('a', 'b'), { revision })).toBe(idOf([], { revision }))
    expect(idOf([], { revision })).not.toBe(idOf([]))
  })
})
