import { expect, it } from 'vitest'
import { builtinsByName } from '#functions'
import { BUILTIN_RECONCILERS, fixForMissing } from '../../cli/process/functions.ts'

it('the names that are known without loading built-in functions are theirs', () => {
  const names = Object.entries(builtinsByName).map(([selected, group]) => [selected, group.map(({ name }) => name)])
  expect(BUILTIN_RECONCILERS).toEqual(Object.fromEntries(names))
})

it('the fix for a missing built-in function names its option', () => {
  expect(fixForMissing('etcd-backup')).toContain('add --builtin etcd to the arguments of this dispatcher')
  expect(fixForMissing('shop')).toBeUndefined()
})
