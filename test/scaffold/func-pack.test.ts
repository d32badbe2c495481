import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { version } from '#process/version'
import { buildFuncPack } from '../../packages/release/publish.ts'
import { type FuncTemplate, funcTemplates } from '../support/func-pack.ts'

const ROOT = join(import.meta.dirname, '../..')
/** Runtimes of pkg/scaffolding/detectors.go: builders refuse a function of any other runtime. */
const BUILDABLE = ['go', 'node', 'python', 'quarkus', 'rust', 'springboot', 'typescript']

let templates: FuncTemplate[]
let dir: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-func-pack-'))
  templates = await funcTemplates(await buildFuncPack(dir, version))
})
afterAll(() => rm(dir, { recursive: true }))
const pack = () => templates[0] as FuncTemplate
const manifest = () =>
  JSON.parse(pack().files.get('package.json') ?? '') as {
    scripts: Record<string, string>
    engines: Record<string, string>
    dependencies: Record<string, string>
  }

describe('the language pack, as func reads what a release builds', () => {
  it('is the one template, of a runtime that can be built', () => {
    expect(templates.map(({ runtime, name }) => `${runtime}/${name}`)).toEqual(['typescript/reconciler'])
    expect(BUILDABLE).toContain(pack().runtime)
  })

  it('copies all files of the template but its manifest: none else has that name', () => {
    expect([...pack().files.keys()].toSorted()).toEqual([
      '.gitignore',
      'README.md',
      'examples/website.yaml',
      'package.json',
      'src/index.ts',
      'src/website.test.ts',
      'src/website.ts',
      'tsconfig.json',
    ])
  })

  it('is invoked by events, and is probed where the server of functions answers', async () => {
    const server = await readFile(join(ROOT, 'sdk/serve.ts'), 'utf8')
    const { invoke, healthEndpoints = {} } = pack().config
    expect(invoke).toBe('cloudevent')
    for (const path of Object.values(healthEndpoints)) expect(server).toContain(path)
  })

  it('starts by npm start, with this version, on a Node.js that runs TypeScript, without a build', () => {
    const { scripts, engines, dependencies } = manifest()
    expect(scripts).toMatchObject({ start: 'fairlead serve -f src/index.ts', test: expect.any(String) })
    expect(scripts).not.toHaveProperty('build')
    expect(engines).toEqual({ node: '>=24.12' })
    expect(dependencies).toEqual({ fairlead: `^${version}` })
  })

  it('has the function and the tests of the template resource', async () => {
    for (const file of ['src/website.ts', 'src/website.test.ts'])
      expect(pack().files.get(file)).toBe(
        await readFile(join(ROOT, 'packages/scaffold/templates/resource', file), 'utf8'),
      )
  })
})
