import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { KubeObject } from '#contracts'
import { functionRbac, platformRbac } from '#install'
import { CertificateSigningRequest, ConfigMap, Job, kind, manifest, Pod, reconciler, resource, Secret } from '#sdk'
import { consoleRbac, consoleWritesRbac } from '../../cli/install/rbac.ts'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({}),
  status: z.object({}),
})

const shop = (more: object = {}) =>
  manifest(
    reconciler({
      name: 'shop',
      for: Shop,
      owns: [ConfigMap, Job],
      related: [Secret, Pod],
      reconcile: () => undefined,
      ...more,
    }),
  )

const find = (objects: KubeObject[], kind: string, name: string) =>
  objects.filter((object) => object.kind === kind && object.metadata.name === name)

/** `verbs resource` of each rule. */
const rights = (role: KubeObject | undefined): string[] =>
  ((role?.['rules'] ?? []) as { resources: string[]; verbs: string[]; resourceNames?: string[] }[]).map(
    ({ resources, verbs, resourceNames }) =>
      `${verbs.join(',')} ${resources.join(',')}${resourceNames ? `=${resourceNames}` : ''}`,
  )

describe('the rights of a function', () => {
  const ofPlatform = ['bridge', 'dispatcher', 'common', 'console', 'console-own', 'console-events', 'console-reader']
  const ofFunctions = ['shop-watch', 'shop-inspect', 'shop-related', 'shop-impersonate', 'shop-external']

  it.each([...ofPlatform, 'console-operator', ...ofFunctions])(
    'are never those of somebody else by its name: %s is refused',
    (name) => {
      expect(() => functionRbac(shop({ name }))).toThrow(`no function can be called ${name}`)
    },
  )

  it('are to write what it declares, and no more', () => {
    expect(rights(find(functionRbac(shop()), 'ClusterRole', 'fairlead-shop')[0])).toEqual([
      'get shops',
      'patch shops/status',
      'update shops/finalizers',
      'create,delete,get,patch configmaps',
      'create,delete,get jobs',
      'get secrets',
      'get pods',
      'create,get,patch events',
    ])
  })

  it('reach its own object as far as it writes that: by patch, delete, or both', () => {
    const of = (more: object) => rights(find(functionRbac(shop(more)), 'ClusterRole', 'fairlead-shop')[0])
    expect(of({ writes: ['Metadata'] })).toContain('get,patch shops')
    expect(of({ writes: ['Deletion'] })).toContain('delete,get shops')
    expect(of({ writes: ['Metadata', 'Deletion'], finalize: () => undefined })).toContain('delete,get,patch shops')
  })

  it('have the verb bind on the roles that it names, and on no others', () => {
    const kinds = { group: 'rbac.authorization.k8s.io', version: 'v1' }
    const Role = kind({ ...kinds, kind: 'Role', plural: 'roles' })
    const binds = ['admin', 'edit'].map((name) => ({ kind: 'ClusterRole' as const, name }))
    const found = rights(
      find(
        functionRbac(shop({ owns: [Role], binds: [...binds, { kind: 'Role', name: 'reader' }] })),
        'ClusterRole',
        'fairlead-shop',
      )[0],
    )
    expect(found.filter((right) => right.includes('roles'))).toEqual([
      'create,delete,get,patch roles',
      'bind clusterroles=admin,edit',
      'bind roles=reader',
    ])
  })

  it('read the values of its configuration by their names alone, in the namespace of its account, and not over HTTP', () => {
    const external = {
      config: [
        { name: 'token', secret: { name: 'provider', key: 'token' } },
        { name: 'user', secret: { name: 'provider', key: 'user' } },
        { name: 'zone', configMap: { name: 'zones', key: 'zone' } },
        { name: 'cloud', audience: 'sts.amazonaws.com' },
      ],
      read: () => null,
      perform: () => undefined,
    }
    const serviceAccount = { name: 'shop', namespace: 'team' }
    const one = shop({ external, serviceAccount, related: [] })
    const ofConfig = find(functionRbac(one), 'Role', 'fairlead-shop-external')
    expect(ofConfig.map(({ metadata }) => metadata.namespace)).toEqual(['team'])
    expect(rights(ofConfig[0])).toEqual([
      'get secrets=provider',
      'get configmaps=zones',
      'create serviceaccounts/token=shop',
    ])
    expect(find(functionRbac(one), 'RoleBinding', 'fairlead-shop-external')).toMatchObject([
      { roleRef: { kind: 'Role' }, subjects: [serviceAccount] },
    ])
    const others = functionRbac(one).filter(({ metadata }) => metadata.name !== 'fairlead-shop-external')
    expect(others.flatMap(rights).filter((right) => /secrets|token/.test(right))).toEqual([])
    const overHttp = functionRbac({ ...one, spec: { ...one.spec, invoke: { http: { url: 'http://shop.team.svc' } } } })
    expect(overHttp.filter(({ kind }) => kind === 'Role')).toEqual([])
  })

  it('end before the status of objects that are another controller’s', () => {
    const spec = { ...shop().spec, for: { ...shop().spec.for, status: 'Untouched' as const } }
    const found = rights(find(functionRbac({ ...shop(), spec }), 'ClusterRole', 'fairlead-shop')[0])
    expect(found).toContain('get shops')
    expect(found).not.toContain('patch shops/status')
  })

  it('are cluster-wide, or those of its namespaces', () => {
    expect(find(functionRbac(shop()), 'ClusterRoleBinding', 'fairlead-shop')).toHaveLength(1)
    const limited = functionRbac(shop({ namespaces: ['a', 'b'] }))
    expect(find(limited, 'ClusterRoleBinding', 'fairlead-shop')).toEqual([])
    expect(find(limited, 'RoleBinding', 'fairlead-shop').map(({ metadata }) => metadata.namespace)).toEqual(['a', 'b'])
  })

  it('read beyond its namespaces only the kinds of which it may be related to objects there', () => {
    const related = [Secret, { ...Pod, namespacePath: 'status.namespace' }, { ...ConfigMap, within: 'Cluster' }]
    const limited = functionRbac(shop({ namespaces: ['a'], related }))
    expect(rights(find(limited, 'ClusterRole', 'fairlead-shop-related')[0])).toEqual(['get pods', 'get configmaps'])
    expect(find(limited, 'ClusterRoleBinding', 'fairlead-shop-related')).toMatchObject([
      { roleRef: { name: 'fairlead-shop-related' }, subjects: [{ name: 'fairlead-shop' }] },
    ])
    for (const same of [shop({ related }), shop({ namespaces: ['a'] })])
      expect(find(functionRbac(same), 'ClusterRole', 'fairlead-shop-related')).toEqual([])
  })

  it('reach of a patched kind the fields that are declared, of its definition the one by name, and beyond namespaces what may be there', () => {
    const Gateway = kind({ group: 'example.net', version: 'v1', kind: 'Gateway', plural: 'gateways' })
    const patches = [
      { ...Pod, within: 'Cluster' },
      { ...Gateway, status: true },
    ]
    const objects = functionRbac(shop({ owns: [], related: [], patches, namespaces: ['a'] }))
    expect(rights(find(objects, 'ClusterRole', 'fairlead-shop')[0])).toEqual([
      'get,patch shops',
      'patch shops/status',
      'get,patch pods',
      'get gateways',
      'patch gateways/status',
      'get customresourcedefinitions=gateways.example.net',
      'create,get,patch events',
    ])
    expect(rights(find(objects, 'ClusterRole', 'fairlead-shop-related')[0])).toEqual(['get,patch pods'])
    expect(rights(find(objects, 'ClusterRole', 'fairlead-shop-watch')[0])).toEqual(
      ['shops', 'pods', 'gateways'].map((resource) => `list,watch ${resource}`),
    )
    expect(rights(find(functionRbac(shop({ owns: [], related: [] })), 'ClusterRole', 'fairlead-shop')[0])).toEqual([
      'get shops',
      'patch shops/status',
      'create,get,patch events',
    ])
  })

  it('of an act are its subresource, of an approval the signers, and beyond namespaces what may be there', () => {
    const acts = [
      { ...Pod, act: 'Evict', within: 'Cluster' },
      { ...Job, act: 'Scale' },
      { ...CertificateSigningRequest, act: 'Approve', signers: ['a.com/b', 'a.com/*'], within: 'Cluster' },
    ]
    const related = [Pod, Job, CertificateSigningRequest]
    const objects = functionRbac(shop({ owns: [], related, acts, namespaces: ['a'] }))
    const approval = ['patch certificatesigningrequests/approval', 'approve signers=a.com/b,a.com/*']
    expect(rights(find(objects, 'ClusterRole', 'fairlead-shop')[0])).toEqual([
      'get shops',
      'patch shops/status',
      'get pods',
      'get jobs',
      'get certificatesigningrequests',
      'create pods/eviction',
      'patch jobs/scale',
      ...approval,
      'create,get,patch events',
    ])
    expect(rights(find(objects, 'ClusterRole', 'fairlead-shop-related')[0])).toEqual([
      'create pods/eviction',
      ...approval,
    ])
    const without = functionRbac(shop({ owns: [], related }))
    expect(JSON.stringify(without)).not.toMatch(/eviction|approv|scale/)
  })

  it('of a kind that is owned and related are those of both', () => {
    const both = functionRbac(shop({ owns: [Secret], related: [Secret] }))
    expect(rights(find(both, 'ClusterRole', 'fairlead-shop')[0])).toContain('create,delete,get,patch secrets')
  })

  it('add to the bridge what is to be watched, and to the dispatcher whom to act as', () => {
    const objects = functionRbac(shop())
    const [watch] = find(objects, 'ClusterRole', 'fairlead-shop-watch')
    expect(watch?.metadata.labels).toMatchObject({ 'fairlead.dev/aggregate-to-bridge': 'true' })
    expect(rights(watch)).toEqual(
      ['shops', 'configmaps', 'jobs', 'secrets', 'pods'].map((name) => `list,watch ${name}`),
    )
    const [impersonate] = find(objects, 'ClusterRole', 'fairlead-shop-impersonate')
    expect(impersonate?.metadata.labels).toMatchObject({ 'fairlead.dev/aggregate-to-dispatcher': 'true' })
    expect(rights(impersonate)).toEqual(['impersonate serviceaccounts=fairlead-shop'])
  })

  it('let the console read what is watched, but no Secrets', () => {
    const [inspect] = find(functionRbac(shop()), 'ClusterRole', 'fairlead-shop-inspect')
    expect(inspect?.metadata.labels).toMatchObject({ 'fairlead.dev/aggregate-to-console': 'true' })
    expect(rights(inspect)).toEqual(['shops', 'configmaps', 'jobs', 'pods'].map((name) => `get,list ${name}`))
  })

  it('with an account of somebody else’s are bound to it, where it is', () => {
    const objects = functionRbac(shop({ serviceAccount: { name: 'robot', namespace: 'team' } }))
    expect(objects.some(({ kind }) => kind === 'ServiceAccount')).toBe(false)
    expect(find(objects, 'ClusterRole', 'fairlead-shop-impersonate')[0]?.metadata.labels).not.toHaveProperty([
      'fairlead.dev/aggregate-to-dispatcher',
    ])
    expect(find(objects, 'RoleBinding', 'fairlead-shop-impersonate')[0]?.metadata.namespace).toBe('team')
  })
})

describe('the rights of Fairlead itself', () => {
  it('reach no object of anybody, but Reconcilers, and pods where they are bound to fairlead-system', () => {
    const roles = platformRbac().filter(({ kind }) => kind === 'ClusterRole')
    expect(roles.flatMap((role) => ('rules' in role ? rights(role) : []))).toEqual([
      'list,watch reconcilers',
      'patch reconcilers/status',
      'get namespaces=kube-system',
      'get pods',
    ])
    expect(find(platformRbac(), 'RoleBinding', 'fairlead-dispatcher')).toMatchObject([
      { metadata: { namespace: 'fairlead-system' } },
    ])
    expect(find(platformRbac(), 'ClusterRoleBinding', 'fairlead-dispatcher')).toEqual([])
  })
})

describe('the rights of the console', () => {
  it('are to ask who may do what, and to read what explains an object', () => {
    const [own] = find(consoleRbac(), 'ClusterRole', 'fairlead-console-own')
    expect(rights(own)).toEqual([
      'create tokenreviews',
      'create subjectaccessreviews',
      'get,list reconcilers',
      'get namespaces',
      'list events',
    ])
    expect(consoleWritesRbac().flatMap(rights)).toEqual(['create,get,patch events'])
  })

  it('are of no person: the roles for people are bound to nobody', () => {
    const bindings = consoleRbac().filter(({ kind }) => kind.endsWith('Binding'))
    expect(bindings).toMatchObject([
      { roleRef: { name: 'fairlead-console' }, subjects: [{ kind: 'ServiceAccount', name: 'fairlead-console' }] },
    ])
  })
})
