import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { compareVersions } from '#events'
import { decideVersion, type StoredCopy, type WantedVersion } from '../../streams/events/version-conflict.ts'

const copy = (version: number | string, fields: Partial<StoredCopy> = {}): StoredCopy => ({
  owner: '_',
  sequence: 7,
  resourceVersion: String(version),
  verb: 'modified',
  origin: undefined,
  partial: false,
  sole: false,
  ...fields,
})
const wanted = (version: number | string, fields: Partial<WantedVersion> = {}): WantedVersion => ({
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
  const stores = (expected: number, obsolete: StoredCopy[] = []) => ({ act: 'store', expected, obsolete })
  const keeps = (outcome: 'present' | 'newer', holder: StoredCopy, obsolete: StoredCopy[] = []) => ({
    act: 'keep',
    outcome,
    holder,
    obsolete,
  })
  const gone = copy(5, { verb: 'deleted' })
  const left = copy(5, { verb: 'moved', owner: a, sequence: 9 })

  const table: [string, StoredCopy[], WantedVersion, object][] = [
    ['nothing there', [], wanted(5), stores(0)],
    ['an older version there', [copy(4)], wanted(5), stores(7)],
    ['the same version there', [copy(5)], wanted(5), keeps('present', copy(5))],
    ['a newer version there', [copy(6)], wanted(5), keeps('newer', copy(6))],
    ['9 there, 10 is newer', [copy(9)], wanted(10), stores(7)],
    ['a deletion of the version there', [copy(5)], wanted(5, { verb: 'deleted' }), stores(7)],
    ['a deletion of an older version', [copy(6)], wanted(5, { verb: 'deleted' }), keeps('newer', copy(6))],
    ['a deletion that is there', [gone], wanted(5, { verb: 'deleted' }), keeps('present', gone)],
    ['a late version after its deletion', [gone], wanted(5), keeps('newer', gone)],
    ['the version that overrides its deletion', [gone], wanted(5, { overrides: 7 }), stores(7)],
    ['the same under another owner', [gone], wanted(5, { owner: a, overrides: 7 }), stores(0, [gone])],
    ['a version that overrides an earlier deletion', [gone], wanted(5, { overrides: 6 }), keeps('newer', gone)],
    ['an older version that overrides a deletion', [gone], wanted(4, { overrides: 7 }), stores(7)],
    ['an older version after a deletion', [gone], wanted(4), keeps('newer', gone)],
    ['a new incarnation after a deletion', [gone], wanted(6, { verb: 'added' }), stores(7)],
    ['versions that do not compare', [copy('x')], wanted('y'), stores(7)],
    ['equal versions that are no numbers', [copy('x')], wanted('x'), keeps('present', copy('x'))],
    ['a move to an owner', [copy(4)], wanted(5, { owner: a }), stores(0, [copy(4)])],
    ['a move at one version', [copy(5)], wanted(5, { owner: a }), stores(0, [copy(5)])],
    [
      'no move at one version from an owner to none',
      [copy(5, { owner: a })],
      wanted(5),
      keeps('present', copy(5, { owner: a })),
    ],
    [
      'an older version after a move',
      [left, copy(5, { owner: b })],
      wanted(4, { owner: a }),
      keeps('newer', copy(5, { owner: b })),
    ],
    [
      'the moved version under its former owner',
      [left, copy(6, { owner: b })],
      wanted(5, { owner: a }),
      keeps('newer', copy(6, { owner: b })),
    ],
    ['a move back later', [left, copy(5, { owner: b })], wanted(6, { owner: a }), stores(9, [copy(5, { owner: b })])],
    [
      'a move that a crash cut short',
      [copy(4, { owner: a }), copy(5, { owner: b })],
      wanted(5, { owner: b }),
      keeps('present', copy(5, { owner: b }), [copy(4, { owner: a })]),
    ],
    [
      'a deletion marks what a crash left',
      [copy(4, { owner: a }), copy(5, { owner: b })],
      wanted(6, { owner: b, verb: 'deleted' }),
      stores(7, [copy(4, { owner: a })]),
    ],
    [
      'an older version marks what the newer one has left',
      [copy(5, { owner: a }), copy(6, { owner: b })],
      wanted(5, { owner: a }),
      keeps('newer', copy(6, { owner: b }), [copy(5, { owner: a })]),
    ],
    ['a tombstone elsewhere stays', [copy(4, { owner: a, verb: 'deleted' })], wanted(5, { owner: b }), stores(0)],
  ]
  it.each(table)('%s', (_, there, want, decision) => {
    expect(decideVersion(there, want)).toEqual(decision)
    expect(decideVersion(there.toReversed(), want)).toEqual(decision)
  })
})
