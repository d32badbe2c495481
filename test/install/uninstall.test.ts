import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { planUninstall, type Removal, uninstall } from '#install'
import { createKubeClient, type KubeClient, loadKubeConfig } from '#kube'
import type { Reconciler } from '#sdk'
import { borrowCluster } from '../support/borrowed.ts'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { until } from '../support/wait.ts'

const SDK = new URL('../../sdk/index.ts', import.meta.url).href
/** A function that finalizes, of a kind with one field. */
const shop = (field = 'z.string()') => `import { ConfigMap, reconciler, resource, z } from '${SDK}'
export const Shop = resource({
  group: 'shops.test', version: 'v1', kind: 'Shop', plural: 'shops',
  spec: z.object({ title: ${field} }), status: z.object({}),
})
export const shop = reconciler({
  name: 'shop', for: Shop, owns: [ConfigMap], reconcile: () => ({ apply: [] }), finalize: () => ({ requeueAfter: 3600 }),
})
`
const SHOP = {
  apiVersion: 'shops.test/v1',
  kind: 'Shop',
  metadata: { name: 'a', namespace: 'default' },
  spec: { title: 't' },
}

let cluster: Awaited<ReturnType<typeof borrowCluster>>
let kubectl: Kubectl
let dir: string
let file: string
const fairlead = (args: string[]) =>
  command(args, { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', LOG_LEVEL: 'silent' })
const names = async (kind: string) => (await kubectl(['get', kind, '-o', 'name'])).trim().split('\n')

beforeAll(async () => {
  cluster = await borrowCluster({ nats: true })
  kubectl = await kubectlFor(cluster)
  dir = await mkdtemp(join(tmpdir(), 'fl-uninstall-'))
  file = join(dir, 'shop.ts')
  await writeFile(file, shop())
})
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]()
  await rm(dir, { recursive: true, force: true })
})

it('a definition that would break objects is installed where none is stored, and refused where one is', async () => {
  const other = join(dir, 'shop-of-numbers.ts')
  await writeFile(other, shop('z.int32()'))
  for (const one of [file, other, file]) expect(await fairlead(['install', '-f', one])).toMatchObject({ code: 0 })
  await kubectl(['apply', '-f', '-'], SHOP)
  const refused = await fairlead(['install', '-f', other])
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('spec.title was string') })
  // The command of the error works as it is.
  const [, words = ''] = /: fairlead (install --force -f .*)$/.exec(refused.stderr.trim()) ?? []
  expect(words).toContain(`--kubeconfig ${cluster.kubeconfig}`)
  expect(await fairlead(words.split(' '))).toMatchObject({ code: 0 })
  expect(await fairlead(['install', '--force', '-f', file])).toMatchObject({ code: 0 })
})

it('while an object waits for its function nothing is removed, and the object is named', async () => {
  await using up = startFairlead(['up', '-f', file], {
    KUBECONFIG: cluster.kubeconfig,
    NATS_URL: cluster.nats?.url ?? '',
  })
  await up.logged(({ msg, reconciler }) => msg === 'reconciler served' && reconciler === 'shop')
  await until(async () => (await kubectl(['get', 'shop/a', '-o', 'yaml'])).includes('fairlead.dev/shop'), {
    what: 'the object has the finalizer',
  })
  const before = await names('clusterroles,reconcilers')
  for (const more of [[], ['--crds'], ['--wait', '1']]) {
    const { code, stdout, stderr } = await fairlead(['uninstall', '-f', file, ...more])
    expect(stdout).toContain('1 objects cannot be deleted without function shop: default/a')
    expect(stderr).toContain('--release-finalizers')
    expect(code).toBe(1)
  }
  expect(await names('clusterroles,reconcilers')).toEqual(before)
})

it('a dry run shows what goes, what stays and why, and removes nothing', async () => {
  const before = await names('clusterroles,reconcilers,crds')
  const { stdout } = await fairlead(['uninstall', '-f', file, '--dry-run', '-o', 'json'])
  const { removals } = JSON.parse(stdout) as {
    removals: { kind: string; name: string; result: string; because?: string }[]
  }
  const about = (kind: string, name: string) => removals.find((one) => one.kind === kind && one.name === name)
  expect(about('Reconciler', 'shop')).toMatchObject({ result: 'would be deleted' })
  expect(about('CustomResourceDefinition', 'shops.shops.test')?.because).toContain('--crds')
  expect(about('Namespace', 'fairlead-system')).toMatchObject({ result: 'kept' })
  expect(await names('clusterroles,reconcilers,crds')).toEqual(before)
})

it('finalizers are given back when that is asked for, also under a process that would add them again', async () => {
  await kubectl(['create', 'serviceaccount', 'fairlead-foreign', '-n', 'fairlead-system'])
  await using _up = startFairlead(['up', '-f', file], {
    KUBECONFIG: cluster.kubeconfig,
    NATS_URL: cluster.nats?.url ?? '',
  })
  const { code, stdout } = await fairlead(['uninstall', '-f', file, '--release-finalizers', '--crds'])
  expect(code).toBe(0)
  expect(stdout).toMatch(
    /CustomResourceDefinition +shops\.shops\.test +kept +objects are stored under it, such as default\/a/,
  )
  expect(await kubectl(['get', 'shop/a', '-o', 'jsonpath={.metadata.finalizers}'])).toBe('')
  await kubectl(['delete', 'shop/a', '--timeout=240s'])
})

it('the platform stays after the last function, as it was', async () => {
  const platform = async () => {
    const all = await kubectl(['get', 'clusterroles,clusterrolebindings,crds,serviceaccounts', '-A', '-o', 'name'])
    return all.split('\n').filter((name) => /fairlead(?!-shop)/.test(name))
  }
  await fairlead(['install', '-f', file])
  const before = await platform()
  expect(before).toEqual(
    expect.arrayContaining(['serviceaccount/fairlead-bridge', 'serviceaccount/fairlead-dispatcher']),
  )
  const { code, stdout } = await fairlead(['uninstall', '-f', file, '--crds'])
  expect(code).toBe(0)
  expect(stdout).toMatch(/ServiceAccount +fairlead-dispatcher +kept +it is of the platform/)
  expect(await platform()).toEqual(before)
})

it('nothing of install is left in the end, but for the Namespace; what others have made stays', async () => {
  const { code, stdout } = await fairlead(['uninstall', '--crds'])
  expect({ code, left: stdout.split('\n').filter((line) => /kept/.test(line)).length }).toEqual({ code: 0, left: 1 })
  const all = await kubectl(['get', 'clusterroles,clusterrolebindings,crds,serviceaccounts', '-A', '-o', 'name'])
  expect(all.split('\n').filter((name) => /fairlead|shops/.test(name))).toEqual(['serviceaccount/fairlead-foreign'])
  for (const some of [[], ['-f', file]])
    expect(await fairlead(['uninstall', ...some, '--crds'])).toMatchObject({ code: 0 })
})

describe('a definition', () => {
  const CRD = 'shops.shops.test'
  const OTHER = { metadata: { name: 'other' }, spec: { owns: [], related: [], finalize: false, invoke: { pull: {} } } }
  const SHOPS = { group: 'shops.test', version: 'v1', resource: 'shops', kind: 'Shop' }
  const FOR_MAPS = { group: '', version: 'v1', resource: 'configmaps', kind: 'ConfigMap', status: 'Untouched' }
  const clientOf = async () =>
    createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  const planned = async (kube: KubeClient) => {
    await fairlead(['install', '-f', file])
    const { shop: one } = (await import(file)) as { shop: Reconciler }
    return planUninstall(kube, [one], { crds: true })
  }
  const fateOf = (removals: readonly Removal[]) => removals.find(({ name }) => name === CRD)
  const uidOf = () => kubectl(['get', 'crd', CRD, '-o', 'jsonpath={.metadata.uid}'])

  it('stays if an object is stored under it after the plan', async () => {
    await using kube = await clientOf()
    const plan = await planned(kube)
    expect(fateOf(plan.removals)).toMatchObject({ result: 'deleted' })
    await kubectl(['create', '-f', '-'], SHOP)
    expect(fateOf(await uninstall(kube, plan))).toMatchObject({
      result: 'kept',
      because: 'objects are stored under it, such as default/a',
    })
    await kubectl(['delete', 'shop/a', '--timeout=240s'])
  })

  it.each([
    ['reconciles', { for: SHOPS }],
    ['owns', { for: FOR_MAPS, owns: [SHOPS] }],
    ['reads', { for: FOR_MAPS, related: [SHOPS] }],
  ])('stays if another Reconciler %s its kind, before the plan or after it', async (_, spec) => {
    await using kube = await clientOf()
    const plan = await planned(kube)
    const other = {
      ...OTHER,
      apiVersion: 'fairlead.dev/v1alpha1',
      kind: 'Reconciler',
      spec: { ...OTHER.spec, ...spec },
    }
    await kubectl(['create', '-f', '-'], other)
    const kept = { result: 'kept', because: 'Reconcilers of others need it: other' }
    expect(fateOf((await planned(kube)).removals)).toMatchObject(kept)
    expect(fateOf(await uninstall(kube, plan))).toMatchObject(kept)
    await kubectl(['delete', 'reconciler/other'])
  })

  it('stays if it was created again directly before its deletion', async () => {
    await using kube = await clientOf()
    const plan = await planned(kube)
    const before = await uidOf()
    const late: KubeClient = {
      ...kube,
      async delete(path, options) {
        if (path.endsWith(`/${CRD}`)) {
          await kubectl(['delete', 'crd', CRD])
          await fairlead(['install', '-f', file])
        }
        return kube.delete(path, options)
      },
    }
    expect(fateOf(await uninstall(late, plan))).toMatchObject({ result: 'kept', because: 'it has been created again' })
    expect(await uidOf()).not.toBe(before)
  })
})

it('a function that is served over HTTP is called there', async () => {
  const invoke = () => kubectl(['get', 'reconciler/shop', '-o', 'jsonpath={.spec.invoke}'])
  await fairlead(['install', '-f', file])
  await fairlead(['install', '-f', file, '--url', 'http://{name}.functions.svc'])
  expect(JSON.parse(await invoke())).toEqual({ http: { url: 'http://shop.functions.svc' } })
  const wrong = await fairlead(['install', '-f', file, '--url', 'shop'])
  expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining('--url is "shop"') })
  await fairlead(['install', '-f', file])
  expect(JSON.parse(await invoke())).toEqual({ pull: {} })
})

it('what Reconcilers of others need stays', async () => {
  await fairlead(['install', '--builtin', 'all'])
  const { code, stdout } = await fairlead(['uninstall', '-f', file, '--crds'])
  expect(code).toBe(0)
  expect(stdout).toMatch(/ClusterRole +fairlead-bridge +kept +Reconcilers of others need it: at, /)
  expect(await names('reconcilers')).toContain('reconciler.fairlead.dev/at')
  expect(await names('reconcilers')).not.toContain('reconciler.fairlead.dev/shop')
})
