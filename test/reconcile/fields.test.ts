import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { withoutKept } from '#reconcile'
import { type PatchedFields, patchManagerOf, patchRecord, patchRecordOf } from '#spec'
import type { TakenField } from '../../reconcile/brake.ts'
import { NO_PROGRESS, planFields } from '../../reconcile/fields.ts'

const NOW = new Date('2030-01-01T00:00:00Z')
const REF = { group: 'apps', version: 'v1', resource: 'deployments', kind: 'Deployment' }
const PLACE = { ...REF, namespace: 'default', name: 'web' }
const web = (spec: object, name = 'web'): KubeObject => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name, namespace: 'default', uid: 'w', resourceVersion: '1' },
  spec,
})
const wanted = (name = 'web') => {
  const { uid: _, resourceVersion: __, ...metadata } = web({}, name).metadata
  return { ...web({ replicas: 0 }, name), metadata } as never
}

interface Given {
  name?: string
  entry?: Partial<PatchedFields>
  observed?: KubeObject[]
  taken?: TakenField[]
  noOps?: Record<string, string>
}

/** Plans `spec.replicas: 0`, which may be taken over. */
function planned({ name, entry = {}, observed = [web({ replicas: 5 })], taken, noOps = {} }: Given) {
  const primary: KubeObject = {
    apiVersion: 'example.com/v1',
    kind: 'Drain',
    metadata: { name: 'd', namespace: 'default', uid: 'd', generation: 1 },
  }
  const record = patchRecord(primary, [{ ...PLACE, ...entry }]) ?? ''
  const object = { ...primary, metadata: { ...primary.metadata, annotations: { [patchRecordOf('scale')]: record } } }
  const id = JSON.stringify(['apps', 'deployments', 'default', 'web', false])
  const progress = taken === undefined ? NO_PROGRESS : { ...NO_PROGRESS, taken: new Map([[id, taken]]) }
  const patches = [{ ...REF, within: 'Namespace' as const, takes: ['spec.replicas'] }]
  const circumstances = { identity: 'scale', now: NOW, noOps, progress, isGoing: false, isConfidential: () => false }
  const plan = planFields({ patches }, { object, owned: [], patched: observed }, [wanted(name)], circumstances)
  const value = plan.record?.value ?? record
  return { ...plan, entry: (JSON.parse(value) as { objects: PatchedFields[] }).objects[0] }
}

const conflict = (manager: string): TakenField[] => [{ field: '.spec.replicas', manager }]
const ours = patchManagerOf('other', web({}))
const contest = { times: 6, at: NOW.getTime(), manager: 'x', fields: ['.spec.replicas'], on: 1 }
const byOurs = { ...contest, at: NOW.getTime() - 1, manager: ours }

describe('the record of fields of others', () => {
  it.each(['x/y', '%', '.', 'x'.repeat(254)])('cannot lose its entries to an outcome with the name %s', (name) => {
    expect(planned({ name }).findings).toEqual([expect.stringContaining('no object can have the name')])
    expect(() => patchRecord(web({}), [{ ...PLACE, name }])).toThrow(/"name"/)
  })

  it.each<[what: string, given: Given, before: object | undefined]>([
    ['one value', {}, { 'spec.replicas': 5 }],
    ['none', { observed: [web({})] }, { 'spec.replicas': null }],
    ['a map', { observed: [web({ replicas: { a: 1 } })] }, undefined],
    ['a long text', { observed: [web({ replicas: 'x'.repeat(1025) })] }, undefined],
    ['a map that another manager has set', { observed: [web({ replicas: {} })], taken: conflict('x') }, undefined],
    ['the value of another function', { taken: conflict(ours) }, undefined],
    [
      'that of another function, recorded',
      { entry: { before: { 'spec.replicas': 0 } }, taken: conflict(ours) },
      undefined,
    ],
    ['the value of another function, while it waits', { entry: { contest: byOurs } }, undefined],
  ])('has as value of before: %s', (_, given, before) => {
    expect(planned(given).entry?.before).toEqual(before)
  })

  it('is one text, in whatever order it came about', () => {
    const one = { ...PLACE, paths: 'p', contest, before: { 'spec.a': 1, 'spec.b': 2 } }
    const { before: _, contest: counted, paths, ...place } = one
    const turned = { before: { 'spec.b': 2, 'spec.a': 1 }, contest: counted, paths, ...place }
    const other = { ...PLACE, name: 'api' }
    expect(patchRecord(web({}), [other, turned])).toBe(patchRecord(web({}), [one, other]))
  })

  it('has no value of before for a field that was set before it was in takes, so that it is removed', () => {
    const observed = [web({ replicas: 0 })]
    const recorded = { before: { 'spec.replicas': 5 } }
    const { fingerprint } = planned({ entry: recorded }).fields[0]!
    const { paths } = planned({ entry: recorded, observed, noOps: { 'w/fields': `1 ${fingerprint}` } }).entry!
    expect(paths).toBeDefined()
    expect(planned({ entry: { paths }, observed }).entry?.before).toEqual({ 'spec.replicas': null })
    expect(planned({ entry: { paths }, taken: conflict('x') }).entry?.before).toEqual({ 'spec.replicas': 5 })
  })
})

describe('a field in takes', () => {
  it('is taken from a manager of its owner, and not from another function', () => {
    const counted = { contest, before: { 'spec.replicas': 5 } }
    expect(planned({ entry: counted, taken: conflict('x') }).fields).toMatchObject([{ isTaking: true }])
    expect(planned({ entry: counted, taken: conflict(ours) }).fields).toMatchObject([{ isTaking: false }])
    expect(planned({ entry: { contest: byOurs } })).toMatchObject({ held: [{}], delayed: [], fields: [] })
    const [held] = planned({ entry: { contest: byOurs } }).held
    expect(held?.message).toContain(
      `Reconciler other for another object (${ours}) has .spec.replicas; not tried again before`,
    )
  })

  it('is not set before EVENTS has the object', () => {
    expect(planned({ observed: [] }).fields).toMatchObject([{ needsBefore: true }])
    expect(planned({}).fields).toMatchObject([{ needsBefore: false }])
  })

  it('stays with another manager that has set it to the same value, when its value of before is refused', () => {
    const [write] = planned({ entry: { before: { 'spec.replicas': 5 } } }).fields
    const giving = { ...write!, object: web({}) }
    expect(withoutKept(giving, conflict('x'))?.before).toEqual({})
    expect(withoutKept(giving, [{ field: '.spec.paused', manager: 'x' }])).toBeUndefined()
    expect(withoutKept(write!, conflict('x')), 'it is set').toBeUndefined()
  })
})

describe('a count in the record', () => {
  it('with a time in the future does not count as that of this run', () => {
    const entry = { before: { 'spec.replicas': 5 }, contest: { ...contest, at: NOW.getTime() + 60_000 } }
    expect(planned({ entry })).toMatchObject({ fields: [], delayed: [{}] })
    expect(planned({ entry, taken: conflict('x') }).entry?.contest).toMatchObject({ times: 7, at: NOW.getTime() })
  })
})
