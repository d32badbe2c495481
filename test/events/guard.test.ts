import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { compareVersions } from '#events'
import { decide, type Held, type Wanted } from '../../events/guard.ts'

const held = (version: number | string, fields: Partial<Held> = {}): Held => ({
  owner: '_',
  sequence: 7,
  resourceVersion: String(version),
  verb: 'modified',
  origin: undefined,
  partial: false,
  ...fields,
})
const wanted = (version: number | string, fields: Partial<Wanted> = {}): Wanted => ({
  owner: '_',
  resourceVersion: String(version),
  verb: 'modified',
  ...fields,
})

describe('resourceVersions', () => {
  it('compare as integers of any size', () => {
    fc.assert(
      fc.property(fc.bigInt(1n, 2n ** 70n), fc.bigInt(1n, 2n ** 70n), (a, b) => {
        expect(Math.sign(compareVersions(String(a), String(b)) ?? Number.NaN)).toBe(a < b ? -1 : a > b ? 1 : 0)
      }),
    )
  })

  it.each(['abc', '', '0x1', '-1', '1.5', '007'])('do not compare when one is %j', (odd) => {
    expect(compareVersions(odd, '5')).toBeUndefined()
    expect(compareVersions('5', odd)).toBeUndefined()
  })
})

describe('whether a version may be stored', () => {
  const a = 'ats~a'
  const b = 'ats~b'
  const stores = (expected: number, retire: Held[] = []) => ({ act: 'store', expected, retire })
  const keeps = (outcome: 'present' | 'newer', holder: Held, retire: Held[] = []) => ({
    act: 'keep',
    outcome,
    holder,
    retire,
  })
  const gone = held(5, { verb: 'deleted' })
  const left = held(5, { verb: 'moved', owner: a, sequence: 9 })

  const table: [string, Held[], Wanted, object][] = [
    ['nothing there', [], wanted(5), stores(0)],
    ['an older version there', [held(4)], wanted(5), stores(7)],
    ['the same version there', [held(5)], wanted(5), keeps('present', held(5))],
    ['a newer version there', [held(6)], wanted(5), keeps('newer', held(6))],
    ['9 there, 10 is newer', [held(9)], wanted(10), stores(7)],
    ['a deletion of the version there', [held(5)], wanted(5, { verb: 'deleted' }), stores(7)],
    ['a deletion of an older version', [held(6)], wanted(5, { verb: 'deleted' }), keeps('newer', held(6))],
    ['a deletion that is there', [gone], wanted(5, { verb: 'deleted' }), keeps('present', gone)],
    ['a late version after its deletion', [gone], wanted(5), keeps('newer', gone)],
    ['the version that disproves its deletion', [gone], wanted(5, { disproves: 7 }), stores(7)],
    ['the same under another owner', [gone], wanted(5, { owner: a, disproves: 7 }), stores(0, [gone])],
    ['a version that disproves an earlier deletion', [gone], wanted(5, { disproves: 6 }), keeps('newer', gone)],
    ['an older version that disproves a deletion', [gone], wanted(4, { disproves: 7 }), stores(7)],
    ['an older version after a deletion', [gone], wanted(4), keeps('newer', gone)],
    ['a new incarnation after a deletion', [gone], wanted(6, { verb: 'added' }), stores(7)],
    ['versions that do not compare', [held('x')], wanted('y'), stores(7)],
    ['equal versions that are no numbers', [held('x')], wanted('x'), keeps('present', held('x'))],
    ['a move to an owner', [held(4)], wanted(5, { owner: a }), stores(0, [held(4)])],
    ['a move at one version', [held(5)], wanted(5, { owner: a }), stores(0, [held(5)])],
    [
      'no move at one version from an owner to none',
      [held(5, { owner: a })],
      wanted(5),
      keeps('present', held(5, { owner: a })),
    ],
    [
      'an older version after a move',
      [left, held(5, { owner: b })],
      wanted(4, { owner: a }),
      keeps('newer', held(5, { owner: b })),
    ],
    [
      'the moved version under its former owner',
      [left, held(6, { owner: b })],
      wanted(5, { owner: a }),
      keeps('newer', held(6, { owner: b })),
    ],
    ['a move back later', [left, held(5, { owner: b })], wanted(6, { owner: a }), stores(9, [held(5, { owner: b })])],
    [
      'a move that a crash cut short',
      [held(4, { owner: a }), held(5, { owner: b })],
      wanted(5, { owner: b }),
      keeps('present', held(5, { owner: b }), [held(4, { owner: a })]),
    ],
    [
      'a deletion retires what a crash left',
      [held(4, { owner: a }), held(5, { owner: b })],
      wanted(6, { owner: b, verb: 'deleted' }),
      stores(7, [held(4, { owner: a })]),
    ],
    [
      'an older version retires what the newer one has left',
      [held(5, { owner: a }), held(6, { owner: b })],
      wanted(5, { owner: a }),
      keeps('newer', held(6, { owner: b }), [held(5, { owner: a })]),
    ],
    ['a tombstone elsewhere stays', [held(4, { owner: a, verb: 'deleted' })], wanted(5, { owner: b }), stores(0)],
  ]
  it.each(table)('%s', (_, there, want, decision) => {
    expect(decide(there, want)).toEqual(decision)
    expect(decide(there.toReversed(), want)).toEqual(decision)
  })
})
