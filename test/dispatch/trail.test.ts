import { describe, expect, it } from 'vitest'
import type { Ask } from '#reconcile'
import { Trail } from '../../dispatch/run/trail.ts'

const object = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a', resourceVersion: '1' } }
const input = { object, owned: {}, related: {}, attempt: 0, now: '2026-01-01T00:00:00Z', finalizing: false }
const effect = { kind: 'addMember' }
const call: Ask = { do: 'call', input }
const perform: Ask = { do: 'perform', input: { ...input, ask: 'perform', effect }, shown: '' }
const status: Ask = {
  do: 'writeStatus',
  object,
  patch: { metadata: { resourceVersion: '1' }, status: { a: 1 } },
  mayBeDropped: true,
}
const finalizers: Ask = { do: 'writeFinalizers', object, finalizers: ['fairlead.dev/a'] }
const after = { ...object, metadata: { name: 'a', resourceVersion: '2' } }

describe('the trail of a run', () => {
  it.each([null, undefined, 'dropped', 0, { failed: 'is a field of the result' }])(
    'takes whatever an effect returns: %j',
    (result) => {
      const trail = new Trail()
      trail.note(call, { did: 'call', returned: { effect } })
      trail.note(perform, { did: 'perform', result })
      expect(trail.rounds[0]?.writes).toEqual([{ verb: 'effect', object, before: undefined, after: undefined }])
    },
  )

  it('has what is written before the first call', () => {
    const trail = new Trail()
    trail.note(finalizers, { did: 'writeFinalizers', result: { object: after, isOld: false } })
    trail.note(call, { did: 'call', returned: {} })
    expect(trail.rounds).toMatchObject([{ writes: [{ verb: 'finalizers', after }] }])
  })

  it('has no status that was not sent, and each that was refused with why', () => {
    const trail = new Trail()
    trail.note(call, { did: 'call', returned: {} })
    trail.note(status, { did: 'writeStatus', result: 'dropped' })
    trail.note(status, { failed: new Error('no') })
    expect(trail.rounds[0]?.writes).toMatchObject([{ verb: 'status', patch: { a: 1 }, failed: new Error('no') }])
  })

  it('has why a call failed', () => {
    const trail = new Trail()
    trail.note(call, { failed: new Error('no') })
    expect(trail.rounds).toEqual([{ input, failed: new Error('no'), writes: [] }])
  })
})
