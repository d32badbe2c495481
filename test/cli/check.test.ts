import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { command } from '../support/command.ts'

let dir: string
let module: string
const file = async (name: string, text: string): Promise<string> => {
  await writeFile(join(dir, name), text)
  return join(dir, name)
}
const backup = (name: string, spec: string) =>
  `apiVersion: example.com/v1\nkind: Backup\nmetadata: { name: ${name}, namespace: shop }\nspec: { ${spec} }\n`

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-check-'))
  module = await file(
    'backup.ts',
    `import { onlyGroups, reconciler, resource, z } from ${JSON.stringify(join(import.meta.dirname, '../../sdk/index.ts'))}
     const Backup = resource({ group: 'example.com', version: 'v1', kind: 'Backup', plural: 'backups',
       spec: z.object({ every: z.string(), keep: z.int32() }), status: z.object({}), rules: [onlyGroups(['admins'], ['DELETE'])],
       validate: ({ spec }) => [
         ...(spec.every === 'bug' ? spec.no.such : []),
         ...(spec.every.endsWith('h') ? [] : [{ path: '.spec.every', message: 'hours alone' }]),
         ...(spec.keep > 9 ? [{ path: '.spec.keep', message: 'many', warning: true }] : []),
       ] })
     export const backup = reconciler({ name: 'backup', for: Backup, reconcile: () => undefined })`,
  )
})
afterAll(() => rm(dir, { recursive: true }))

describe('fairlead check', () => {
  it('names what is refused in each object of the files, and what it does not check', async () => {
    const one = await file(
      'one.yaml',
      `${backup('a', 'every: 5m, keep: 10')}---\n${backup('b', 'every: 5h, keep: 10')}---\n${backup('c', 'every: 5h, keep: 1')}`,
    )
    const two = await file('two.json', '{ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "d" } }')
    const { code, stdout } = await command(['check', '-f', module, one, two])
    expect(stdout.trimEnd().split('\n')).toEqual([
      `${one}: Backup shop/a is refused`,
      '  spec.every: hours alone',
      '  warning: spec.keep: many',
      `${one}: Backup shop/b is admitted with warnings`,
      '  warning: spec.keep: many',
      `${two}: ConfigMap d is not checked: no function here defines this kind`,
      '4 objects: 2 admitted, 1 refused, 1 not checked',
      'Backup: only the API server checks onlyGroups admins DELETE',
    ])
    expect(code).toBe(1)
  })

  it('prints JSON of all YAML and JSON files of a folder', async () => {
    const { code, stdout } = await command(['check', '-f', module, '-o', 'json', dir])
    expect(code).toBe(1)
    const { objects } = JSON.parse(stdout) as { objects: { object: string; isChecked: boolean; refusals: object[] }[] }
    expect(objects.map(({ object, isChecked, refusals }) => [object, isChecked, refusals.length])).toEqual([
      ['shop/a', true, 1],
      ['shop/b', true, 0],
      ['shop/c', true, 0],
      ['d', false, 0],
    ])
  })

  it.each<[string, string, number, string]>([
    ['admits what is right', backup('a', 'every: 5h, keep: 1'), 0, ''],
    [
      'ends with 5 where validate throws',
      backup('a', 'every: bug, keep: 1'),
      5,
      'fairlead: resource Backup: validate throws TypeError',
    ],
    [
      'ends with 2 where there is nothing to check',
      'apiVersion: v1\nkind: A\nmetadata: { name: a }\n',
      2,
      'these functions define Backup of example.com',
    ],
    ['ends with 2 where there is no object', 'a: 1', 2, 'has an entry that is not an object'],
  ])('%s', async (_, text, code, message) => {
    const finished = await command(['check', '-f', module, await file('other.txt', text)])
    expect(finished).toMatchObject({ code, stderr: expect.stringContaining(message) })
  })
})
