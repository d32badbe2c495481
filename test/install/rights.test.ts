import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject, ResourceRef } from '#contracts'
import { functionRbac, install, planUninstall, uninstall } from '#install'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import {
  type ConfigDeclaration,
  ConfigMap,
  Deployment,
  grantKinds,
  Job,
  manifest,
  Node,
  namedKind,
  Pod,
  type Reconciler,
  reconciler,
  resource,
  Secret,
  z,
} from '#sdk'
import { RECONCILER_LABEL } from '#spec'
import { borrowCluster } from '../support/borrowed.ts'
import { randomFrom } from '../support/random.ts'
import { until } from '../support/wait.ts'

const RBAC = { group: 'rbac.authorization.k8s.io', version: 'v1' }
const KINDS = {
  ClusterRole: { ...RBAC, resource: 'clusterroles' },
  ClusterRoleBinding: { ...RBAC, resource: 'clusterrolebindings' },
  Role: { ...RBAC, resource: 'roles' },
  RoleBinding: { ...RBAC, resource: 'rolebindings' },
  ServiceAccount: { group: '', version: 'v1', resource: 'serviceaccounts' },
}
const SYSTEM = 'fairlead-system'
const NAMESPACES = ['a', 'b', 'c', 'team']

let cluster: Awaited<ReturnType<typeof borrowCluster>>
let kube: KubeClient

beforeAll(async () => {
  cluster = await borrowCluster()
  kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  for (const name of NAMESPACES)
    await kube.create('/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name } })
})
afterAll(async () => {
  await kube?.close()
  await cluster?.[Symbol.asyncDispose]()
})

const kindOf = (name: string) =>
  resource({
    group: 'rights.test',
    version: 'v1',
    kind: name[0]?.toUpperCase() + name.slice(1),
    plural: `${name}s`,
    spec: z.object({}),
    status: z.object({}),
  })
const KIND = { shop: kindOf('shop'), mall: kindOf('mall') }
type Name = keyof typeof KIND

const declared = (name: Name, more: object = {}): Reconciler =>
  reconciler({ name, for: KIND[name], reconcile: () => undefined, ...more })

/** Every part of a declaration on which the permissions depend. */
function anyDeclaration(name: Name, random: () => number): Reconciler {
  const oneOf = <T>(...choices: T[]): T => choices[Math.floor(random() * choices.length)] as T
  const someOf = <T>(...choices: T[]): T[] => choices.filter(() => random() < 0.5)
  const namespaces = oneOf(undefined, ['a'], ['a', 'b'], ['b', 'c'])
  const serviceAccount = oneOf(
    undefined,
    { name: 'robot', namespace: 'team' },
    { name: 'robot', namespace: 'c' },
    { name: 'shared', namespace: SYSTEM },
  )
  const writes = someOf('Metadata', 'Deletion')
  const config = someOf<ConfigDeclaration>(
    { name: 'token', secret: { name: oneOf('one', 'two'), key: 'token' } },
    { name: 'zone', configMap: { name: 'one', key: 'zone' } },
    { name: 'cloud', audience: 'cloud.test' },
  )
  const any = declared(name, {
    owns: someOf(ConfigMap, Job),
    related: someOf<object>({ ...Secret, within: 'Cluster' }, { ...Pod, namespacePath: 'status.namespace' }, Target),
    ...(writes.length > 0 && { writes }),
    ...(namespaces && { namespaces }),
    ...(serviceAccount && { serviceAccount }),
    ...(random() < 0.3 && { finalize: () => undefined }),
    ...(config.length > 0 && { external: { config, read: () => null, perform: () => undefined } }),
  })
  return grantKinds(any, someOf<ResourceRef & { kind: string }>(Deployment, Node))
}

const Target = namedKind({ kindPath: 'spec.target', byName: 'spec.target.name', within: 'Cluster' })

async function all(kind: keyof typeof KINDS): Promise<KubeObject[]> {
  const objects: KubeObject[] = []
  for await (const { items } of kube.list(resourcePath(KINDS[kind]))) objects.push(...items)
  return objects
}

/** All accounts, roles and bindings of Fairlead. */
async function installed(): Promise<string[]> {
  const objects = (await Promise.all((Object.keys(KINDS) as (keyof typeof KINDS)[]).map(all))).flat()
  return objects
    .filter(({ metadata }) => /fairlead/.test(JSON.stringify(metadata.labels ?? {})))
    .map(({ kind, metadata: { namespace, name, labels }, ...rest }) =>
      JSON.stringify({ kind, namespace, name, labels, roleRef: rest['roleRef'], subjects: rest['subjects'] }),
    )
    .toSorted()
}

let fences = 0
/** Resolves when the authorizer has seen all changes until now: it watches each kind, and so sees them in order. */
async function settled(): Promise<void> {
  const name = `fence-${++fences}`
  const role = { apiVersion: 'rbac.authorization.k8s.io/v1', metadata: { name } }
  const roleRef = { apiGroup: RBAC.group, kind: 'ClusterRole', name }
  const bound = (user: string) => ({ ...role, roleRef, subjects: [{ apiGroup: RBAC.group, kind: 'User', name: user }] })
  const rules = [{ apiGroups: ['fence'], resources: ['fences'], verbs: ['get'] }]
  await kube.create(resourcePath(KINDS.ClusterRole), { ...role, kind: 'ClusterRole', rules })
  await kube.create(resourcePath(KINDS.ClusterRoleBinding), { ...bound(`${name}-all`), kind: 'ClusterRoleBinding' })
  await kube.create(resourcePath(KINDS.RoleBinding, 'a'), { ...bound(`${name}-a`), kind: 'RoleBinding' })
  for (const user of [`${name}-all`, `${name}-a`])
    await until(async () => (await rulesOf(user, 'a')).some((rule) => rule.includes('fences')), {
      what: `${name} is seen`,
    })
}

/** What `kubectl auth can-i --list` prints. */
async function rulesOf(user: string, namespace: string): Promise<string[]> {
  const review = { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectRulesReview', spec: { namespace } }
  const { status } = await kube
    .as(user)
    .create<{ status: { resourceRules: object[] } }>('/apis/authorization.k8s.io/v1/selfsubjectrulesreviews', review)
  return status.resourceRules.map((rule) => JSON.stringify(rule)).toSorted()
}

const ACCOUNTS = [
  `${SYSTEM}:fairlead-shop`,
  `${SYSTEM}:fairlead-mall`,
  `${SYSTEM}:shared`,
  `${SYSTEM}:fairlead-dispatcher`,
  'team:robot',
  'c:robot',
]

async function rights(): Promise<Record<string, string[]>> {
  await settled()
  const found: Record<string, string[]> = {}
  for (const account of ACCOUNTS)
    for (const namespace of [...NAMESPACES, SYSTEM, 'default'])
      found[`${account} in ${namespace}`] = await rulesOf(`system:serviceaccount:${account}`, namespace)
  return found
}

/** Uninstalls the functions, and the platform after the last one. */
async function uninstalled(functions: readonly Reconciler[]): Promise<void> {
  for (const some of [functions, []]) await uninstall(kube, await planUninstall(kube, some))
}

const STEPS = 12
const seed = Number(process.env['FAIRLEAD_SEED'] ?? Date.now() % 1_000_000)
it(`after any sequence of declarations the permissions are those of a fresh installation of the last ones, and an uninstallation leaves none, seed ${seed}`, async () => {
  const random = randomFrom(seed)
  for (let round = 0; round < 4; round++) {
    const last = new Map<Name, Reconciler>()
    const steps = 1 + Math.floor(random() * STEPS)
    for (let step = 0; step < steps; step++) {
      const names = (Object.keys(KIND) as Name[]).filter(() => random() < 0.7)
      const next = names.map((name) => anyDeclaration(name, random))
      const finalized = next.filter((one) => last.get(one.name as Name)?.finalize && !one.finalize)
      await install(kube, next)
      // No object has the finalizer: the next installation removes the permission to remove it.
      await install(kube, finalized)
      for (const one of next) last.set(one.name as Name, one)
    }
    const functions = [...last.values()]
    await install(kube, functions)
    const after = { installed: await installed(), rights: await rights() }
    await uninstalled(functions)
    expect(await installed()).toEqual([])
    await install(kube, functions)
    expect(after).toEqual({ installed: await installed(), rights: await rights() })
    await uninstalled(functions)
  }
})

describe('a declaration with fewer permissions', () => {
  const wide = declared('shop', { related: [{ ...Secret, within: 'Cluster' }], namespaces: ['a', 'b'] })
  const narrow = declared('shop', { namespaces: ['a'] })
  const bound = async () =>
    (await Promise.all([all('ClusterRoleBinding'), all('RoleBinding')]))
      .flat()
      .filter(({ metadata }) => metadata.name.startsWith('fairlead-shop'))
      .map(({ metadata: { namespace = '*', name } }) => `${name} in ${namespace}`)

  it('removes what a version without the label of the Reconciler has installed', async () => {
    await install(kube, [])
    for (const one of [...functionRbac(manifest(declared('shop'))), ...functionRbac(manifest(wide))]) {
      const { [RECONCILER_LABEL]: _, ...labels } = one.metadata.labels ?? {}
      const { namespace, name } = one.metadata
      const path = resourcePath(KINDS[one.kind as keyof typeof KINDS], namespace, name)
      const before = { ...one, metadata: { ...one.metadata, labels } }
      await kube.apply(path, before, { fieldManager: 'fairlead-install', force: true })
    }
    const found = ['fairlead-shop in *', 'fairlead-shop-related in *', 'fairlead-shop in a', 'fairlead-shop in b']
    expect(await bound()).toEqual(found)
    const results = await install(kube, [narrow])
    expect(results.filter(({ result }) => result === 'deleted').map(({ kind, name }) => `${kind} ${name}`)).toEqual([
      'RoleBinding fairlead-shop',
      'ClusterRoleBinding fairlead-shop',
      'ClusterRoleBinding fairlead-shop-related',
      'ClusterRole fairlead-shop-related',
    ])
    expect(await bound()).toEqual(['fairlead-shop in a'])
    await uninstalled([narrow])
    expect(await installed()).toEqual([])
  })

  it('removes what kubectl has applied from the printed manifests', async () => {
    await install(kube, [narrow])
    for (const one of functionRbac(manifest(wide))) {
      const { namespace, name } = one.metadata
      const path = resourcePath(KINDS[one.kind as keyof typeof KINDS], namespace, name)
      await kube.apply(path, one, { fieldManager: 'kubectl', force: true })
    }
    await install(kube, [narrow])
    expect(await bound()).toEqual(['fairlead-shop in a'])
    await uninstalled([narrow])
  })

  it('leaves what others have made, with the same names or with a copied label', async () => {
    const labels = { 'app.kubernetes.io/part-of': 'fairlead', [RECONCILER_LABEL]: 'shop' }
    const foreign = [
      { name: 'fairlead-shop-related', labels: { 'app.kubernetes.io/part-of': 'fairlead' } },
      { name: 'copied', labels },
    ].map((metadata) => ({ apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'ClusterRole', metadata, rules: [] }))
    for (const one of foreign) await kube.create(resourcePath(KINDS.ClusterRole), one)
    await install(kube, [narrow])
    await uninstalled([narrow])
    const left = (await all('ClusterRole')).map(({ metadata }) => metadata.name)
    for (const { metadata } of foreign) {
      expect(left).toContain(metadata.name)
      await kube.delete(resourcePath(KINDS.ClusterRole, undefined, metadata.name))
    }
  })

  it('keeps an account that another Reconciler names, until that one is uninstalled or names another', async () => {
    const shared = { serviceAccount: { name: 'shared', namespace: SYSTEM } }
    const [shop, mall] = [declared('shop', shared), declared('mall', shared)]
    const isThere = async () => (await all('ServiceAccount')).some(({ metadata }) => metadata.name === 'shared')
    await install(kube, [shop, mall])
    await install(kube, [declared('shop')])
    expect(await isThere()).toBe(true)
    await install(kube, [shop])
    const { removals } = await planUninstall(kube, [shop])
    const because = 'Reconcilers of others need it: mall'
    expect(removals.find(({ name }) => name === 'shared')).toMatchObject({ result: 'kept', because })
    await uninstalled([shop])
    expect(await isThere()).toBe(true)
    await install(kube, [declared('mall')])
    expect(await isThere()).toBe(false)
    await uninstalled([declared('mall')])
    expect(await installed()).toEqual([])
  })

  it('keeps an account of the platform that the declaration has named', async () => {
    const serviceAccount = { name: 'fairlead-dispatcher', namespace: SYSTEM }
    const isThere = async () =>
      (await all('ServiceAccount')).some(({ metadata }) => metadata.name === 'fairlead-dispatcher')
    await install(kube, [declared('shop', { serviceAccount }), declared('mall')])
    await install(kube, [declared('shop')])
    expect(await isThere()).toBe(true)
    await install(kube, [declared('shop', { serviceAccount })])
    await uninstalled([declared('shop', { serviceAccount })])
    expect(await isThere()).toBe(true)
    await uninstalled([declared('mall')])
    expect(await installed()).toEqual([])
  })
})
