import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Cluster } from '#local'
import { command } from '../support/command.ts'
import { fairlead } from '../support/fairlead.ts'
import { kubectlFor } from '../support/kubectl.ts'
import { startTestCluster } from '../support/servers.ts'

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
export const deed = reconciler({
  name: 'deed', for: Deed, timeoutSeconds: 1,
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
  cluster = await startTestCluster({})
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
  it('shows no value of a Secret', async () => {
    for (const output of ['text', 'json']) {
      const { stdout } = await command(['run', 'safe', 'nothing', '--dry-run', '-f', module, '-o', output], env)
      expect(stdout).toContain('(withheld)')
      expect(stdout).not.toMatch(/hunter2|aHVudGVyMg/)
    }
  })

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
    const failed = await run('deed', 'throw')
    expect(failed.code).toBe(1)
    expect(failed.stdout).toContain('The run would fail, and be tried again: it is wrong')
    expect(failed.stdout).not.toContain('The function')
    const nothing = await run('deed', 'nothing')
    expect(nothing).toMatchObject({ code: 0, stdout: expect.stringContaining('The function returned nothing.') })
    const other = await run('picky', 'nothing')
    expect(other).toMatchObject({ code: 0, stdout: expect.stringContaining('The function was not called') })
  })
})
