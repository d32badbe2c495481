import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { version } from '#process/version'
import { BIN } from '../support/fairlead.ts'
import { installPackage, PACKED_WITHIN_MS } from '../support/package.ts'

const ROOT = join(import.meta.dirname, '../..')
const REGISTRY = `^${version}`
const SERVER = 'https://example.com'

let dir: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-source-'))
  await installPackage(dir)
  await writeFile(join(dir, 'fairlead.tgz'), '')
}, PACKED_WITHIN_MS)
afterAll(() => rm(dir, { recursive: true, force: true }))

let made = 0
/** Makes a project, and returns what it depends on, and the line that says so. */
async function fairleadOf(bin: string, ...options: string[]): Promise<{ spec: string; line: string }> {
  const folder = `project-${++made}`
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [bin, 'new', folder, ...options], { cwd: dir })
  const text = await readFile(join(dir, folder, 'package.json'), 'utf8')
  expect(`${stdout}${stderr}${text}`).not.toContain('SECRET')
  const spec = (JSON.parse(text) as { dependencies: { fairlead: string } }).dependencies.fairlead
  return { spec, line: stdout.split('\n').find((line) => line.startsWith('npm will look for fairlead ')) ?? '' }
}

describe('a new project installs Fairlead from where its command came, and says so', () => {
  it.each([
    ['a tarball', 'file:fairlead.tgz', () => `file:${dir}/fairlead.tgz`, 'package.json'],
    ['a tarball that is gone', 'file:old/fairlead.tgz', () => REGISTRY, 'old/fairlead.tgz, from which this command'],
    ['a web server', 'https://example.com/fairlead.tgz', () => 'https://example.com/fairlead.tgz', 'package.json'],
    ['one with a scope in its path', `${SERVER}/@me/fairlead.tgz`, () => `${SERVER}/@me/fairlead.tgz`, 'package.json'],
    ['a fork in the registry', 'npm:@me/fairlead@^1', () => 'npm:@me/fairlead@^1', 'package.json'],
    ['the registry', '^0.0.9', () => REGISTRY, 'the version of this command, if the registry has it'],
    ['a global installation', undefined, () => REGISTRY, '--fairlead file:PATH'],
  ])('%s (%s)', async (_, given, wanted, says) => {
    const manifest = given === undefined ? {} : { dependencies: { fairlead: given } }
    await writeFile(join(dir, 'package.json'), JSON.stringify(manifest))
    const { spec, line } = await fairleadOf(join(dir, 'node_modules/fairlead/cli/bin.js'))
    expect(spec).toBe(wanted())
    expect(line).toContain(`npm will look for fairlead ${spec}: `)
    expect(line).toContain(says)
  })

  it.each([
    'https://user:SECRET@example.com/fairlead.tgz',
    'https://SECRET@example.com/fairlead.tgz',
    'git+https://SECRET@example.com/me/fairlead.git#main',
    'https://example.com/fairlead.tgz?token=SECRET',
    'https://example.com/fairlead.tgz?X-Amz-Signature=SECRET#main',
    'github:me:SECRET@me/fairlead',
    'me:SECRET@example.com:me/fairlead',
  ])('the registry, where the address may contain credentials, which nothing shows: %s', async (given) => {
    await writeFile(join(dir, 'package.json'), JSON.stringify({ dependencies: { fairlead: given } }))
    const { spec, line } = await fairleadOf(join(dir, 'node_modules/fairlead/cli/bin.js'))
    expect(spec).toBe(REGISTRY)
    expect(line).toMatch(/the address in \S+package\.json, .* may contain credentials$/)
  })

  it.each(['{ "dependencies":', 'null', '{ "dependencies": null }', '{ "dependencies": { "fairlead": 7 } }'])(
    'the registry, where the package.json of a folder above does not say it: %s',
    async (text) => {
      await writeFile(join(dir, 'package.json'), text)
      const { spec, line } = await fairleadOf(join(dir, 'node_modules/fairlead/cli/bin.js'))
      expect(spec).toBe(REGISTRY)
      expect(line).toContain('the version of this command, if the registry has it')
    },
  )

  it('a clone', async () => {
    const { spec, line } = await fairleadOf(BIN)
    expect(spec).toBe(`file:${ROOT}`)
    expect(line).toContain('the clone of this command')
  })

  it('a place that the user names, from the folder of the command', async () => {
    expect(await fairleadOf(BIN, '--fairlead', 'file:mine.tgz')).toEqual({
      spec: `file:${dir}/mine.tgz`,
      line: `npm will look for fairlead file:${dir}/mine.tgz: --fairlead names it`,
    })
  })
})
