import { expect, it } from 'vitest'
import { coverageId, reconcilerSpec } from '#spec'

const object = { apiVersion: 'v1', kind: 'Reconciler', metadata: { name: 'a', uid: 'u' } }
const spec = { invoke: { pull: {} }, for: { group: 'example.com', version: 'v1', resource: 'widgets', kind: 'Widget' } }
const idOf = (more: object): string => coverageId(object, reconcilerSpec.parse({ ...spec, ...more }))

it('a Reconciler that begins or ceases to finalize gets a list: it has another finalizer to keep, and another watch', () => {
  expect(idOf({ finalize: true })).not.toBe(idOf({ finalize: false }))
  expect(idOf({ concurrency: 3 })).toBe(idOf({}))
})

it.each([
  ['customresourcecleanup.apiextensions.k8s.io', false],
  ['kubernetes.io/pv-protection', false],
  ['foregroundDeletion', false],
  ['cache.example.com/finalizer', true],
  ['notk8s.io/finalizer', true],
])('the finalizer %s is one of a former operator: %s', (name, isOne) => {
  expect(reconcilerSpec.safeParse({ ...spec, finalize: true, formerFinalizers: [name] }).success).toBe(isOne)
})
