/** Rules of builders on a real API server: each refuses there what its predicate refuses here, and nothing else. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { install, planUninstall, uninstall } from '#install'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import {
  atLeastOneOf,
  atMost,
  atMostOneOf,
  defaultFrom,
  exactlyOneOf,
  immutable,
  labelled,
  manifest,
  named,
  notDeletedWhile,
  onlyGroups,
  onlyGrows,
  type Reconciler,
  type Resource,
  type Rule,
  reconciler,
  reserved,
  resource,
  setOnce,
  together,
  unique,
  z,
} from '#sdk'
import { RECONCILERS } from '#spec'
import { borrowCluster } from '../support/borrowed.ts'
import { randomFrom } from '../support/random.ts'
import { until } from '../support/wait.ts'

let cluster: Awaited<ReturnType<typeof borrowCluster>>
let kube: KubeClient
let member: KubeClient
let stranger: KubeClient

/** Users with these groups, by impersonation. */
const MEMBERS = 'system:serviceaccounts:members'

beforeAll(async () => {
  cluster = await borrowCluster()
  kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  await kube.create('/apis/rbac.authorization.k8s.io/v1/clusterrolebindings', {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRoleBinding',
    metadata: { name: 'everybody' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'cluster-admin' },
    subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'Group', name: 'system:serviceaccounts' }],
  })
  member = kube.as('system:serviceaccount:members:ann')
  stranger = kube.as('system:serviceaccount:strangers:bob')
})
afterAll(async () => {
  await kube?.close()
  await cluster?.[Symbol.asyncDispose]()
})

const text = z.enum(['a', 'b', 'c'])
const few = z.int32().min(0).max(3)
const optional = <T extends z.ZodType>(type: T) => type.optional()

/** Few values, so that equal ones come together. */
const spec = z.object({
  zone: optional(text),
  claim: optional(text),
  'a-b': optional(text),
  namespace: optional(text),
  size: optional(few),
  min: optional(few),
  max: optional(z.number().min(0).max(3)),
  git: optional(z.object({ url: text })),
  image: optional(text),
  auto: optional(z.boolean()),
  manual: optional(z.boolean()),
  user: optional(text),
  login: optional(z.object({ password: optional(text) })),
  store: text.default('a'),
  s3: optional(text),
  protected: optional(z.boolean()),
  quota: optional(few.nullable()),
  labels: optional(z.record(z.string(), z.string())),
  tags: optional(z.array(text).max(4)),
  ports: optional(z.array(z.object({ name: text, port: few, limit: optional(few), host: optional(text) })).max(4)),
  rules: optional(z.array(z.object({ allow: optional(text), deny: optional(text) })).max(3)),
  since: optional(z.iso.datetime()),
  note: optional(few.nullable()),
  block: optional(z.object({ tags: optional(z.array(text).max(3)), since: optional(z.iso.datetime()) })),
})
const status = z.object({ bound: text.optional(), leader: text.optional() })

const NAMED = { message: 'rule named' }
const RULES: Rule[] = [
  named(/^[a-z]([-a-z0-9]*[a-z0-9])?$/, NAMED),
  immutable('.spec.zone', { message: 'rule zone' }),
  immutable(".spec['a-b']", { message: 'rule a-b' }),
  immutable('.spec.namespace', { message: 'rule namespace' }),
  immutable('.spec.since', { message: 'rule since' }),
  immutable('.spec.block', { when: '.status.bound', message: 'rule block' }),
  immutable('.spec.tags', { when: ['.spec.store', 'c'], message: 'rule tags' }),
  setOnce('.spec.claim', { message: 'rule claim' }),
  setOnce('.status.leader', { message: 'rule leader' }),
  onlyGrows('.spec.size', { message: 'rule size' }),
  atMost('.spec.min', '.spec.max', { message: 'rule min' }),
  exactlyOneOf(['.spec.git', '.spec.image'], { message: 'rule source' }),
  atMostOneOf(['.spec.auto', '.spec.manual'], { message: 'rule mode' }),
  atMostOneOf(['.spec.auto', '.spec.manual', '.spec.image'], { when: '.spec.user', message: 'rule three' }),
  together(['.spec.user', '.spec.login.password'], { message: 'rule login' }),
  together(['.spec.user', '.spec.s3', '.spec.claim'], { when: ['.spec.protected', true], message: 'rule all' }),
  atLeastOneOf(['.spec.s3'], { when: ['.spec.store', 'b'], message: 'rule store' }),
  atLeastOneOf(['.spec.image', '.spec.git.url', '.spec.user'], { message: 'rule any' }),
  reserved('.spec.labels', ['a', 'b*'], { message: 'rule labels' }),
  unique('.spec.tags'),
  unique('.spec.ports', 'name'),
  immutable('.spec.ports[].port', { message: 'rule port' }),
  setOnce('.spec.ports[].host', { message: 'rule host' }),
  atMostOneOf(['.spec.rules[].allow', '.spec.rules[].deny'], { message: 'rule rules' }),
  immutable('.spec.note', { when: '.spec.claim', message: 'rule note' }),
  atMostOneOf(['.spec.note', '.spec.auto'], { when: ['.spec.store', 'c'], message: 'rule nullable' }),
  atMost('.spec.ports[].port', '.spec.ports[].limit', { when: '.spec.ports[].host', message: 'rule limit' }),
  // Rules on the whole object: status and spec together.
  atMostOneOf(['.status.leader', '.spec.auto'], { when: '.spec.user', message: 'rule leading' }),
  atMostOneOf(['.status.bound', '.spec.manual'], { message: 'rule bound' }),
  labelled('team', /^[ab]$/, { message: 'rule label' }),
  onlyGroups([MEMBERS], '.spec.quota', { message: 'rule quota' }),
  notDeletedWhile('.spec.protected', true, { message: 'rule protected' }),
]

const kindOf = (kind: string, rules: Rule[]): Resource =>
  resource({
    group: 'rules.test',
    version: 'v1',
    kind,
    plural: `${kind.toLowerCase()}s`,
    spec,
    status,
    rules,
  })
const functionFor = (kind: Resource): Reconciler =>
  reconciler({ name: kind.resource, for: kind, reconcile: () => undefined })

type Schema = {
  type?: string
  enum?: string[]
  required?: string[]
  properties?: Record<string, Schema>
  additionalProperties?: Schema
  items?: Schema
  format?: string
  nullable?: boolean
  minimum?: number
  maximum?: number
  maxItems?: number
}
const TIMES = ['2030-01-01T00:00:00Z', '2030-01-01T00:00:00.000Z', '2030-01-01T01:00:00Z']

/** Any value of the schema. */
function valueOf(schema: Schema, random: () => number): unknown {
  const one = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T
  const { type, properties = {}, required = [], additionalProperties, items, minimum = 0, maximum = 9 } = schema
  if (schema.nullable && random() < 0.3) return null
  if (schema.enum) return one(schema.enum)
  if (type === 'boolean') return random() < 0.5
  if (type === 'integer' || type === 'number') return Math.floor(minimum + random() * (maximum + 1 - minimum))
  if (type === 'array')
    return Array.from({ length: Math.floor(random() * ((schema.maxItems ?? 3) + 1)) }, () =>
      valueOf(items ?? {}, random),
    )
  if (type === 'object' && additionalProperties) {
    const keys = ['a', 'b', 'bc', 'c', 'd'].filter(() => random() < 0.3)
    return Object.fromEntries(keys.map((key) => [key, valueOf(additionalProperties, random)]))
  }
  if (type === 'object')
    return Object.fromEntries(
      Object.entries(properties).flatMap(([name, field]) =>
        required.includes(name) || random() < 0.5 ? [[name, valueOf(field, random)]] : [],
      ),
    )
  return schema.format === 'date-time' ? one(TIMES) : one(['', 'x', 'yy'])
}

const specSchema = (kind: Resource): Schema =>
  kind.crd().spec.versions[0]?.schema.openAPIV3Schema.properties?.['spec'] as Schema

/** What the API server refuses of these rules: their messages, or the whole error if it is about something else. */
async function refusedOf(write: Promise<unknown>): Promise<string[]> {
  const error = await write.then(
    () => undefined,
    (thrown: unknown) => String(thrown),
  )
  if (error === undefined) return []
  const found = new Set([...error.matchAll(/rule [a-z-]+|Duplicate value/g)].map(([message]) => message))
  return found.size > 0 ? [...found].sort() : [error]
}

/** What the rules refuse here. A policy is asked only about what the definition admits. */
function expectedOf(kind: Resource, write: Parameters<Resource['admit']>[0]): string[] {
  const { violations } = kind.admit(write)
  const ofDefinition = violations.filter(({ reason }) => reason !== 'Forbidden')
  const messages = (ofDefinition.length > 0 ? ofDefinition : violations.slice(0, 1)).map(({ message }) =>
    message.startsWith('Duplicate value') ? 'Duplicate value' : message.replace(/ \(.*/, ''),
  )
  return [...new Set(messages)].sort()
}

const seed = Number(process.env['FAIRLEAD_SEED'] ?? Date.now() % 1_000_000)
describe(`what a rule refuses in CEL, it refuses in code, seed ${seed}`, () => {
  const Bare = kindOf('Thing', [])
  const Ruled = kindOf('Thing', RULES)
  const path = resourcePath(Ruled, 'default')
  const random = randomFrom(seed)
  const body = (name: string): KubeObject => ({
    apiVersion: 'rules.test/v1',
    kind: 'Thing',
    metadata: { name, ...(random() < 0.7 && { labels: { team: random() < 0.7 ? 'a' : 'x' } }) },
    spec: valueOf(specSchema(Bare), random),
  })
  const old: KubeObject[] = []

  beforeAll(async () => {
    await install(kube, [functionFor(Bare)])
    for (let index = 0; index < 60; index++) {
      const { metadata } = await kube.create(path, body(index % 4 === 0 ? `1st-${index}` : `t${index}`))
      const patch = { status: { ...(index % 2 === 0 && { bound: 'a' }), ...(index % 3 === 0 && { leader: 'b' }) } }
      old.push(await kube.patch<KubeObject>(`${path}/${metadata.name}/status`, patch, 'merge'))
    }
    await install(kube, [functionFor(Ruled)], { force: true })
    const wrong = { ...body('wrong'), metadata: { name: 'wrong' }, spec: {} }
    const right = { ...wrong, spec: { image: 'a' } }
    for (const [object, message] of [
      [wrong, 'rule source'],
      [right, 'rule label'],
    ] as const)
      await until(async () => (await refusedOf(stranger.create(path, object, { dryRun: true }))).includes(message))
  }, 120_000)

  it('when an object is created', async () => {
    for (let round = 0; round < 120; round++) {
      const object = body(round % 5 === 0 ? `1n${round}` : `n${round}`)
      const expected = expectedOf(Ruled, { object, groups: [] })
      const refused = await refusedOf(stranger.create(path, object, { dryRun: true }))
      expect({ object, refused }).toEqual({ object, refused: expected })
    }
  }, 120_000)

  it('when an object is changed that was stored before the rules, at any field, by anyone', async () => {
    let admitted = 0
    for (const before of old)
      for (let round = 0; round < 5; round++) {
        const fresh = body(before.metadata.name)
        const fields = Object.keys(specSchema(Bare).properties ?? {}).filter(() => random() < round / 12)
        const changed = { ...(before.spec as Record<string, unknown>) }
        for (const field of fields) {
          const value = (fresh.spec as Record<string, unknown>)[field]
          if (value === undefined) delete changed[field]
          else changed[field] = value
        }
        const labels = random() < 0.5 ? before.metadata.labels : fresh.metadata.labels
        const { labels: _, ...metadata } = before.metadata
        const owners = { ownerReferences: [{ apiVersion: 'v1', kind: 'ConfigMap', name: 'none', uid: 'none' }] }
        const object = {
          ...before,
          metadata: { ...metadata, ...(labels && { labels }), ...(random() < 0.2 && owners) },
          spec: changed,
        }
        const isMember = random() < 0.5
        const expected = expectedOf(Ruled, { object, old: before, groups: isMember ? [MEMBERS] : [] })
        const write = (isMember ? member : stranger).replace(`${path}/${before.metadata.name}`, object, {
          dryRun: true,
        })
        const about = { before, object }
        expect({ ...about, refused: await refusedOf(write) }).toEqual({ ...about, refused: expected })
        if (expected.length === 0) admitted++
      }
    expect(admitted).toBeGreaterThan(20)
  }, 240_000)

  it('when the status is changed: an invalid object of before goes on, and a status has its rules', async () => {
    for (const before of old)
      for (const change of [{ leader: 'b' }, { leader: 'c' }, { bound: 'b' }, { bound: null }]) {
        const next = Object.fromEntries(
          Object.entries({ ...(before.status as object), ...change }).filter(([, value]) => value !== null),
        )
        const expected = expectedOf(Ruled, { object: { ...before, status: next }, old: before })
        const write = kube.patch(`${path}/${before.metadata.name}/status`, { status: change }, 'merge', {
          dryRun: true,
        })
        const about = { before, change }
        expect({ ...about, refused: await refusedOf(write) }).toEqual({ ...about, refused: expected })
      }
  }, 120_000)

  it('when an object is deleted', async () => {
    for (const one of old) {
      const expected = expectedOf(Ruled, { old: one, groups: [] })
      expect(await refusedOf(stranger.delete(`${path}/${one.metadata.name}`, { dryRun: true }))).toEqual(expected)
    }
  })
})

describe('the policies of a resource', () => {
  const POLICIES = [
    'validatingadmissionpolicies',
    'validatingadmissionpolicybindings',
    'mutatingadmissionpolicies',
    'mutatingadmissionpolicybindings',
  ]
  /** All that is installed, as PLURAL/NAME. */
  const installed = async (): Promise<string[]> => {
    const names: string[] = []
    for (const plural of POLICIES)
      for await (const { items } of kube.list(`/apis/admissionregistration.k8s.io/v1/${plural}`))
        names.push(
          ...items
            .filter(({ metadata }) => /^fairlead-.*(?:quota|budget)/.test(metadata.name))
            .map(({ metadata }) => `${plural}/${metadata.name}`),
        )
    return names
  }
  const named = (plurals: readonly string[], name = 'fairlead-quotas.rules.test') =>
    plurals.map((plural) => `${plural}/${name}`)
  const exempt = async (): Promise<string> => {
    const policy = await kube.get<KubeObject & { spec: { matchConditions: object[] } }>(
      '/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/fairlead-quotas.rules.test',
    )
    return JSON.stringify(policy.spec.matchConditions)
  }
  const rules = [
    onlyGroups([MEMBERS], '.spec.quota', { message: 'rule quota' }),
    onlyGroups([MEMBERS], ['DELETE'], { message: 'rule delete' }),
    notDeletedWhile('.spec.protected', true, { message: 'rule protected' }),
    defaultFrom('.spec.claim', '.metadata.name'),
    defaultFrom('.spec.login.password', '.spec.user'),
  ]
  const quotaSpec = z.object({
    quota: few.default(1),
    protected: z.boolean().optional(),
    claim: z.string().optional(),
    user: z.string().optional(),
    login: z.object({ password: z.string().optional() }).optional(),
  })
  const kindWith = (some: Rule[], kind = 'Quota'): Resource =>
    resource({
      group: 'rules.test',
      version: 'v1',
      served: [{ version: 'v1beta1', spec: quotaSpec }],
      kind,
      plural: `${kind.toLowerCase()}s`,
      spec: quotaSpec,
      status: z.object({ size: z.int32() }),
      scale: { spec: '.spec.quota', status: '.status.size' },
      rules: some,
    })
  const Quota = kindWith(rules)
  const path = resourcePath(Quota, 'default')
  const old = resourcePath({ ...Quota, version: 'v1beta1' }, 'default')
  const quota = functionFor(Quota)
  const low = reconciler({ name: 'low', for: Quota, selector: 'a=b', reconcile: () => undefined })
  const make = (name: string, spec: object): KubeObject => ({
    apiVersion: 'rules.test/v1',
    kind: 'Quota',
    metadata: { name },
    spec,
  })
  const refused = (write: Promise<unknown>, message: string) => expect(write).rejects.toThrow(message)
  const functionAs = (name: string) => kube.as(`system:serviceaccount:fairlead-system:fairlead-${name}`)
  /** Waits until the installed policies hold, and no older ones: one of them refuses this deletion. */
  const inForce = async (): Promise<void> => {
    const probe = make('probe', {})
    await kube.apply(`${path}/probe`, probe, { fieldManager: 'test', force: true })
    await until(() => refused(stranger.delete(`${path}/probe`, { dryRun: true }), 'rule delete'))
  }

  it('fill in, and hold for whoever is no member, through kubectl scale and any version, and not for a namespace', async () => {
    await install(kube, [quota])
    await kube.create('/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'going' } })
    await until(async () => {
      const made = await stranger.create<KubeObject>(path, make('f', { user: 'u' }), { dryRun: true })
      expect(made.spec).toEqual({ quota: 1, user: 'u', claim: 'f', login: { password: 'u' } })
      expect(Quota.admit({ object: make('f', { user: 'u' }) }).object?.spec).toEqual({
        user: 'u',
        claim: 'f',
        login: { password: 'u' },
      })
    })
    const unnamed = { ...make('', {}), metadata: { generateName: 'x-' } } as unknown as KubeObject
    // The API server makes the name after its policies.
    expect((await stranger.create<KubeObject>(path, unnamed, { dryRun: true })).spec).toEqual({ quota: 1 })
    expect((await stranger.create<KubeObject>(path, make('g', { claim: 'own' }))).spec).toEqual({
      quota: 1,
      claim: 'own',
    })
    await until(() => refused(stranger.patch(`${path}/g`, { spec: { quota: 2 } }, 'merge'), 'rule quota'))
    await refused(stranger.patch(`${old}/g`, { spec: { quota: 2 } }, 'merge'), 'rule quota')
    await refused(
      stranger.apply(`${path}/g`, make('g', { quota: 2 }), { fieldManager: 'x', force: true }),
      'rule quota',
    )
    await refused(stranger.patch(`${path}/g/scale`, { spec: { replicas: 2 } }, 'merge'), 'rule quota')
    await stranger.patch(`${path}/g`, { metadata: { annotations: { a: 'b' } } }, 'merge')
    await member.patch(`${path}/g/scale`, { spec: { replicas: 2 } }, 'merge')
    await refused(stranger.delete(`${path}/g`), 'rule delete')
    await refused(stranger.delete(`${old}/g`), 'rule delete')
    await member.patch(`${path}/g`, { spec: { protected: true } }, 'merge')
    await refused(member.delete(`${path}/g`), 'rule protected')
    await refused(member.delete(path), 'rule protected')
    await functionAs('quotas').delete(`${path}/g`, { dryRun: true })
    const cleaner = kube.as('system:serviceaccount:kube-system:namespace-controller')
    const there = resourcePath(Quota, 'going')
    await stranger.create(there, make('h', { protected: true }))
    await cleaner.delete(`${there}/h`, { dryRun: true })
  }, 60_000)

  it('are not evaded by an owner, whose deletion would delete the object: who may not delete it gives it none', async () => {
    await install(kube, [quota])
    await inForce()
    const ownerReferences = [{ apiVersion: 'v1', kind: 'ConfigMap', name: 'none', uid: 'none' }]
    const owned = { metadata: { ownerReferences } }
    const about = { dryRun: true }
    await stranger.create(path, make('owning', {}))
    await refused(
      stranger.patch(`${path}/owning`, owned, 'merge', about),
      'rule delete (another owner could delete it)',
    )
    await refused(stranger.patch(`${old}/owning`, owned, 'merge', about), 'rule delete')
    // Subresources do not change metadata.
    const status = await stranger.patch<KubeObject>(`${path}/owning/status`, owned, 'merge', about)
    expect(status.metadata).not.toHaveProperty('ownerReferences')
    await member.patch(`${path}/owning`, owned, 'merge', about)
    await member.patch(`${path}/owning`, { spec: { protected: true } }, 'merge')
    await refused(member.patch(`${path}/owning`, owned, 'merge', about), 'rule protected (another owner')
    const collector = kube.as('system:serviceaccount:kube-system:generic-garbage-collector')
    await collector.patch(`${path}/owning`, owned, 'merge', about)
    const made = { ...make('made', { protected: true }), metadata: { name: 'made', ownerReferences } }
    await stranger.create(path, made, about)
  }, 60_000)

  it('hold for no function of the resource, be it installed together with the others or later', async () => {
    await install(kube, [quota])
    await install(kube, [low])
    await inForce()
    await stranger.create(path, make('both', { quota: 1 }))
    for (const name of ['quotas', 'low'])
      await until(async () => {
        await functionAs(name).patch(`${path}/both`, { spec: { quota: 2 } }, 'merge', { dryRun: true })
        await functionAs(name).delete(`${path}/both`, { dryRun: true })
      })
    await refused(functionAs('other').delete(`${path}/both`, { dryRun: true }), 'rule delete')
    await install(kube, [quota])
    expect(await installed()).toEqual(named(POLICIES))
    expect(await exempt()).toMatch(/fairlead-low'.*fairlead-quotas'/)
  }, 60_000)

  it('hold for the account of a Reconciler that somebody has written, if it is outside of fairlead-system', async () => {
    const serviceAccount = { namespace: 'default', name: 'written' }
    const written = reconciler({ name: 'written', for: Quota, serviceAccount, reconcile: () => undefined })
    const at = '/apis/fairlead.dev/v1/reconcilers/written'.replace(
      'v1',
      manifest(written).apiVersion.split('/')[1] ?? '',
    )
    await kube.apply(at, manifest(written), { fieldManager: 'test' })
    await install(kube, [quota])
    expect(await exempt()).not.toContain('written')
    await kube.delete(at)
  }, 60_000)

  it('stay those of the resource when a function is renamed, and go with its last function', async () => {
    await install(kube, [quota, low])
    const renamed = reconciler({ name: 'allowances', identity: 'quotas', for: Quota, reconcile: () => undefined })
    await install(kube, [renamed])
    expect(await exempt()).toMatch(/fairlead-allowances'.*fairlead-low'.*fairlead-quotas'/)
    await uninstall(kube, await planUninstall(kube, [quota]))
    expect(await exempt()).not.toContain('fairlead-quotas')
    expect(await exempt()).toMatch(/fairlead-allowances'.*fairlead-low'/)
    expect(await installed()).toEqual(named(POLICIES))
    const { removals, ...plan } = await planUninstall(kube, [renamed])
    expect(removals.find(({ kind }) => kind === 'ValidatingAdmissionPolicy')).toMatchObject({
      result: 'kept',
      because: 'Reconcilers of others need it: low',
    })
    await uninstall(kube, { removals, ...plan })
    expect(await exempt()).not.toContain('fairlead-allowances')
    await uninstall(kube, await planUninstall(kube, [low]))
    expect(await installed()).toEqual([])
  }, 60_000)

  it('go with the last rule that needs them, and with the resource that the function was for', async () => {
    await install(kube, [quota])
    expect(await installed()).toEqual(named(POLICIES))
    const fewer = functionFor(kindWith(rules.slice(0, 1)))
    const results = await install(kube, [fewer])
    expect(results.filter(({ result }) => result === 'deleted').map(({ kind }) => kind)).toEqual([
      'MutatingAdmissionPolicyBinding',
      'MutatingAdmissionPolicy',
    ])
    expect(await installed()).toEqual(named(POLICIES.slice(0, 2)))
    const moved = reconciler({ name: 'quotas', for: kindWith(rules, 'Budget'), reconcile: () => undefined })
    await install(kube, [moved])
    expect(await installed()).toEqual(named(POLICIES, 'fairlead-budgets.rules.test'))
    await install(kube, [reconciler({ name: 'quotas', for: kindWith([], 'Budget'), reconcile: () => undefined })])
    expect(await installed()).toEqual([])
    await uninstall(kube, await planUninstall(kube, [moved]))
  }, 60_000)

  it('are nothing that a team may install: the message names the rule, before the first write', async () => {
    const ofTeam = reconciler({ name: 'quotas', for: Quota, namespaces: ['default'], reconcile: () => undefined })
    await expect(install(kube, [ofTeam], { team: true })).rejects.toThrow(
      /--team installs no policies.*"onlyGroups system:serviceaccounts:members .spec.quota" of Quota.*the groups of the user/,
    )
  })

  it('need no rights of who installs functions without them, and otherwise the message names the rights', async () => {
    const everything = (...apiGroups: string[]) => ({ apiGroups, resources: ['*'], verbs: ['*'] })
    const rbac = { apiVersion: 'rbac.authorization.k8s.io/v1', metadata: { name: 'installer' } }
    await kube.create('/apis/rbac.authorization.k8s.io/v1/clusterroles', {
      ...rbac,
      kind: 'ClusterRole',
      rules: [everything('', 'apiextensions.k8s.io', 'rbac.authorization.k8s.io', 'fairlead.dev', 'rules.test')],
    })
    await kube.create('/apis/rbac.authorization.k8s.io/v1/clusterrolebindings', {
      ...rbac,
      kind: 'ClusterRoleBinding',
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'installer' },
      subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name: 'installer' }],
    })
    const installer = kube.as('installer')
    const bare = functionFor(kindWith([immutable('.spec.user')]))
    await until(() => install(installer, [bare]))
    await uninstall(installer, await planUninstall(installer, [bare]))
    await expect(install(installer, [quota])).rejects.toThrow(
      /^ValidatingAdmissionPolicy fairlead-quotas.rules.test is refused, and nothing is changed: .*the rights get, create, patch and delete on validatingadmissionpolicies/,
    )
    await refused(kube.get(resourcePath(RECONCILERS, undefined, 'quotas')), 'not found')
  }, 60_000)
})

describe('a rule that comes to objects that are stored', () => {
  it('needs no force, refuses no write beside its fields, and each write of them or of its condition', async () => {
    const spec = z.object({
      replicas: z.int32().default(1),
      min: z.int32().optional(),
      max: z.int32().optional(),
      a: z.string().optional(),
      b: z.string().optional(),
      strict: z.boolean().optional(),
    })
    const kind = (rules: Rule[]): Resource =>
      resource({
        group: 'rules.test',
        version: 'v1',
        kind: 'Aged',
        plural: 'ageds',
        spec,
        status: z.object({ size: z.int32() }),
        scale: { spec: '.spec.replicas', status: '.status.size' },
        rules,
      })
    const path = resourcePath(kind([]), 'default')
    const at = (name: string) => `${path}/${name}`
    await install(kube, [functionFor(kind([]))])
    for (const [name, spec] of [
      ['wrong', { min: 2, max: 1 }],
      ['lax', { a: 'a', b: 'b', min: 1, max: 1 }],
    ] as const)
      await kube.create(path, { apiVersion: 'rules.test/v1', kind: 'Aged', metadata: { name }, spec })
    const rules = [
      atMost('.spec.min', '.spec.max', { message: 'rule min' }),
      atLeastOneOf(['.spec.min', '.spec.a'], { message: 'rule any' }),
      atMostOneOf(['.spec.a', '.spec.b'], { when: ['.spec.strict', true], message: 'rule strict' }),
    ]
    await install(kube, [functionFor(kind(rules))])
    const refused = (name: string, spec: object, message: string) =>
      expect(kube.patch(at(name), { spec }, 'merge', { dryRun: true })).rejects.toThrow(message)
    await until(() => refused('wrong', { min: 3 }, 'rule min'))
    await kube.patch(at('wrong'), { spec: { strict: true } }, 'merge')
    await kube.patch(`${at('wrong')}/scale`, { spec: { replicas: 3 } }, 'merge')
    await kube.patch(`${at('wrong')}/status`, { status: { size: 3 } }, 'merge')
    await refused('wrong', { max: null, min: null }, 'rule any')
    await refused('lax', { strict: true }, 'rule strict')
    await kube.patch(at('lax'), { spec: { strict: true, b: null } }, 'merge')
    await refused('lax', { b: 'b' }, 'rule strict')
    await expect(kube.patch(at('lax'), [{ op: 'remove', path: '/spec' }], 'json', { dryRun: true })).rejects.toThrow(
      'rule any',
    )
  }, 60_000)
})

it('a rule that costs the API server too much is refused with its path and the limits that help', async () => {
  const list = z.array(z.object({ key: z.string(), field: z.string() }))
  const rules = [unique('.spec.list', 'key'), immutable('.spec.list[].field')]
  const names = { group: 'rules.test', version: 'v1', kind: 'Cost', plural: 'costs', status: z.object({}), rules }
  const costly = functionFor(resource({ ...names, spec: z.object({ list }) }))
  await expect(install(kube, [costly])).rejects.toThrow(
    /^resource Cost: spec\.list\[\].*validations\[0\].rule: .*cost.*maxItems/,
  )
  const limited = z.array(z.object({ key: z.string().max(63), field: z.string().max(253) })).max(1000)
  await install(kube, [functionFor(resource({ ...names, spec: z.object({ list: limited }) }))])
}, 60_000)
