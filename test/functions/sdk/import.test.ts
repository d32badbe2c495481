import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

const program = `
  import { registerHooks } from 'node:module'
  const packages = new Set()
  registerHooks({
    load(url, context, next) {
      packages.add(/node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(url)?.[1] ?? 'fairlead')
      return next(url, context)
    },
  })
  await import('#functions/at')
  console.log(JSON.stringify([...packages].sort()))
`

it('costs a function no package but zod to start', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', program])
  expect(JSON.parse(stdout)).toEqual(['fairlead', 'zod'])
})
