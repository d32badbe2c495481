import { expect, it } from 'vitest'
import { coverageToken, reconcilerSpec } from '#spec'

const object = { apiVersion: 'v1', kind: 'Reconciler', metadata: { name: 'a', uid: 'u' } }
const spec = { invoke: { pull: {} }, for: { group: 'example.com', version: 'v1', resource: 'widgets', kind: 'Widget' } }
const tokenOf = (more: object): string => coverageToken(object, reconcilerSpec.parse({ ...spec, ...more }))

it('a Reconciler that begins or ceases to finalize is owed a list: it has another finalizer to keep, and another watch', () => {
  expect(tokenOf({ finalize: true })).not.toBe(tokenOf({ finalize: false }))
  expect(tokenOf({ concurrency: 3 })).toBe(tokenOf({}))
})
