import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'

const ROOT = join(import.meta.dirname, '../..')
const TEMPLATE = join(ROOT, 'packages/scaffold/templates/http')
const PROGRAM = join(ROOT, 'docs/examples/executables/website.py')
const [DEPLOY, EXAMPLE] = [join(TEMPLATE, 'deploy'), join(TEMPLATE, 'examples')]

let dir: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-laws-'))
})
afterAll(() => rm(dir, { recursive: true, force: true }))

/** The example in Python with a mistake. */
async function broken(name: string, right: string, wrong: string): Promise<string> {
  const [path, text] = [join(dir, name), await readFile(PROGRAM, 'utf8')]
  expect(text).toContain(right)
  await cp(PROGRAM, path)
  await writeFile(path, text.replace(right, wrong))
  return path
}
const laws = (program: string, ...more: string[]) =>
  command(['laws', DEPLOY, EXAMPLE, '--exec', program, '--lines', ...more])

describe('the laws of a program', () => {
  it('hold for the example, and the same over HTTP', async () => {
    const found = await laws(PROGRAM, '--histories', '1')
    expect(found).toMatchObject({ code: 0, stderr: '' })
    expect(found.stdout).toContain('✓ comes to the same end if its process dies between any two writes')
    await using served = startFairlead(['serve', 'website', '--exec', PROGRAM, '--lines'], { PORT: '0' })
    const { port } = await served.logged(({ msg }) => msg === 'serving')
    const law = 'comes to the same end if its process dies between any two writes'
    const one = ['--histories', '1', '--law', law]
    const overHttp = await command(['laws', DEPLOY, EXAMPLE, '--url', `http://127.0.0.1:${port}`, ...one])
    expect(overHttp).toEqual(await laws(PROGRAM, ...one))
  })

  it.each([
    [
      'reads a clock',
      'labels = {"app": name}',
      'import time; labels = {"app": name, "at": str(time.time())}',
      'decides the same on the same state, whatever the order of its lists',
      'two calls on the same input differ',
    ],
    [
      'remembers former calls',
      'labels = {"app": name}',
      'global calls; calls = globals().get("calls", 0) + 1; labels = {"app": name, "n": "1" if calls > 1 else "0"}',
      'decides the same on the same state, whatever the order of its lists',
      'it remembers former calls',
    ],
    [
      'writes the time',
      '"status": {"ready": ready}',
      '"status": {"ready": ready, "at": request["now"]}',
      'writes nothing when it runs again, at once or a second later',
      'writes the time or so',
    ],
    [
      'gives up if a write is refused',
      'wanted = spec',
      'if request.get("refused"): return {"error": {"message": "refused", "terminal": True}}\n    wanted = spec',
      'comes to the same end if a write is refused for some time',
      'it is not tried again if the',
    ],
  ])('find one that %s, and name the command that repeats the case', async (what, right, wrong, law, message) => {
    const path = await broken(`${what.replaceAll(' ', '-')}.py`, right, wrong)
    const found = await laws(path, '--law', law)
    expect(found).toMatchObject({ code: 1, stdout: expect.stringContaining(`✗ ${law}`) as string })
    expect(found.stdout).toContain(message)
    const [, which = '', line = ''] = /: FAIRLEAD_CASE=(\S+) npx fairlead (.*)$/m.exec(found.stdout) ?? []
    const args = [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, word]) => quoted ?? word ?? '')
    const again = await command(args, { FAIRLEAD_CASE: which })
    expect(again).toMatchObject({ code: 1, stdout: expect.stringContaining(message) as string })
  })

  it('show what the program wrote before it failed', async () => {
    const path = await broken('fails.py', 'labels = {"app": name}', 'raise KeyError("no such page")')
    const found = await laws(path, '--histories', '1', '--law', 'comes to the same end if another client writes first')
    expect(found.code).toBe(1)
    expect(found.stdout).toContain('ended with exit code 1')
    expect(found.stdout).toContain("the program wrote: KeyError: 'no such page'")
  })

  it.each([
    ['without bounds, from 0', '', '0 <= n <= 5'],
    ['of a unit, in its multiples', 'minimum: 1, multipleOf: 100', '100 <= n <= 501 and n % 100 == 0'],
    ['with a maximum alone, from 0', 'maximum: 3', '0 <= n <= 3'],
  ])('draw a number %s', async (what, bounds, holds) => {
    const folder = join(dir, what.replaceAll(/\W+/g, '-'))
    await cp(DEPLOY, folder, { recursive: true })
    const path = join(folder, 'crds.yaml')
    const schema = `replicas: { type: integer, format: int32${bounds === '' ? '' : `, ${bounds}`} }`
    const definition = await readFile(path, 'utf8')
    const inFlow = definition.replace(/replicas:\n(?: {18}.*\n)+/, `${schema}\n`)
    expect(inFlow).toContain(schema)
    await writeFile(path, inFlow)
    const checked = `for n in [spec["replicas"]] if "replicas" in spec else []:\n        assert ${holds}, n\n    wanted = spec`
    const program = await broken(`${what.replaceAll(/\W+/g, '-')}.py`, 'wanted = spec', checked)
    const law = 'decides the same on the same state, whatever the order of its lists'
    const found = await command(['laws', folder, '--exec', program, '--lines', '--law', law])
    expect(found).toMatchObject({ code: 0, stdout: expect.stringContaining(`✓ ${law}`) as string })
  })

  it.each([
    [['laws', EXAMPLE, '--exec', 'cat'], 'has no Reconciler'],
    [['laws', join(DEPLOY, 'reconciler.yaml'), '--exec', 'cat'], 'CustomResourceDefinition websites.example.com'],
    [['laws', DEPLOY], 'give --exec PROGRAM or --url URL'],
    [['laws', DEPLOY, '--exec', './nope'], 'there is no program ./nope'],
    [['laws', DEPLOY, '--exec', 'cat', '--law', 'holds always'], 'there is no such law'],
  ])('are not checked where something is missing: %j', async (args, message) => {
    expect(await command(args)).toMatchObject({ code: 2, stderr: expect.stringContaining(message) })
  })
})
