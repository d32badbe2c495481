import { expect, it } from 'vitest'
import { builtinNames, builtinOf, builtins } from '#functions'
import { fixForMissing } from '../../cli/process/functions.ts'

it('the name that selects a built-in function is known without loading it', async () => {
  for (const name of builtinNames)
    expect((await builtins([name])).map((one) => builtinOf(one.name))).toEqual((await builtins([name])).map(() => name))
})

it('the fix for a missing built-in function names its option', () => {
  expect(fixForMissing('etcd-backup')).toContain('add --builtin etcd to the arguments of this dispatcher')
  expect(fixForMissing('metacontroller-decorator')).toContain('add --adapter metacontroller to the arguments')
  expect(fixForMissing('shop')).toBeUndefined()
})
