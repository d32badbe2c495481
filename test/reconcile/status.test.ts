import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { failurePatch, mergeConditions, RECONCILED, statusPatch } from '../../reconcile/status.ts'
import { widget } from '../dispatch/objects.ts'

const now = new Date('2030-01-01T00:00:00.500Z')
const before = '2020-01-01T00:00:00Z'
const ready = { type: 'Ready', status: 'True', reason: 'Ready', message: '', lastTransitionTime: before } as const

describe('conditions', () => {
  it('move their time only with their status', () => {
    const update = { type: 'Ready', status: 'True', reason: 'Better', message: 'even more' } as const
    expect(mergeConditions([ready], [update], 2, now)).toEqual([
      { ...update, lastTransitionTime: before, observedGeneration: 2 },
    ])
    expect(mergeConditions([ready], [{ ...update, status: 'False' }], 2, now)).toEqual([
      { ...update, status: 'False', lastTransitionTime: '2030-01-01T00:00:00Z', observedGeneration: 2 },
    ])
  })

  it('that an outcome names twice have the last word, and keep their time', () => {
    const updates = (['False', 'True'] as const).map((status) => ({ type: 'Ready', status, reason: status }))
    expect(mergeConditions([ready], updates, 2, now)).toEqual([{ ...ready, reason: 'True', observedGeneration: 2 }])
  })

  it('have the text that the API server stores: half of a surrogate pair is no other message in each run', () => {
    const update = { type: 'Ready', status: 'True', reason: 'Ready', message: 'name \ud83d' } as const
    expect(mergeConditions([ready], [update], undefined, now)).toEqual([{ ...ready, message: 'name \ufffd' }])
  })

  it('with a status of null are removed, unless the outcome names them again', () => {
    const gone = { type: 'Ready', status: null } as const
    const other = { type: 'Other', status: 'True', reason: 'Here' } as const
    expect(mergeConditions([ready, { kept: 'as is' }], [gone, { type: 'Never', status: null }], 2, now)).toEqual([
      { kept: 'as is' },
    ])
    expect(mergeConditions([ready], [gone, other, { ...other, type: 'Ready' }], 2, now)).toMatchObject([
      { type: 'Ready', reason: 'Here' },
      { type: 'Other' },
    ])
  })

  it('that are not named stay as they are, in their place', () => {
    const other = { type: 'Other', status: 'Unknown', reason: 'Never' } as const
    const merged = mergeConditions([ready, { kept: 'as is' }], [other], undefined, now)
    expect(merged.slice(0, 2)).toEqual([ready, { kept: 'as is' }])
    expect(merged[2]).toMatchObject({ type: 'Other', message: '' })
  })
})

describe('the status write', () => {
  it('is left out when the outcome says nothing of the status', () => {
    expect(statusPatch(widget({ status: { phase: 'DONE' } }), {}, now)).toBeUndefined()
  })

  it('is left out when the status is so already', () => {
    const object = widget({ status: { phase: 'DONE', observedGeneration: 1 } })
    expect(statusPatch(object, { status: { phase: 'DONE' } }, now)).toBeUndefined()
  })

  it('holds for the observed version only, and says which generation it is about', () => {
    expect(statusPatch(widget({ metadata: { generation: 7 } }), { status: { phase: 'PENDING' } }, now)).toEqual({
      metadata: { resourceVersion: '100' },
      status: { phase: 'PENDING', observedGeneration: 7 },
    })
  })

  it('removes a condition once, and only that one', () => {
    const outcome = { conditions: [{ type: 'Migrating', status: null }] }
    const migrating = { ...ready, type: 'Migrating' }
    const object = (conditions: object[]) => widget({ status: { conditions, observedGeneration: 1 } })
    expect(statusPatch(object([ready, migrating]), outcome, now)?.status).toEqual({ conditions: [ready] })
    expect(statusPatch(object([ready]), outcome, now)).toBeUndefined()
    expect(statusPatch(object([migrating]), outcome, now)?.status).toEqual({ conditions: null })
  })

  it('follows a new generation even if nothing else changes', () => {
    const object = widget({ metadata: { generation: 2 }, status: { phase: 'DONE', observedGeneration: 1 } })
    expect(statusPatch(object, { status: { phase: 'DONE' } }, now)?.status).toEqual({ observedGeneration: 2 })
  })

  it('removes what the complete status does not have, but never conditions', () => {
    const object = widget({ status: { phase: 'RUNNING', pod: 'a', conditions: [ready], observedGeneration: 1 } })
    expect(statusPatch(object, { status: { phase: 'DONE' } }, now)?.status).toEqual({ phase: 'DONE', pod: null })
  })

  it('removes fields that are called like those which every object has', () => {
    const object = widget({ status: { nodes: { constructor: 'up', toString: 'up', a: 'up' }, observedGeneration: 1 } })
    expect(statusPatch(object, { status: { nodes: { a: 'up' } } }, now)?.status).toEqual({
      nodes: { constructor: null, toString: null },
    })
  })

  it('changes fields that are called like those which every object has', () => {
    const named = (value: string) => JSON.parse(`{"__proto__":"${value}","constructor":"${value}"}`) as object
    const object = widget({ status: { nodes: named('down'), observedGeneration: 1 } })
    const patch = statusPatch(object, { status: { nodes: named('up') } }, now)
    expect(JSON.stringify(patch?.status)).toBe(JSON.stringify({ nodes: named('up') }))
  })

  it('shows a failure without touching anything else, once', () => {
    const object = widget({ metadata: { generation: 2 }, status: { phase: 'RUNNING', observedGeneration: 1 } })
    const patch = failurePatch(object, { reason: 'NameTaken', message: 'Pod default/a exists' }, now)!
    const conditions = [
      {
        type: RECONCILED,
        status: 'False',
        reason: 'NameTaken',
        message: 'Pod default/a exists',
        lastTransitionTime: '2030-01-01T00:00:00Z',
        observedGeneration: 2,
      },
    ]
    expect(patch.status).toEqual({ conditions })
    const shown = widget({ ...object, status: { phase: 'RUNNING', observedGeneration: 1, conditions } })
    expect(failurePatch(shown, { reason: 'NameTaken', message: 'Pod default/a exists' }, now)).toBeUndefined()
  })

  describe('of a function that fails again and again', () => {
    const failure = { reason: 'TypeError', message: 'TypeError at src/a.ts:1:2: no such field' }
    const ready = (status: string, more: object = {}) => ({
      type: 'Ready',
      status,
      reason: 'Running',
      message: '',
      lastTransitionTime: before,
      ...more,
    })
    const having = (...conditions: object[]) => widget({ status: { observedGeneration: 1, conditions } })
    const unknown = ready('Unknown', { reason: 'TypeError', message: `the function fails: ${failure.message}` })
    const readyIn = (patch: { status: unknown } | undefined) =>
      (patch?.status as { conditions: { type: string }[] } | undefined)?.conditions.find(({ type }) => type === 'Ready')

    it('shows Ready Unknown instead of True, with the reason of the error', () => {
      expect(readyIn(failurePatch(having(ready('True')), undefined, now, { readyUnknown: failure }))).toMatchObject({
        status: 'Unknown',
        reason: 'TypeError',
        message: `the function fails: ${failure.message}`,
      })
    })

    it.each([
      ['the Ready that its function has set', having(ready('False'))],
      ['an Unknown that its function has set', having(ready('Unknown', { message: failure.message }))],
      ['the want of a Ready', having()],
      ['the want of conditions', widget({ status: { phase: 'x' } })],
      ['what is shown, whatever the function fails with now', having({ ...unknown, reason: 'Error' })],
    ])('leaves alone %s', (_, object) => {
      expect(failurePatch(object, undefined, now, { readyUnknown: failure })).toBeUndefined()
    })

    it('shows Ready True again with the next success, or what the function says then', () => {
      expect(readyIn(statusPatch(having(unknown), {}, now))).toMatchObject({ status: 'True', reason: RECONCILED })
      const said = { type: 'Ready', status: 'False' as const, reason: 'Waiting' }
      expect(readyIn(statusPatch(having(unknown), { conditions: [said] }, now))).toMatchObject(said)
    })

    it('that then fails for good, or has a write refused, says what Ready was before all of that', () => {
      const bad = { reason: 'Bad', message: 'bad' }
      expect(readyIn(failurePatch(having(unknown), bad, now, { isTerminal: true }))).toMatchObject({
        status: 'False',
        message: 'terminal error (Ready was True before): bad',
      })
      expect(readyIn(failurePatch(having(unknown), bad, now, { refusal: bad }))).toMatchObject({
        status: 'False',
        message: 'a write was refused: bad',
      })
    })
  })

  it('has no generation for a function that returns no status, which would keep none current', () => {
    const paused = {
      type: 'Paused',
      status: 'True',
      reason: 'PausedByAnnotation',
      message: '',
      lastTransitionTime: before,
    }
    const object = widget({ metadata: { generation: 2 }, status: { conditions: [paused] } })
    const status = { conditions: [expect.objectContaining({ type: 'Paused', status: 'False', observedGeneration: 2 })] }
    expect(statusPatch(object, {}, now)?.status).toEqual(status)
    const own = { conditions: [{ type: 'Ready', status: 'True' as const, reason: 'Open' }] }
    expect(statusPatch(object, own, now)?.status).toMatchObject({ observedGeneration: 2 })
  })

  describe('of a function that returns no status any more', () => {
    const numbered = (metadata: object = {}) =>
      widget({ metadata: { generation: 3, ...metadata }, status: { phase: 'DONE', observedGeneration: 2 } })

    it('keeps the generation current that is there: the run has seen the change', () => {
      expect(statusPatch(numbered(), {}, now)?.status).toEqual({ observedGeneration: 3 })
      expect(statusPatch(numbered({ generation: 2 }), {}, now)).toBeUndefined()
      expect(statusPatch(widget({ metadata: { generation: 3 }, status: { phase: 'DONE' } }), {}, now)).toBeUndefined()
    })

    it('leaves the generation to another function that may write the status, and has not seen the change yet', () => {
      const isAlone = () => false
      expect(statusPatch(numbered(), {}, now, { isAlone })).toBeUndefined()
      expect(statusPatch(numbered(), { status: { phase: 'UP' } }, now, { isAlone })?.status).toEqual({
        phase: 'UP',
        observedGeneration: 3,
      })
      const refused = statusPatch(numbered(), {}, now, { isAlone, refusal: { reason: 'Forbidden', message: 'no' } })
      expect(Object.keys(refused?.status as object)).toEqual(['conditions'])
    })

    it.each<[what: string, object: KubeObject, outcome: object]>([
      ['while the object is deleted', numbered({ deletionTimestamp: before }), {}],
      ['before its deletion', numbered(), { deleteObject: true }],
      ['before an effect', numbered(), { effect: { kind: 'add' } }],
      ['without a generation', numbered({ generation: undefined }), {}],
    ])('%s is not worth a write', (_, object, outcome) => {
      expect(statusPatch(object, outcome, now)).toBeUndefined()
    })
  })

  it('takes the failure back when a run goes through', () => {
    const failed = { type: RECONCILED, status: 'False', reason: 'NameTaken', message: 'x', lastTransitionTime: before }
    const object = widget({ status: { observedGeneration: 1, conditions: [failed] } })
    expect(statusPatch(object, {}, now)?.status).toEqual({
      conditions: [expect.objectContaining({ type: RECONCILED, status: 'True', reason: RECONCILED })],
    })
  })

  it('merged into what was observed gives exactly what is wanted', () => {
    const json = fc.dictionary(
      fc.constantFrom('a', 'b', 'c', 'd'),
      fc.oneof(
        fc.integer(),
        fc.string(),
        fc.array(fc.integer(), { maxLength: 2 }),
        fc.dictionary(fc.constantFrom('x', 'y'), fc.oneof(fc.boolean(), fc.dictionary(fc.constant('z'), fc.integer()))),
      ),
    )
    fc.assert(
      fc.property(json, json, (current, wanted) => {
        const patch = statusPatch(widget({ status: current }), { status: wanted }, now)
        const merged = patch === undefined ? current : merge(current, patch.status)
        expect(merged).toEqual({ ...wanted, observedGeneration: 1 })
      }),
    )
  })
})

/** RFC 7386, as its pseudocode has it. */
function merge(target: unknown, patch: unknown): unknown {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch)) return patch
  const merged: Record<string, unknown> = typeof target === 'object' && !Array.isArray(target) ? { ...target } : {}
  for (const [field, value] of Object.entries(patch)) {
    if (value === null) delete merged[field]
    else merged[field] = merge(merged[field], value)
  }
  return merged
}
