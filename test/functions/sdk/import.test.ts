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

it('is served without loading a client of NATS or Kubernetes', async () => {
  const serve = `const { main } = await import('#cli'); await main(['node', 'fairlead', 'serve', '--port', 'none'])`
  const code = program().replace('console.log', `${serve}\n  console.log`)
  const { stdout } = await promisify(execFile)(process.execPath, [
    '--input-type=module',
    '--eval',
    `${code}\nprocess.exit(0)`,
  ])
  const packages = JSON.parse(stdout) as string[]
  expect(packages).toContain('commander')
  expect(packages.filter((name) => /nats|kube|prom/.test(name))).toEqual([])
})
