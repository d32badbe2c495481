import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

const program = (...modules: string[]) => `
  import { registerHooks } from 'node:module'
  const packages = new Set()
  registerHooks({
    load(url, context, next) {
      packages.add(/node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(url)?.[1] ?? 'fairlead')
      return next(url, context)
    },
  })
  for (const module of ${JSON.stringify(modules)}) await import(module)
  console.log(JSON.stringify([...packages].sort()))
`

it.each([[['#functions/at']], [['#functions/at', '#sdk/serve']]])(
  'costs %j no package but zod to start',
  async (modules) => {
    const args = ['--input-type=module', '--eval', program(...modules)]
    const { stdout } = await promisify(execFile)(process.execPath, args)
    expect(JSON.parse(stdout)).toEqual(['fairlead', 'zod'])
  },
)
