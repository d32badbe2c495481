import { expect, it } from 'vitest'
import type { Known } from '../../bridge/relist.ts'
import { KnownObjects } from '../../bridge/relist.ts'

const copy = (resourceVersion: string, more: Partial<Known> = {}): Known => ({
  uid: 'u1',
  resourceVersion,
  deleted: false,
  owner: { resource: 'widgets', name: 'a' },
  covered: true,
  partial: false,
  sequence: Number(resourceVersion),
  hasStaleCopy: false,
  ...more,
})
const other = { owner: { resource: 'widgets', name: 'b' } }

it.each<[string, Known, Known, boolean]>([
  ['an older copy under another owner', copy('7'), copy('5', other), true],
  ['an older copy under no owner', copy('7'), copy('5', { owner: undefined }), true],
  ['a present copy under another owner beside a deletion', copy('7', { deleted: true }), copy('5', other), true],
  ['an older deletion under another owner', copy('7'), copy('5', { ...other, deleted: true }), false],
  ['an older copy under the same owner', copy('7'), copy('5'), false],
])('the latest copy counts, and %s is noted, in any order', (_, latest, older, hasStaleCopy) => {
  for (const copies of [
    [latest, older],
    [older, latest],
  ]) {
    const objects = new KnownObjects()
    for (const known of copies) objects.add('default.c', known)
    expect(objects.take('default.c')).toEqual({ ...latest, hasStaleCopy })
  }
})
