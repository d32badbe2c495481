import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Cluster } from '#lab'
import { borrowCluster } from '../support/borrowed.ts'
import { command } from '../support/command.ts'
import { fairlead } from '../support/fairlead.ts'
import { kubectlFor } from '../support/kubectl.ts'
import { clientOf, createFleet, siteModule, versionsOf } from './fleet.ts'

const SDK = join(import.meta.dirname, '../../sdk/index.ts')
const MODULE = `
import { setTimeout as sleep } from 'node:timers/promises'
import { ConfigMap, kind, reconciler, resource, Secret, z } from ${JSON.stringify(SDK)}

const shape = {
  group: 'dry.example.com', version: 'v1',
  spec: z.object({ does: z.string().optional(), source: z.string().optional() }),
  status: z.object({ found: z.string().optional() }),
}
const Deed = resource({ ...shape, kind: 'Deed', plural: 'deeds' })
const Sweep = resource({ ...shape, kind: 'Sweep', plural: 'sweeps', scope: 'Cluster' })
const named = { ...ConfigMap, byName: 'spec.source' }
const found = ({ related }) => ({
  status: { found: related(ConfigMap).map(({ metadata }) => metadata.namespace + '/' + metadata.name).sort().join(' ') },
})

export const sweep = reconciler({ name: 'sweep', for: Sweep, related: [{ ...named, within: 'Cluster' }], reconcile: found })
export const near = reconciler({ name: 'near', for: Deed, related: [named], reconcile: found })
export const wide = reconciler({ name: 'wide', for: Deed, related: [{ ...named, within: 'Cluster' }], reconcile: found })
export const picky = reconciler({ name: 'picky', for: Deed, selector: 'picked=yes', reconcile: found })
const NetworkPolicy = kind({ group: 'networking.k8s.io', version: 'v1', kind: 'NetworkPolicy', plural: 'networkpolicies' })
export const closed = reconciler({
  name: 'closed', for: Deed, owns: [NetworkPolicy],
  reconcile: () => ({ apply: [NetworkPolicy.of({ metadata: {}, spec: { podSelector: {}, ingress: [{}] } })] }),
})
export const outside = reconciler({
  name: 'outside', for: Deed,
  external: { read: ({ object }) => [object.metadata.name], perform: () => process.exit(0) },
  reconcile: ({ external }) => ({ effect: { kind: 'rename', from: external[0] } }),
})
export const safe = reconciler({
  name: 'safe', for: Deed, owns: [Secret],
  external: { read: () => null, perform: () => undefined },
  reconcile: () => ({
    effect: { kind: 'createUser', password: 'hunter2' },
    apply: [Secret.of({ metadata: {}, data: { key: btoa('hunter2') }, stringData: { other: 'hunter2' } })],
  }),
})
const veiledMap = (data) => ConfigMap.of({ metadata: {}, data })
export const veiled = reconciler({
  name: 'veiled', for: Deed, owns: [ConfigMap],
  reconcile: () => ({ apply: [veiledMap({ word: 'hunter2' })] }),
})
export const stray = reconciler({ name: 'stray', for: Deed, reconcile: () => ({ apply: [veiledMap({ word: 'hunter2' })] }) })
export const deed = reconciler({
  name: 'deed', for: Deed, timeoutSeconds: 60,
  async reconcile({ object }) {
    await sleep(1)
    if (object.spec.does === 'exit') process.exit(0)
    if (object.spec.does === 'block') for (;;);
    if (object.spec.does === 'throw') throw new Error('it is wrong')
    return undefined
  },
})
`

let cluster: Cluster & AsyncDisposable
let dir: string
let module: string
let env: Record<string, string>

beforeAll(async () => {
  cluster = await borrowCluster()
  dir = await mkdtemp(join(tmpdir(), 'fl-dry-run-'))
  module = join(dir, 'functions.ts')
  env = { KUBECONFIG: cluster.kubeconfig, FAIRLEAD_LEASE_SECONDS: '2' }
  await writeFile(module, MODULE)
  await command(['install', '-f', module], env)
  const kubectl = await kubectlFor(cluster)
  const apply = (object: object) => kubectl(['apply', '-f', '-'], { apiVersion: 'v1', ...object })
  await apply({ kind: 'Namespace', metadata: { name: 'other' } })
  for (const namespace of ['default', 'other'])
    for (const name of ['src', 'dst']) await apply({ kind: 'ConfigMap', metadata: { name, namespace } })
  const apiVersion = 'dry.example.com/v1'
  await apply({ apiVersion, kind: 'Sweep', metadata: { name: 's' }, spec: { source: 'src' } })
  await apply({ apiVersion, kind: 'Deed', metadata: { name: 'r' }, spec: { source: 'src' } })
  await apply({ apiVersion, kind: 'Deed', metadata: { name: 'odd' }, spec: { source: 'a,metadata.namespace!=b\\' } })
  for (const does of ['exit', 'block', 'throw', 'nothing'])
    await apply({ apiVersion, kind: 'Deed', metadata: { name: does }, spec: { does } })
})
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]()
  await rm(dir, { recursive: true, force: true })
})

/** A process of its own, which the function may end. */
const run = (name: string, object: string) => fairlead(['run', name, object, '--dry-run', '-f', module], env)

describe('a dry run', () => {
  it.each(['safe', 'veiled', 'stray'])(
    'shows no value of a Secret, or of a kind in FAIRLEAD_REFERENCE_ONLY, which its Reconciler declares or not: %s',
    async (name) => {
      for (const output of ['text', 'json']) {
        const args = ['run', name, 'nothing', '--dry-run', '-f', module, '-o', output]
        const { stdout } = await command(
          args,
          name === 'safe' ? env : { ...env, FAIRLEAD_REFERENCE_ONLY: 'configmaps' },
        )
        expect(stdout).toContain('(withheld)')
        expect(stdout).not.toMatch(/hunter2|aHVudGVyMg/)
      }
    },
  )

  it.each([
    ['sweep', 's', 'default/src other/src'],
    ['wide', 'r', 'default/src other/src'],
    ['near', 'r', 'default/src'],
    ['wide', 'odd', ''],
  ])('of %s finds what a field of %s names, where the dispatcher does: %j', async (name, object, found) => {
    const { code, stdout } = await command(['run', name, object, '--dry-run', '-f', module, '-o', 'json'], env)
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({ outcome: { status: { found } } })
  })

  it('shows what is empty: a selector of all pods, a rule that admits everything', async () => {
    const { stdout } = await command(['run', 'closed', 'nothing', '--dry-run', '-f', module], env)
    expect(stdout).toContain('  create NetworkPolicy default/nothing\n')
    expect(stdout).toContain('    + .spec.podSelector: {}\n')
    expect(stdout).toContain('    + .spec.ingress[0]: {}\n')
  })

  it('reads the external system of the function, and prints the effect that it does not perform', async () => {
    const { code, stdout } = await command(['run', 'outside', 'nothing', '--dry-run', '-f', module], env)
    expect(code).toBe(0)
    expect(stdout).toContain('It would:\n  perform {"kind":"rename","from":"nothing"}\n')
  })

  it('ends as up would, where the function ends the process: not as the run', async () => {
    const { code, stdout, stderr } = await run('deed', 'exit')
    expect({ code, stdout }).toEqual({ code: 5, stdout: '' })
    expect(stderr).toContain('a function has ended the process')
  })

  it('ends as up would, where the function blocks the process for longer than the lease', async () => {
    const { code, stdout, stderr } = await run('deed', 'block')
    expect({ code, stdout }).toEqual({ code: 5, stdout: expect.not.stringContaining('nothing left to do') })
    expect(stderr).toContain('blocked the process for longer than the lease')
    expect(stderr).toContain('functions.ts')
    expect(stderr).not.toContain('ended the process')
  })

  it('tells what the function returned apart from what it threw, and from that it was not called', async () => {
    const dryRun = (...args: string[]) => command(['run', ...args, '--dry-run', '-f', module], env)
    const failed = await dryRun('deed', 'throw')
    expect(failed.code).toBe(1)
    expect(failed.stdout).toContain('The run would fail, and be tried again: it is wrong')
    expect(failed.stdout).not.toContain('The function')
    const nothing = await dryRun('deed', 'nothing')
    expect(nothing).toMatchObject({ code: 0, stdout: expect.stringContaining('The function returned nothing.') })
    const other = await dryRun('picky', 'nothing')
    expect(other).toMatchObject({ code: 0, stdout: expect.stringContaining('The function was not called') })
  })
})

describe('a diff of all objects', () => {
  let kube: Awaited<ReturnType<typeof clientOf>>
  beforeAll(async () => {
    kube = await clientOf(cluster.kubeconfig)
    const installed = join(dir, 'sites.ts')
    await writeFile(installed, siteModule())
    await command(['install', '-f', installed], env)
    await createFleet(kube, 'default', 20)
    await createFleet(kube, 'other', 10)
  })
  afterAll(() => kube?.close())

  /** What `fairlead diff` of a module prints, as JSON, and its exit code. */
  async function diff(source: string, ...args: string[]) {
    const file = join(dir, `diff-${source.length}-${args.length}-${Math.random()}.ts`)
    await writeFile(file, source)
    const { stdout, stderr, code } = await command(['diff', '-f', file, '-o', 'json', ...args], env)
    const { reconcilers = [] } =
      stdout === '' ? {} : (JSON.parse(stdout) as { reconcilers?: Record<string, unknown>[] })
    return { code, stderr, ...reconcilers[0] }
  }
  const NEWER = siteModule("return { apply: [map(spec.image.replace('nginx', 'httpd'))] }")

  it('is empty for the function that has made them, and ends with 0', async () => {
    expect(await diff(siteModule(), '--all')).toMatchObject({ code: 0, objects: 30, changed: 0, failed: 0 })
  })

  it('has one shape for one change of all, writes nothing, and ends with 1', async () => {
    const before = await versionsOf(kube)
    expect(await diff(NEWER, '--all')).toMatchObject({
      code: 1,
      objects: 30,
      changed: 30,
      shapes: [
        {
          what: 'change',
          kind: 'ConfigMap',
          objects: 30,
          fields: [
            {
              path: '.data.image',
              values: expect.arrayContaining([
                { before: 'nginx:0', after: 'httpd:0' },
                { before: 'nginx:1', after: 'httpd:1' },
              ]),
            },
          ],
        },
      ],
    })
    expect(await versionsOf(kube)).toEqual(before)
  })

  it.each([
    [['-n', 'other'], 10],
    [['-n', 'other', '-l', 'tier=gold'], 1],
    [['--all', '-l', 'tier=gold'], 3],
    [['site-3', 'site-4', '-n', 'other'], 2],
    [['site-3'], 1],
  ])('compares what %j selects', async (args, objects) => {
    expect(await diff(NEWER, ...args)).toMatchObject({ code: 1, objects, changed: objects })
  })

  it.each([
    [[], 'no objects are selected: give names, or --all, -n NAMESPACE or -l SELECTOR'],
    [['nothing'], 'there is no Site nothing in namespace default; -n names another one'],
    [['--all', '--reconciler', 'nothing'], 'nothing'],
  ])('refuses %j', async (args, message) => {
    const { code, stderr } = await diff(NEWER, ...args)
    expect(code).toBe(2)
    expect(stderr).toContain(message)
  })

  it('shows what a new schema refuses, drops and adds, and does not call the function with what is refused', async () => {
    const spec = 'z.object({ image: z.string().regex(/:0$/), size: z.int32().default(1) })'
    const found = await diff(siteModule(undefined, spec), '--all')
    expect(found).toMatchObject({
      code: 5,
      objects: 30,
      failed: 15,
      breaking: expect.arrayContaining([expect.stringContaining('spec.image')]),
    })
    const { shapes } = found as unknown as { shapes: { what: string; objects: number; message?: string }[] }
    expect(shapes).toContainEqual(
      expect.objectContaining({
        what: 'default',
        objects: 15,
        fields: [expect.objectContaining({ path: '.spec.size' })],
      }),
    )
    expect(shapes).toContainEqual(
      expect.objectContaining({
        what: 'refuse',
        objects: 15,
        message: expect.stringContaining('spec.image is "nginx:1"'),
      }),
    )
    const validate =
      "validate: ({ spec }) => (spec.image === 'nginx:1' ? [{ path: '.spec.image', message: 'too old' }] : [])"
    const stricter = await diff(siteModule(undefined, `z.object({ image: z.string() }).loose(), ${validate}`), '--all')
    expect(stricter).toMatchObject({ code: 5, failed: 15 })
    expect(stricter).toHaveProperty(
      'shapes',
      expect.arrayContaining([expect.objectContaining({ what: 'refuse', message: 'spec.image: too old' })]),
    )
    const dropping = await diff(siteModule(undefined, 'z.object({ image: z.string() })'), '--all')
    expect(dropping).toMatchObject({
      code: 1,
      failed: 0,
      shapes: [{ what: 'prune', objects: 2, examples: expect.arrayContaining(['other/site-7']) }],
    })
  })

  it('groups failures, and goes on with the other objects', async () => {
    const found = await diff(
      siteModule(
        "if (spec.image === 'nginx:1') throw new Error(metadata.name + ' is wrong'); return { apply: [map('new')] }",
      ),
      '--all',
    )
    expect(found).toMatchObject({ code: 5, changed: 15, failed: 15 })
    expect(found).toHaveProperty(
      'shapes',
      expect.arrayContaining([expect.objectContaining({ what: 'fail', objects: 15, message: 'NAME is wrong' })]),
    )
  })

  it('reads the external system, and performs nothing', async () => {
    const external = 'external: { read: () => 1, perform: () => process.exit(9) },'
    const module = siteModule("return { effect: { kind: 'resize' } }", undefined, external)
    expect(await diff(module, '-n', 'other')).toMatchObject({
      code: 1,
      shapes: [{ what: 'perform', kind: 'resize', objects: 10 }],
    })
  })
})
