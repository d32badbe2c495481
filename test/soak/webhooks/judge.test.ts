import { expect, it } from 'vitest'
import { isRecord, type KubeObject } from '#contracts'
import type { Resource } from '#sdk'
import { randomFrom } from '../../support/random.ts'
import { type Found, wrongIn } from './judge.ts'
import { bodyOf, editOf, type Fields, firstFields, releaseOf, shownIn, VERSIONS, type Version } from './pages.ts'

const fields: Fields = { ...firstFields(4), tls: 'x', ports: [1, 2], ms: 1500, label: 'l' }
const showing = (version: Version, more: object = {}, label = 'l') =>
  new Map([['page-4', { spec: { ...shownIn(version, fields).spec, ...more }, label }]])
const kill = { title: 'kill', from: 1000, to: 2000, mayRefuse: true }

const clean: Found = {
  wanted: new Map([['page-4', fields]]),
  shown: { v1: showing('v1'), v1beta1: showing('v1beta1') },
  partial: [],
  storedVersions: ['v1'],
  refusals: [{ from: 900, to: 1100, because: 'EOF' }],
  faults: [kill, { title: 'rotation', from: 3000, to: 4000, mayRefuse: false }],
}

it('finds nothing where each version shows all fields, and only a kill has refused writes', () => {
  expect(wrongIn(clean)).toEqual([])
})

it.each<[wrong: string, found: Partial<Found>]>([
  [
    'page-4 in v1: .spec.ports is [1] instead of [1,2]',
    { shown: { ...clean.shown, v1: showing('v1', { ports: [1] }) } },
  ],
  [
    'page-4 in v1: .spec.http.tls is undefined instead of "x"',
    { shown: { ...clean.shown, v1: showing('v1', { http: { url: fields.url } }) } },
  ],
  [
    'page-4 in v1beta1: .spec.legacy.note is "other" instead of "note 4"',
    { shown: { ...clean.shown, v1beta1: showing('v1beta1', { legacy: { note: 'other' } }) } },
  ],
  [
    'page-4 in v1beta1: .spec.more is 1 instead of undefined',
    { shown: { ...clean.shown, v1beta1: showing('v1beta1', { more: 1 }) } },
  ],
  ['page-4 in v1: .label is "m" instead of "l"', { shown: { ...clean.shown, v1: showing('v1', {}, 'm') } }],
  ['page-4 is not there in v1beta1', { shown: { ...clean.shown, v1beta1: new Map() } }],
  [
    'page-5 is there in v1, and nobody has made it',
    { shown: { ...clean.shown, v1: new Map([...clean.shown.v1, ['page-5', { spec: {} }]]) } },
  ],
  ['page-4 is shown in part', { partial: ['page-4'] }],
  ['objects may be stored as v1beta1, v1', { storedVersions: ['v1beta1', 'v1'] }],
  ['refused: denied', { refusals: [{ from: 2500, to: 2600, because: 'denied' }] }],
  ['refused: late', { refusals: [{ from: 3500, to: 3600, because: 'late' }] }],
])('says: %s', (wrong, found) => {
  expect(wrongIn({ ...clean, ...found })).toEqual([wrong])
})

it('wants of each edit what the conversion makes of it', () => {
  const page = releaseOf('second').for as Resource
  const random = randomFrom(1)
  let wanted = firstFields(4)
  let object = bodyOf('v1beta1', 'page', wanted)
  for (let value = 1000; value < 1300; value++) {
    const edit = editOf(VERSIONS[value % 2] ?? 'v1', random, value, wanted)
    object = merged(page.convert(object, edit.version), edit.patch) as KubeObject
    wanted = edit.after
    for (const version of VERSIONS)
      expect([edit.patch, page.convert(object, version).spec]).toEqual([edit.patch, shownIn(version, wanted).spec])
  }
})

/** After a merge patch without removals. */
function merged(value: unknown, patch: unknown): unknown {
  if (!isRecord(patch)) return patch
  const before = isRecord(value) ? value : {}
  const changed = Object.entries(patch).map(([name, one]) => [name, merged(before[name], one)] as const)
  return { ...before, ...Object.fromEntries(changed) }
}
