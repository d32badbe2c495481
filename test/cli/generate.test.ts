import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { command } from '../support/command.ts'

let dir: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-generate-'))
})
afterAll(() => rm(dir, { recursive: true }))

const SDK = join(import.meta.dirname, '../../sdk/index.ts')

let modules = 0

async function shop(field: string): Promise<string> {
  const file = join(dir, `shop${++modules}.ts`)
  await writeFile(
    file,
    `import { reconciler, resource, z } from ${JSON.stringify(SDK)}
     const Shop = resource({ group: 'example.com', version: 'v1', kind: 'Shop', plural: 'shops',
       spec: z.object({ ${field} }), status: z.object({}) })
     export const shop = reconciler({ name: 'shop', for: Shop, reconcile: () => undefined })`,
  )
  return file
}

describe('fairlead generate crds', () => {
  it('prints what kubectl takes', async () => {
    const { code, stdout } = await command(['generate', 'crds', '-f', await shop('size: z.int32()')])
    expect(code).toBe(0)
    expect(stdout).toContain('name: shops.example.com')
  })

  it('prints the definition of Reconciler only when it is asked for', async () => {
    const functions = ['generate', 'crds', '-f', await shop('size: z.int32()')]
    expect((await command(functions)).stdout).not.toContain('fairlead.dev')
    const { stdout } = await command([...functions, '--platform'])
    expect(stdout).toContain('name: reconcilers.fairlead.dev')
    expect(stdout).toContain('name: shops.example.com')
  })

  it('refuses what a CustomResourceDefinition cannot say, by path', async () => {
    const { code, stderr } = await command(['generate', 'crds', '-f', await shop('size: z.tuple([z.int()])')])
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('spec.size is a tuple') })
  })

  it('refuses a change that objects which are stored would not survive', async () => {
    const before = await command(['generate', 'crds', '-f', await shop('size: z.int32(), name: z.string().optional()')])
    const file = join(dir, 'before.yaml')
    await writeFile(file, before.stdout)
    const compatible = async (field: string) =>
      command(['generate', 'crds', '-f', await shop(field), '--compatible-with', file])
    expect(await compatible('size: z.int(), name: z.string().optional()')).toMatchObject({ code: 0 })
    const { code, stdout, stderr } = await compatible('size: z.string()')
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr.trim().split('\n')).toEqual([
      'fairlead: shops.example.com would break objects that are stored:',
      '  v1: spec.size was integer, and would be string',
      '  v1: spec.name does not exist any more: stored values would be lost',
      expect.stringContaining('install --force'),
    ])
    expect(await command(['generate', 'crds', '--compatible-with', '/nope'])).toMatchObject({ code: 2 })
  })

  it('compares with a definition, or says that there is none', async () => {
    const sell = await shop('size: z.int32()')
    const compared = async (text: string, ...options: string[]) => {
      const file = join(dir, 'earlier.yaml')
      await writeFile(file, text)
      return command(['generate', 'crds', '-f', sell, '--compatible-with', file, ...options])
    }
    const other = 'apiVersion: v1\nkind: ConfigMap\nmetadata: { name: shops.example.com }\n'
    const missing = {
      code: 2,
      stdout: '',
      stderr: expect.stringContaining('the definition shops.example.com of function'),
    }
    expect(await compared(other)).toMatchObject(missing)
    expect(await compared(other, '--new', 'other.example.com')).toMatchObject(missing)
    expect(await compared(other, '--new', 'shops.example.com')).toMatchObject({ code: 0 })
    expect(await compared('')).toMatchObject({ code: 2, stderr: expect.stringContaining('has no object') })
    expect(await compared('a: [b')).toMatchObject({ code: 2, stderr: expect.stringContaining('neither YAML nor JSON') })
    const { stdout } = await command(['generate', 'crds', '-f', await shop('size: z.string()')])
    expect(await compared(stdout, '--new', 'shops.example.com')).toMatchObject({ code: 1 })
  })
})
