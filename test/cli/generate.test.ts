import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import type { KubeObject } from '#contracts'
import { builtins } from '#functions'
import { functionRbac } from '#install'
import { definitionsOf, manifest } from '#sdk'
import { SHARD_LABEL } from '#spec'
import { command } from '../support/command.ts'

let dir: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-generate-'))
})
afterAll(() => rm(dir, { recursive: true }))

const SDK = join(import.meta.dirname, '../../sdk/index.ts')

let modules = 0

async function shop(field: string, rules = '', more = ''): Promise<string> {
  const file = join(dir, `shop${++modules}.ts`)
  await writeFile(
    file,
    `import { immutable, onlyGroups, reconciler, resource, z } from ${JSON.stringify(SDK)}
     const Shop = resource({ group: 'example.com', version: 'v1', kind: 'Shop', plural: 'shops',
       spec: z.object({ ${field} }), status: z.object({}), rules: [${rules}], ${more} })
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

  it('names what checks each rule, and why, and prints the policies', async () => {
    const rules = "immutable('.spec.size'), onlyGroups(['admins'], ['DELETE'])"
    const file = await shop(
      'size: z.int32(), cron: z.string().refine(() => true)',
      rules,
      "validate: () => [], admit: { operations: ['DELETE'], judge: () => [] }",
    )
    const { stdout } = await command(['generate', 'crds', '-f', file])
    expect(stdout.split('\n').slice(0, 5)).toEqual([
      '# Shop: immutable .spec.size: the CustomResourceDefinition',
      '# Shop: onlyGroups admins DELETE: a ValidatingAdmissionPolicy, because it reads the groups of the user',
      '# Shop: spec.cron has a check in code: runs make it, and no write is refused, which needs a webhook',
      '# Shop: validate: fairlead check and runs ask it, and writes are refused only by the webhook of fairlead admit',
      '# Shop has admit: fairlead install --only-conversions makes the API server ask it, when it reaches the webhook',
    ])
    const kinds = parseAllDocuments(stdout).map((one) => (one.toJS() as KubeObject).kind)
    const policy = 'ValidatingAdmissionPolicy'
    expect(kinds).toEqual(['CustomResourceDefinition', policy, `${policy}Binding`])
    const to = join(dir, 'with-policies')
    await command(['generate', 'manifests', '-f', file, '--to', to])
    expect(await readFile(join(to, 'crds.yaml'), 'utf8')).toBe(stdout)
    const chart = join(dir, 'chart-with-policies')
    await command([
      'generate',
      'chart',
      '-f',
      file,
      '--module',
      'shop.ts',
      '--to',
      chart,
      '--image',
      'example.com/shop:1',
    ])
    expect(await readFile(join(chart, 'templates/shop.yaml'), 'utf8')).toContain(`kind: ${policy}Binding`)
    const about = join(dir, 'package.json')
    await writeFile(
      about,
      JSON.stringify({ name: 'shops', version: '1.0.0', description: 'Shops.', author: 'A <a@b.c>' }),
    )
    const example = join(dir, 'shop.json')
    await writeFile(example, JSON.stringify({ apiVersion: 'example.com/v1', kind: 'Shop', metadata: { name: 'a' } }))
    const bundle = ['--package', about, '--examples', example, '--module', 'shop.ts', '--image', 'example.com/shop:1']
    const { code, stderr } = await command(['generate', 'bundle', '-f', file, '--to', join(dir, 'bundle'), ...bundle])
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringContaining(`need a ${policy}, which OLM does not`),
    })
    const judged = await shop('size: z.int32()', '', "admit: { operations: ['DELETE'], judge: () => [] }")
    expect(await command(['generate', 'bundle', '-f', judged, '--to', join(dir, 'bundle'), ...bundle])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('has "admit", whose webhook OLM does not install'),
    })
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
      expect.stringMatching(/: fairlead install --force -f \S+shop\S*\.ts$/),
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

describe('fairlead generate manifests', () => {
  const generate = (to: string) => command(['generate', 'manifests', '--builtin', 'at,etcd', '--to', to])

  it('writes for kubectl apply -k what install applies beside the platform', async () => {
    const to = join(dir, 'deploy')
    const { stdout } = await generate(to)
    const read = (name: string) => readFile(join(to, name), 'utf8')
    const { resources } = parse(await read('kustomization.yaml')) as { resources: string[] }
    expect(stdout.trim().split('\n')).toEqual([...resources, 'kustomization.yaml'].map((name) => join(to, name)))
    const texts = await Promise.all(resources.map(read))
    const written = texts.flatMap((text) => parseAllDocuments(text).map((one) => one.toJS() as object))
    const functions = (await builtins()).filter(({ name }) => name === 'at' || name.startsWith('etcd'))
    const reconcilers = functions.map((one) => manifest(one))
    const installed = [...definitionsOf(functions), ...reconcilers.flatMap(functionRbac), ...reconcilers]
    expect(written).toHaveLength(installed.length)
    expect(written).toEqual(expect.arrayContaining(JSON.parse(JSON.stringify(installed)) as object[]))
  })

  it.each([
    ['--shard', ['--shard', 'b'], ''],
    ['FAIRLEAD_SHARD', [], 'b'],
  ])('gives the Reconcilers, and nothing else, the label of the shard that %s names', async (name, args, variable) => {
    const [to, without] = [join(dir, `shard${name}`), join(dir, `without${name}`)]
    await generate(without)
    await command(['generate', 'manifests', '--builtin', 'at,etcd', '--to', to, ...args], { FAIRLEAD_SHARD: variable })
    const texts = async (folder: string) =>
      Promise.all(['crds.yaml', 'rbac.yaml'].map((file) => readFile(join(folder, file), 'utf8')))
    const reconcilers = async (folder: string) =>
      parseAllDocuments(await readFile(join(folder, 'reconcilers.yaml'), 'utf8')).map((one) => one.toJS() as KubeObject)
    expect(await texts(to)).toEqual(await texts(without))
    const labelled = (await reconcilers(without)).map(({ metadata, ...rest }) => ({
      ...rest,
      metadata: { ...metadata, labels: { 'fairlead.dev/shard': 'b' } },
    }))
    expect(await reconcilers(to)).toEqual(labelled)
  })

  it('refuses a change that stored objects would not survive, and the command that forces it has the shard', async () => {
    const at = async (field: string) =>
      command(['--shard', 'b', 'generate', 'manifests', '--to', join(dir, 'breaking'), '-f', await shop(field)])
    expect(await at('size: z.int32()')).toMatchObject({ code: 0 })
    const { code, stderr } = await at('size: z.string()')
    expect(code).toBe(1)
    expect(stderr.trim()).toMatch(/: fairlead install --force -f \S+shop\S*\.ts --shard b$/)
  })

  it('keeps a kustomization.yaml that is there, and says what it does not name', async () => {
    const to = join(dir, 'kept')
    await mkdir(to)
    const own = '# mine\nresources: [crds.yaml, rbac.yaml]\n'
    await writeFile(join(to, 'kustomization.yaml'), own)
    const { code, stdout, stderr } = await generate(to)
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr: expect.stringMatching(/^[^\n]*kept\/kustomization\.yaml does not name reconcilers\.yaml[^\n]*\n$/),
    })
    expect(stdout).not.toContain('kustomization')
    expect(await readFile(join(to, 'kustomization.yaml'), 'utf8')).toBe(own)
  })
})

/** Runs commands in the folder of a project, which exports the function `shop` from src/index.ts. */
async function inProject(manifest: object, run: (...args: string[]) => ReturnType<typeof command>): Promise<string> {
  const project = await mkdtemp(join(dir, 'project-'))
  await mkdir(join(project, 'src'))
  await writeFile(join(project, 'package.json'), JSON.stringify({ type: 'module', ...manifest }))
  await writeFile(join(project, 'src/index.ts'), await readFile(await shop('size: z.int32()'), 'utf8'))
  const before = process.cwd()
  process.chdir(project)
  try {
    expect(await run()).toMatchObject({ code: 0 })
  } finally {
    process.chdir(before)
  }
  return project
}

describe('what runs in an image of the functions', () => {
  const image = ['--image', 'r.example.com/shops:1']
  const chart = ['generate', 'chart', '--to', 'chart', ...image]

  it.each([
    ['the modules of -f', ['-f', 'src/index.ts'], ['src/index.ts']],
    ['another module, where --module names it', ['-f', 'src/index.ts', '--module', 'dist/index.js'], ['dist/index.js']],
  ])('is, for the check before an upgrade, %s', async (_, args, modules) => {
    const project = await inProject({}, () => command([...chart, ...args]))
    const values = parse(await readFile(join(project, 'chart/values.yaml'), 'utf8')) as { check: object }
    expect(values.check).toMatchObject({ enabled: true, modules, builtin: [] })
  })

  it.each([['chart', '--to', 'nowhere'], ['knative']])(
    'is never a path of this machine: generate %s',
    async (...args) => {
      const { code, stdout, stderr } = await command([
        'generate',
        ...args,
        ...image,
        '-f',
        await shop('size: z.int32()'),
      ])
      expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
      expect(stderr).toMatch(/is no path in an image.*--module/)
    },
  )

  it('is what Knative serves', async () => {
    let printed = ''
    await inProject({}, async () => {
      const { stdout, ...rest } = await command(['generate', 'knative', '-f', 'src/index.ts', ...image])
      printed = stdout
      return { stdout, ...rest }
    })
    const [service] = parseAllDocuments(printed).map((one) => one.toJS() as Record<string, object>)
    expect(JSON.stringify(service)).toContain('"args":["serve","--function","src/index.ts","shop"]')
  })

  it('is called by Reconcilers of the shard that the command has', async () => {
    const labels: unknown[] = []
    const project = await inProject({}, async () => {
      for (const shard of [[], ['--shard', 'b']]) {
        const { stdout } = await command(['generate', 'knative', '-f', 'src/index.ts', ...image, ...shard])
        labels.push(
          ...parseAllDocuments(stdout).map((one) => (one.toJS() as KubeObject).metadata.labels?.[SHARD_LABEL]),
        )
      }
      return command([...chart, '-f', 'src/index.ts', '--shard', 'b'])
    })
    expect(labels).toEqual([undefined, undefined, undefined, 'b'])
    expect(parse(await readFile(join(project, 'chart/values.yaml'), 'utf8'))).toMatchObject({ shard: 'b' })
  })

  it.each([
    [
      { name: '@me/my_shops', version: '1.2.0' },
      { name: 'my-shops', version: '1.2.0' },
    ],
    [{ name: '_ops.' }, { name: 'ops', version: '0.1.0' }],
    [{ name: '@me/_' }, { name: 'functions', version: '0.1.0' }],
    [{}, { name: 'functions', version: '0.1.0' }],
  ])('is in a chart with the name and the version of the project %j', async (manifest, wanted) => {
    const project = await inProject(manifest, () => command([...chart, '-f', 'src/index.ts']))
    expect(parse(await readFile(join(project, 'chart/Chart.yaml'), 'utf8'))).toMatchObject(wanted)
  })
})
