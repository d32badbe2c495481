import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { functionRbac, install, planUninstall, teamRbac, uninstall } from '#install'
import { type KubeClient, resourcePath } from '#kube'
import type { Cluster } from '#lab'
import { type ConfigDeclaration, ConfigMap, manifest, type Reconciler, reconciler, resource, Secret, z } from '#sdk'
import { RECONCILERS } from '#spec'
import { clientOf } from '../cli/fleet.ts'
import { kubeconfigOf } from '../support/account.ts'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'
import { CHART, helmIn, SYSTEM } from '../support/helm.ts'
import { kubectlFor } from '../support/kubectl.ts'
import { startTestCluster } from '../support/servers.ts'
import { until } from '../support/wait.ts'
import { Shop, shop } from './team-function.ts'

const MODULE = fileURLToPath(new URL('./team-function.ts', import.meta.url))
const PIPELINE = { namespace: 'shop', name: 'pipeline' }
const VALUES = {
  teams: [
    {
      name: 'shop',
      namespaces: ['shop', 'shop-test'],
      reconcilers: ['shop', 'shop-mail'],
      definitions: ['shops.shop.example.com'],
      kinds: ['configmaps', 'mails.shop.example.com'],
      installers: [{ kind: 'ServiceAccount', ...PIPELINE }],
      members: [{ kind: 'Group', name: 'team-shop' }],
      maxConcurrency: 16,
      quota: { 'count/configmaps': '3' },
    },
    {
      name: 'pay',
      namespaces: ['pay'],
      reconcilers: ['pay'],
      kinds: ['configmaps', 'secrets'],
      installers: [{ kind: 'User', name: 'pay-pipeline' }],
    },
  ],
}

const stack = new AsyncDisposableStack()
let cluster: Cluster
let admin: KubeClient
let team: KubeClient
let teamConfig: string

beforeAll(async () => {
  const dir = await mkdtemp(join(tmpdir(), 'fl-team-'))
  stack.defer(() => rm(dir, { recursive: true, force: true }))
  cluster = stack.use(await startTestCluster({ controllers: true, nats: true, audit: true }))
  admin = stack.use(await clientOf(cluster.kubeconfig))
  await install(admin, [])
  for (const name of ['shop', 'shop-test', 'pay'])
    await create({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } })
  await create({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: PIPELINE })
  await writeFile(join(dir, 'values.yaml'), JSON.stringify(VALUES))
  const values = ['-f', join(dir, 'values.yaml'), '--show-only', 'templates/teams.yaml']
  const kubectl = await kubectlFor(cluster)
  await kubectl(['apply', '-f', '-'], await (await helmIn(dir))(['template', 'fairlead', CHART, ...SYSTEM, ...values]))
  teamConfig = await kubeconfigOf(admin, cluster.kubeconfig, PIPELINE)
  team = stack.use(await clientOf(teamConfig))
  // The API server knows policies and roles a moment after it has stored them.
  const elsewhere = { ...shopSpec(), serviceAccount: { name: 'fairlead-shop', namespace: 'pay' } }
  await until(() => isRefused(reconcilerOf('shop', elsewhere)))
  const global = { ...Shop.crd(), spec: { ...Shop.crd().spec, scope: 'Cluster' } }
  await until(() => isRefused(global))
  await until(() => apply(team, reconcilerOf('shop', shopSpec())))
  await until(() => apply(team, Shop.crd()))
  for (const namespace of ['shop', 'shop-test']) await until(() => apply(team, role('fairlead-shop', namespace, [])))
})
afterAll(() => stack.disposeAsync())

const RESOURCES: Record<string, { group: string; version: string; resource: string }> = {
  Namespace: { group: '', version: 'v1', resource: 'namespaces' },
  ServiceAccount: { group: '', version: 'v1', resource: 'serviceaccounts' },
  ConfigMap: { group: '', version: 'v1', resource: 'configmaps' },
  Secret: { group: '', version: 'v1', resource: 'secrets' },
  ResourceQuota: { group: '', version: 'v1', resource: 'resourcequotas' },
  Role: { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'roles' },
  RoleBinding: { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'rolebindings' },
  ClusterRole: { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'clusterroles' },
  CustomResourceDefinition: { group: 'apiextensions.k8s.io', version: 'v1', resource: 'customresourcedefinitions' },
  Reconciler: RECONCILERS,
  Shop,
}
const pathOf = ({ kind, metadata: { namespace, name } }: KubeObject): string =>
  resourcePath(RESOURCES[kind]!, namespace, name)
const create = ({ kind, metadata, ...rest }: KubeObject): Promise<KubeObject> =>
  admin.create(resourcePath(RESOURCES[kind]!, metadata.namespace), { kind, metadata, ...rest })
/** Server-side apply without its effect. */
const apply = (kube: KubeClient, object: KubeObject): Promise<KubeObject> =>
  kube.apply(pathOf(object), object, { fieldManager: 'test', force: true, dryRun: true })

const isRefused = (object: KubeObject): Promise<boolean> =>
  apply(admin, object).then(
    () => false,
    ({ message }: Error) => message.includes('team shop'),
  )

const reconcilerOf = (name: string, spec: object): KubeObject => ({
  apiVersion: 'fairlead.dev/v1alpha1',
  kind: 'Reconciler',
  metadata: { name },
  spec,
})
const role = (name: string, namespace: string, rules: object[]): KubeObject => ({
  apiVersion: 'rbac.authorization.k8s.io/v1',
  kind: 'Role',
  metadata: { name, namespace },
  rules,
})
const shopSpec = () => ({ ...manifest(shop).spec, serviceAccount: { name: 'fairlead-shop', namespace: 'shop' } })

/** All that an installation writes, with its versions. */
async function state(): Promise<string[]> {
  const found: string[] = []
  for (const kind of ['ServiceAccount', 'Role', 'RoleBinding', 'CustomResourceDefinition', 'Reconciler'])
    for await (const { items } of admin.list(resourcePath(RESOURCES[kind]!)))
      for (const { metadata } of items)
        if (/^(Recon|Custom)/.test(kind) || JSON.stringify(metadata.labels ?? {}).includes('fairlead'))
          found.push(`${kind} ${metadata.namespace ?? ''}/${metadata.name} ${metadata.resourceVersion}`)
  return found.toSorted()
}

const like = (more: Partial<Reconciler>): Reconciler => ({ ...shop, ...more })
const Mail = resource({
  group: 'shop.example.com',
  version: 'v1',
  kind: 'Mail',
  plural: 'mails',
  spec: z.object({}),
  status: z.object({}),
})

describe('a team', () => {
  it('installs a function with the permissions of its pipeline alone, and repeating it changes nothing', async () => {
    const env = { KUBECONFIG: teamConfig }
    const first = await command(['install', '--team', '-f', MODULE, '-o', 'json'], env)
    expect([first.code, first.stderr]).toEqual([0, ''])
    const made = (JSON.parse(first.stdout) as { kind: string; namespace?: string; name: string; result: string }[]).map(
      ({ kind, namespace = '', name, result }) => `${kind} ${namespace}/${name} ${result}`,
    )
    expect(made.toSorted()).toEqual([
      'CustomResourceDefinition /shops.shop.example.com created',
      'Reconciler /shop created',
      'Role shop-test/fairlead-shop created',
      'Role shop/fairlead-shop created',
      'Role shop/fairlead-shop-impersonate created',
      'RoleBinding shop-test/fairlead-shop created',
      'RoleBinding shop/fairlead-shop created',
      'RoleBinding shop/fairlead-shop-impersonate created',
      'ServiceAccount shop/fairlead-shop created',
    ])
    const before = await state()
    const second = await command(['install', '--team', '-f', MODULE, '-o', 'json'], env)
    expect(second.stdout).not.toMatch(/created|configured|deleted/)
    expect(await state()).toEqual(before)
  })

  it('gives its function what the platform would give it, within its namespaces', () => {
    const rulesOf = (objects: KubeObject[], name: string) => {
      const roles = objects.filter(({ kind, metadata }) => kind.endsWith('Role') && metadata.name === name)
      return new Set(roles.map((one) => JSON.stringify(one['rules'])))
    }
    const one = manifest(like({ namespaces: ['shop', 'shop-test'], writes: ['Metadata', 'Deletion'] }))
    for (const name of ['fairlead-shop', 'fairlead-shop-impersonate'])
      expect(rulesOf(teamRbac(one), name)).toEqual(rulesOf(functionRbac(one), name))
    expect(teamRbac(one).filter(({ metadata }) => metadata.namespace === undefined)).toEqual([])
  })

  const mail = like({ name: 'shop-mail', for: Mail })
  it.each<[string, Reconciler[], object, string]>([
    [
      'another namespace',
      [like({ namespaces: ['shop', 'pay'] })],
      {},
      'spec.for.namespaces has to be of shop, shop-test',
    ],
    ['the name of another team', [like({ name: 'pay' })], {}, 'allows it by teams[].reconcilers with pay in its chart'],
    ['a kind that it does not have', [like({ owns: [Secret] })], {}, 'team shop does not have the kinds secrets'],
    ['another definition', [mail], {}, 'allows it by teams[].definitions with mails.shop.example.com in its chart'],
    ['more runs at once', [like({ concurrency: 17 })], {}, 'team shop: spec.concurrency is 16 at most'],
    [
      'a Service of others',
      [shop],
      { url: 'http://{name}.pay.svc' },
      'that of a Service, http://NAME.NAMESPACE.svc, in',
    ],
    ['another shard', [shop], { shard: 'b' }, 'the label fairlead.dev/shard has to be left out'],
    [
      'all namespaces',
      [like({ namespaces: undefined })],
      {},
      '--team installs within namespaces, and function shop is',
    ],
    [
      'objects of other namespaces',
      [like({ related: [{ ...ConfigMap, within: 'Cluster' }] })],
      {},
      '--team installs within namespaces, and function shop reads configmaps.v1 of others',
    ],
    [
      'the kind of another resource',
      [like({ for: { ...ConfigMap, kind: 'Shop' } })],
      {},
      'function shop is for configmaps.v1 as Shop, but the API server serves it as ConfigMap',
    ],
    ['one function too many', [shop, like({ name: 'third' })], {}, 'teams[].reconcilers with third'],
  ])('is refused %s, and told what is missing; nothing changes', async (_, functions, options, message) => {
    const before = await state()
    await expect(install(team, functions, { ...options, team: true })).rejects.toThrow(message)
    expect(await state()).toEqual(before)
  })

  const rule = (resource: string) => ({ apiGroups: [''], resources: [resource], verbs: ['get'] })
  const bound = (name: string, roleRef: object): KubeObject => ({
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'RoleBinding',
    metadata: { name, namespace: 'shop-test' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', ...roleRef },
    subjects: [{ kind: 'ServiceAccount', ...PIPELINE }],
  })
  const aggregated: KubeObject = {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRole',
    metadata: { name: 'more', labels: { 'fairlead.dev/aggregate-to-bridge': 'true' } },
    rules: [],
  }
  const webhook = () => ({
    strategy: 'Webhook',
    webhook: { conversionReviewVersions: ['v1'], clientConfig: { url: 'https://x.example.com' } },
  })
  const inNamespace = (kind: string, namespace: string): KubeObject => ({
    apiVersion: 'v1',
    kind,
    metadata: { name: 'any', namespace },
  })
  const scaled = (kind: string, within: string) => ({ ...RESOURCES[kind], kind, act: 'Scale', within })
  const quota = {
    ...inNamespace('ResourceQuota', 'shop'),
    metadata: { name: 'fairlead-team', namespace: 'shop' },
    spec: { hard: {} },
  }

  it.each<[string, () => KubeObject, RegExp]>([
    [
      'the account of a dispatcher',
      () =>
        reconcilerOf('shop', {
          ...shopSpec(),
          serviceAccount: { name: 'fairlead-dispatcher', namespace: 'fairlead-system' },
        }),
      /has to be fairlead-shop, in shop or shop-test/,
    ],
    [
      'no account, which would be that of the dispatcher',
      () => reconcilerOf('shop-mail', { ...shopSpec(), serviceAccount: undefined }),
      /has to be fairlead-shop-mail/,
    ],
    [
      'the account of another team',
      () => reconcilerOf('shop', { ...shopSpec(), serviceAccount: { name: 'fairlead-shop', namespace: 'pay' } }),
      /has to be fairlead-shop/,
    ],
    [
      'the account of another of its functions',
      () => reconcilerOf('shop', { ...shopSpec(), serviceAccount: { name: 'fairlead-shop-mail', namespace: 'shop' } }),
      /has to be fairlead-shop/,
    ],
    [
      'all namespaces',
      () =>
        reconcilerOf('shop-mail', {
          ...shopSpec(),
          serviceAccount: { name: 'fairlead-shop-mail', namespace: 'shop' },
          for: manifest(like({ namespaces: undefined })).spec.for,
        }),
      /spec.for.namespaces/,
    ],
    [
      'objects of other namespaces',
      () =>
        reconcilerOf('shop', {
          ...shopSpec(),
          related: [{ ...RESOURCES['ConfigMap'], kind: 'ConfigMap', namespacePath: 'spec.from' }],
        }),
      /spec.related/,
    ],
    [
      'acts on objects of other namespaces',
      () => reconcilerOf('shop', { ...shopSpec(), acts: [scaled('ConfigMap', 'Cluster')] }),
      /spec.acts/,
    ],
    [
      'acts on a kind that it does not have',
      () => reconcilerOf('shop', { ...shopSpec(), acts: [scaled('Secret', 'Namespace')] }),
      /does not have the kinds secrets/,
    ],
    [
      'the identity of another function',
      () => reconcilerOf('shop', { ...shopSpec(), identity: 'pay' }),
      /spec.identity/,
    ],
    [
      'a server outside of the cluster',
      () => reconcilerOf('shop', { ...shopSpec(), invoke: { http: { url: 'http://a.shop.svc.example.com/' } } }),
      /spec.invoke.http.url/,
    ],
    [
      'a server behind credentials',
      () => reconcilerOf('shop', { ...shopSpec(), invoke: { http: { url: 'http://a.shop.svc:80@example.com/' } } }),
      /spec.invoke.http.url/,
    ],
    [
      'the function of others',
      () => reconcilerOf('shop', { ...shopSpec(), invoke: { pull: { function: 'pay' } } }),
      /spec.invoke.pull.function/,
    ],
    ['a Reconciler of another team', () => reconcilerOf('pay', shopSpec()), /cannot patch resource "reconcilers"/],
    [
      'a Role with more than its own permissions',
      () => role('fairlead-shop', 'shop', [rule('secrets')]),
      /attempting to grant RBAC permissions not currently held/,
    ],
    ['a Role of another name', () => role('more', 'shop', [rule('configmaps')]), /cannot patch resource "roles"/],
    ['a Role of another team', () => role('fairlead-pay', 'pay', []), /cannot patch resource "roles"/],
    [
      'a binding of more than its own permissions',
      () => bound('fairlead-shop-mail', { kind: 'ClusterRole', name: 'cluster-admin' }),
      /attempting to grant RBAC permissions/,
    ],
    [
      'a ClusterRole that would be part of that of the bridge',
      () => aggregated,
      /cannot patch resource "clusterroles"/,
    ],
    [
      'a webhook in its definition',
      () => ({ ...Shop.crd(), spec: { ...Shop.crd().spec, conversion: webhook() } }),
      /spec.conversion.strategy has to be None/,
    ],
    ['objects of another team', () => inNamespace('ConfigMap', 'pay'), /cannot patch resource "configmaps"/],
    ['Secrets, which are not among its kinds', () => inNamespace('Secret', 'shop'), /cannot patch resource "secrets"/],
    ['another quota', () => quota, /cannot patch resource "resourcequotas"/],
  ])('is refused without the command as well: %s', async (_, object, message) => {
    await expect(apply(team, object())).rejects.toThrow(message)
  })

  it('creates Reconcilers by name only, writes no status of them, and deletes none of others', async () => {
    const path = resourcePath(RECONCILERS)
    await expect(team.create(path, reconcilerOf('shop-mail', shopSpec()))).rejects.toThrow('cannot create resource')
    await expect(team.patch(`${path}/shop/status`, { status: {} }, 'merge')).rejects.toThrow('cannot patch resource')
    await expect(team.delete(`${path}/pay`)).rejects.toThrow('cannot delete resource')
  })

  it('has limits that hold for the platform team too: they are those of the names', async () => {
    await expect(apply(admin, reconcilerOf('shop-mail', shopSpec()))).rejects.toThrow('team shop')
    await apply(admin, reconcilerOf('of-the-platform', { ...shopSpec(), serviceAccount: undefined }))
  })

  it('is not in the way of another team, which installs by itself', async () => {
    const pay = reconciler({
      name: 'pay',
      for: ConfigMap,
      selector: 'pay=yes',
      owns: [Secret],
      namespaces: ['pay'],
      reconcile: () => undefined,
    })
    const before = (await state()).filter((one) => !one.includes('pay'))
    await install(admin.as('pay-pipeline'), [pay], { team: true })
    expect((await state()).filter((one) => !one.includes('pay'))).toEqual(before)
    await expect(install(admin.as('pay-pipeline'), [shop], { team: true })).rejects.toThrow(
      'teams[].reconcilers with shop',
    )
  })
})

it('a team gives its function values of its own, in its own namespace, and takes them back', async () => {
  const pay = (config: ConfigDeclaration[]) =>
    reconciler({
      name: 'pay',
      for: ConfigMap,
      selector: 'pay=yes',
      namespaces: ['pay'],
      ...(config.length > 0 && { external: { config, read: () => null, perform: () => undefined } }),
      reconcile: () => undefined,
    })
  const rights = async () => (await state()).filter((one) => one.includes('fairlead-pay-external'))
  const token = { name: 'token', secret: { name: 'provider', key: 'token' } }
  await install(admin.as('pay-pipeline'), [pay([token, { name: 'cloud', audience: 'cloud.test' }])], { team: true })
  const title = (one: string) => one.replace(/ \d+$/, '')
  expect((await rights()).map(title)).toEqual([
    'Role pay/fairlead-pay-external',
    'RoleBinding pay/fairlead-pay-external',
  ])
  await install(admin.as('pay-pipeline'), [pay([])], { team: true })
  expect(await rights()).toEqual([])
})

describe('a function of a team', () => {
  it('runs on the rights that the platform and the team have given, within the namespaces and the quota', async () => {
    const account = { namespace: 'fairlead-system', name: 'fairlead' }
    const KUBECONFIG = await kubeconfigOf(admin, cluster.kubeconfig, account)
    await using running = startFairlead(['up', '-f', MODULE], { KUBECONFIG, NATS_URL: cluster.nats?.url ?? '' })
    await running.logged(({ msg, reconciler }) => msg === 'reconciler served' && reconciler === 'shop')
    const open = (name: string, namespace: string) =>
      admin.create(resourcePath(Shop, namespace), Shop.of({ metadata: { name }, spec: {} }))
    const isMade = async (name: string, namespace: string) => {
      expect((await admin.get(resourcePath(Shop, namespace, name))).status).toMatchObject({ phase: 'OPEN' })
      await admin.get(resourcePath(ConfigMap, namespace, name))
    }
    await open('b', 'shop-test')
    for (const name of ['a1', 'a2']) {
      await open(name, 'shop')
      await until(() => isMade(name, 'shop'))
    }
    await until(() => isMade('b', 'shop-test'))
    // Beside kube-root-ca.crt and these two, the quota has room for none.
    await open('c', 'shop')
    await until(async () => {
      const text = JSON.stringify((await admin.get(resourcePath(Shop, 'shop', 'c'))).status)
      expect(text).toContain('exceeded quota: fairlead-team')
    })
    const writes = (await cluster.audit()).filter(({ resource, verb }) => resource === 'configmaps' && verb === 'patch')
    expect(new Set(writes.map(({ actedAs }) => actedAs).filter((one) => one !== ''))).toEqual(
      new Set(['system:serviceaccount:shop:fairlead-shop']),
    )
    await open('elsewhere', 'pay')
    await open('e', 'shop-test')
    await until(() => isMade('e', 'shop-test'))
    await expect(admin.get(resourcePath(ConfigMap, 'pay', 'elsewhere'))).rejects.toThrow('not found')
  })
})

describe('a member of a team', () => {
  it.each<[boolean, object]>([
    [true, { verb: 'list', resource: 'reconcilers', group: 'fairlead.dev' }],
    [true, { verb: 'update', resource: 'reconcilers', subresource: 'queue', name: 'shop', group: 'fairlead.dev' }],
    [false, { verb: 'update', resource: 'reconcilers', subresource: 'queue', name: 'pay', group: 'fairlead.dev' }],
    [false, { verb: 'list', resource: 'reconcilers', subresource: 'dead', group: 'fairlead.dev' }],
    [false, { verb: 'patch', resource: 'reconcilers', name: 'shop', group: 'fairlead.dev' }],
    [true, { verb: 'list', resource: 'shops', group: 'shop.example.com', namespace: 'shop' }],
    [true, { verb: 'get', resource: 'configmaps', group: '', namespace: 'shop-test' }],
    [false, { verb: 'list', resource: 'shops', group: 'shop.example.com', namespace: 'pay' }],
    [false, { verb: 'list', resource: 'shops', group: 'shop.example.com' }],
    [false, { verb: 'get', resource: 'secrets', group: '', namespace: 'shop' }],
  ])('of whom the console asks (%s: %j) sees and runs what is of the team', async (allowed, resourceAttributes) => {
    const review = {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SubjectAccessReview',
      spec: { user: 'ann', groups: ['team-shop', 'system:authenticated'], resourceAttributes },
    }
    const { status } = await admin.create<{ status: { allowed: boolean } }>(
      '/apis/authorization.k8s.io/v1/subjectaccessreviews',
      review,
    )
    expect(status.allowed).toBe(allowed)
  })
})

describe('what a team has installed', () => {
  const inTest = async () => (await state()).filter((one) => one.includes(' shop-test/fairlead-shop'))

  it('leaves a namespace with all its permissions, also after an installation that was cut off', async () => {
    const cutOff: KubeClient = { ...team, delete: () => Promise.reject(new Error('cut off')) }
    const narrower = like({ namespaces: ['shop'] })
    await expect(install(cutOff, [narrower], { team: true })).rejects.toThrow('cut off')
    expect(await inTest()).not.toEqual([])
    await install(team, [narrower], { team: true })
    expect(await inTest()).toEqual([])
  })

  it('goes with an uninstallation by the team; its definition and its objects stay', async () => {
    await install(team, [shop], { team: true })
    const plan = await planUninstall(team, [shop], { team: true })
    await uninstall(team, plan, [], true)
    const left = (await state()).filter((one) => /\/(fairlead-)?shop/.test(one))
    expect(left).toEqual([expect.stringContaining('CustomResourceDefinition /shops.shop.example.com')])
  })
})
