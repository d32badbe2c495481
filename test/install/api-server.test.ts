import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { KubeObject } from '#contracts'
import { at } from '#functions/at'
import { install, platformRbac, yamlOf } from '#install'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import * as sdk from '#sdk'
import { reconcilerSpec } from '#spec'
import { borrowCluster } from '../support/borrowed.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { silent } from '../support/silent.ts'

const { resource, toInvoke } = sdk
const ROOT = join(import.meta.dirname, '../..')

let cluster: Awaited<ReturnType<typeof borrowCluster>>
let kubectl: Kubectl
let kube: KubeClient

const apply = (object: string | object) => kubectl(['apply', '-f', '-'], object)

const PLURALS: Record<string, string> = {
  EtcdCluster: 'etcdclusters',
  At: 'ats',
  Memcached: 'memcacheds',
  Pod: 'pods',
  Reconciler: 'reconcilers',
  Kitchen: 'kitchens',
}
/** As kubectl creates it, which takes no unknown field, and much quicker. */
function create(object: KubeObject, dryRun = false): Promise<KubeObject> {
  const { apiVersion, kind } = object
  const [version = '', group = ''] = apiVersion.split('/').reverse()
  const namespace = kind === 'Reconciler' ? undefined : 'default'
  const path = resourcePath({ group, version, resource: PLURALS[kind]! }, namespace)
  return kube.create<KubeObject>(`${path}?fieldValidation=Strict${dryRun ? '&dryRun=All' : ''}`, object)
}

beforeAll(async () => {
  cluster = await borrowCluster()
  kubectl = await kubectlFor(cluster)
  kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  await kubectl(['apply', '--server-side', '-f', join(ROOT, 'crds')])
  await kubectl(['wait', '--for=condition=Established', 'crd', '--all', '--timeout=240s'])
  await kubectl(['apply', '-f', join(ROOT, 'functions/at/reconciler.yaml')])
})
afterAll(async () => {
  await kube?.close()
  await cluster?.[Symbol.asyncDispose]()
})

const crdFiles = async () => (await readdir(join(ROOT, 'crds'))).filter((name) => name.endsWith('.yaml'))

describe('the kinds that an author imports', () => {
  const kinds = Object.values(sdk).filter((one) => typeof one === 'object' && 'strategy' in one)

  it.each(kinds.map((one) => [one.kind, one] as const))('%s is served by the API server', async (kind, one) => {
    expect((await kube.get(resourcePath(one))).kind).toBe(`${kind}List`)
  })
})

describe('the generated manifests, on a real API server', () => {
  it('are all accepted, and change nothing when they are applied again', async () => {
    const versions = () => kubectl(['get', 'crd,reconcilers', '-o', 'jsonpath={.items[*].metadata.resourceVersion}'])
    const before = await versions()
    await kubectl(['apply', '--server-side', '-f', join(ROOT, 'crds')])
    await kubectl(['apply', '-f', join(ROOT, 'functions/at/reconciler.yaml')])
    expect(await versions()).toBe(before)
    expect(before.split(' ')).toHaveLength((await crdFiles()).length + 1)
  })

  it('have schemas that the API server finds structural', async () => {
    const conditions = await kubectl(['get', 'crd', '-o', 'jsonpath={.items[*].status.conditions[*].type}'])
    expect(conditions).not.toContain('NonStructuralSchema')
    expect(conditions.match(/Established/g)).toHaveLength((await crdFiles()).length)
  })

  it.each([
    ['fairlead', 'nats'],
    ['fairlead-ha', 'nats'],
    ['fairlead-small', 'small'],
    ['fairlead-small/move', 'small'],
  ])('deploy %s, in a namespace that allows restricted pods only, without a warning', async (folder, name) => {
    await kubectl(['apply', '-f', '-'], await yamlOf(platformRbac()))
    const tried = ['--dry-run=server', '--warnings-as-errors', '-o', 'name']
    const said = await kubectl(['apply', '-k', join(ROOT, 'deploy', folder), ...tried])
    expect(said.split('\n')).toContain(`statefulset.apps/fairlead-${name}`)
  })

  it('deploy the console, which may write where the component says so', async () => {
    const own = await mkdtemp(join(tmpdir(), 'fl-console-'))
    const there = (folder: string) => relative(own, join(ROOT, 'deploy', folder))
    const kustomization = { resources: [there('console')], components: [there('console/writes')] }
    await writeFile(join(own, 'kustomization.yaml'), JSON.stringify(kustomization))
    await kubectl(['apply', '-f', '-'], await yamlOf(platformRbac()))
    const said = await kubectl(['apply', '-k', own, '--dry-run=server', '--warnings-as-errors', '-o', 'yaml'])
    await rm(own, { recursive: true })
    expect(said).toContain('secretName: fairlead-nats-console-writes')
    const ingress = join(ROOT, 'deploy/console/ingress-example.yaml')
    await kubectl(['create', 'namespace', 'fairlead-console-proxy'])
    const tried = ['--dry-run=server', '--warnings-as-errors', '-o', 'name']
    expect(await kubectl(['apply', '-f', ingress, ...tried])).toContain('ingress.networking.k8s.io/fairlead-console')
  })

  it('deploy policies for a namespace of functions, and for EtcdClusters', async () => {
    await kubectl(['create', 'namespace', 'fairlead-functions'])
    const tried = (folder: string) =>
      kubectl(['apply', '-k', join(ROOT, 'deploy/network', folder), '--dry-run=server', '-o', 'name'])
    expect((await tried('functions')).split('\n')).toContain('networkpolicy.networking.k8s.io/fairlead-default-deny')
    for (const folder of ['etcd', 'functions/etcd'])
      expect(await tried(folder)).toContain('networkpolicy.networking.k8s.io/fairlead-etcd')
  })

  it('explain themselves', async () => {
    expect(await kubectl(['explain', 'at.spec.schedule'])).toContain('RFC 3339')
    expect(await kubectl(['explain', 'reconciler.spec.invoke'])).toContain('over http where that is given')
  })
})

describe('an EtcdCluster, on a real API server', () => {
  const cluster = (labels: object): KubeObject => ({
    apiVersion: 'etcd.database.coreos.com/v1beta2',
    kind: 'EtcdCluster',
    metadata: { name: 'labelled' },
    spec: { size: 3, pod: { labels } },
  })

  it.each(['app', 'etcd_cluster', 'etcd_node', 'etcd_'])(
    'is refused with the label %s, which is reserved',
    async (key) => {
      const message = `the labels app and etcd_* are those of the function: remove them from spec.pod.labels`
      await expect(create(cluster({ team: 'red', [key]: 'x' }), true)).rejects.toThrow(message)
    },
  )

  it('is accepted with other labels', async () => {
    const labels = { team: 'red', 'app.kubernetes.io/name': 'x', my_etcd_: 'x' }
    expect((await create(cluster(labels), true)).spec).toMatchObject({ pod: { labels } })
  })
})

describe('an At, on a real API server', () => {
  const head = 'apiVersion: cnat.programming-kubernetes.info/v1alpha1\nkind: At\n'

  it.each([
    [
      'the sample of cnat',
      `${head}metadata: {name: example-at}\nspec: {schedule: "2019-04-12T10:12:00Z", command: "echo YAY"}`,
    ],
    [
      'a time without quotes',
      `${head}metadata: {name: unquoted}\nspec:\n  schedule: 2019-04-12T10:12:00Z\n  command: echo YAY`,
    ],
    ['a bad time', `${head}metadata: {name: bad}\nspec: {schedule: tomorrow, command: ""}`],
    ['nothing in its spec', `${head}metadata: {name: empty}\nspec: {}`],
    ['no spec', `${head}metadata: {name: none}`],
    ['a status that cnat had in its code', `${head}metadata: {name: status}\nspec: {}\nstatus: {phase: ""}`],
  ])('is accepted with %s, as the original was', async (_, manifest) => {
    expect(await apply(manifest)).toContain('created')
  })

  it('shows schedule, phase and age', async () => {
    const status = (phase: string) =>
      kubectl([
        'patch',
        'at',
        'example-at',
        '--subresource=status',
        '--type=merge',
        '-p',
        `{"status":{"phase":"${phase}"}}`,
      ])
    await status('RUNNING')
    const [columns, row] = (await kubectl(['get', 'at', 'example-at'])).split('\n')
    expect(columns?.split(/ +/).join(' ')).toBe('NAME SCHEDULE PHASE AGE')
    expect(row).toMatch(/^example-at +2019-04-12T10:12:00Z +RUNNING +[\dms]+$/)
    await expect(status('LATE')).rejects.toThrow('Unsupported value: "LATE"')
  })

  it('takes conditions before it has a phase', async () => {
    const condition = {
      type: 'Reconciled',
      status: 'False',
      reason: 'InvalidSchedule',
      message: 'x',
      lastTransitionTime: '2030-01-01T00:00:00Z',
    }
    const patch = JSON.stringify({ status: { observedGeneration: 1, conditions: [condition] } })
    await kubectl(['patch', 'at', 'bad', '--subresource=status', '--type=merge', '-p', patch])
    expect(JSON.parse(await kubectl(['get', 'at', 'bad', '-o', 'jsonpath={.status.conditions}']))).toEqual([condition])
  })

  it('of any name has a pod that is accepted', async () => {
    const context = { signal: new AbortController().signal, log: silent }
    for (const name of ['a', 'a'.repeat(253), `${'a'.repeat(51)}.${'b'.repeat(200)}`]) {
      const object = await create({
        apiVersion: 'cnat.programming-kubernetes.info/v1alpha1',
        kind: 'At',
        metadata: { name },
        spec: { schedule: '2019-04-12T10:12:00Z', command: 'echo YAY' },
      })
      const input = { object, owned: {}, related: {}, attempt: 0, now: '2030-01-01T00:00:00Z', finalizing: false }
      const { apply } = await toInvoke(at)(input, context)
      expect(await create(apply![0]!)).toMatchObject(apply![0]!)
    }
  })
})

describe('the definition of an operator by controller-gen, on a real API server', () => {
  it('is replaced without --force, and a status of before it can still be written', async () => {
    await kubectl(['apply', '-f', join(ROOT, 'test/support/controller-gen.yaml')])
    await kubectl(['wait', '--for=condition=Established', 'crd/memcacheds.port.example.com', '--timeout=240s'])
    const memcached = { group: 'port.example.com', version: 'v1alpha1', kind: 'Memcached', plural: 'memcacheds' }
    const apiVersion = 'port.example.com/v1alpha1'
    await create({ apiVersion, kind: 'Memcached', metadata: { name: 'old' }, spec: { size: 2 } })
    const condition = { type: 'Available', reason: 'Old', message: '', lastTransitionTime: '2026-01-01T00:00:00Z' }
    const write = (...statuses: string[]) => {
      const status = { conditions: statuses.map((one) => ({ ...condition, status: one })) }
      return kubectl([
        'patch',
        'memcached.port.example.com/old',
        '--subresource=status',
        '--type=merge',
        '-p',
        JSON.stringify({ status }),
      ])
    }
    // Two conditions of one type, which no controller writes, and the earlier definition admits.
    await write('True', 'False')
    const spec = z.object({ size: z.int32().min(1).max(3).optional(), containerPort: z.int32().optional() })
    const Memcached = resource({ ...memcached, spec, status: z.object({}) })
    const port = sdk.reconciler({ name: 'port', for: Memcached, reconcile: () => undefined })
    const kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
    try {
      await install(kube, [port])
    } finally {
      await kube.close()
    }
    await write('False', 'False')
    await write('False')
    await expect(write('True', 'True')).rejects.toThrow('Duplicate value')
  })
})

describe('a Reconciler, on a real API server', () => {
  const pods = { group: '', version: 'v1', resource: 'pods', kind: 'Pod' }
  const reconciler = (spec: object, name = 'shop') => ({
    apiVersion: 'fairlead.dev/v1alpha1',
    kind: 'Reconciler',
    metadata: { name },
    spec,
  })
  const http = { url: 'http://shop.default.svc' }

  it.each<[string, object, string]>([
    ['no way to invoke it', { for: pods, invoke: {} }, 'spec.invoke: Invalid value: give http or pull'],
    ['nothing to reconcile', { invoke: { pull: {} } }, 'spec.for: Required value'],
    [
      'an unknown strategy',
      { for: pods, owns: [{ ...pods, strategy: 'Replace' }], invoke: { http } },
      'spec.owns[0].strategy: Unsupported value: "Replace"',
    ],
    [
      'adoption of what its strategy does not change',
      { for: pods, owns: [{ ...pods, strategy: 'CreateOnly', adopt: true }], invoke: { http } },
      'spec.owns[0]: Invalid value: adopt needs strategy Apply',
    ],
    ['no time at all', { for: pods, invoke: { http }, timeoutSeconds: 0 }, 'spec.timeoutSeconds: Invalid value: 0'],
    [
      'two places for what is related',
      { for: pods, related: [{ ...pods, within: 'Cluster', namespacePath: 'spec.a' }], invoke: { http } },
      'spec.related[0]: Invalid value: leave out "Cluster" beside namespacePath',
    ],
    ['a misspelt field', { for: pods, invoke: { http }, timeout: 5 }, 'unknown field "spec.timeout"'],
  ])('is refused with %s', async (_, spec, message) => {
    await expect(create(reconciler(spec))).rejects.toThrow(message)
  })

  it('is given the same defaults by the server as by the code', async () => {
    const spec = { for: pods, owns: [pods, { ...pods, adopt: true }], invoke: { http } }
    const stored = await create(reconciler(spec))
    expect(stored.spec).toEqual(reconcilerSpec.parse(spec))
  })

  it('shows its kind, whether it is ready and synced, and its age', async () => {
    const condition = (type: string, status: string) => ({
      type,
      status,
      reason: type,
      lastTransitionTime: '2030-01-01T00:00:00Z',
    })
    const patch = JSON.stringify({ status: { conditions: [condition('Ready', 'True'), condition('Synced', 'False')] } })
    await kubectl(['patch', 'reconciler', 'at', '--subresource=status', '--type=merge', '-p', patch])
    const [columns, row] = (await kubectl(['get', 'reconciler', 'at'])).split('\n')
    expect(columns?.split(/ +/).join(' ')).toBe('NAME KIND READY SYNCED AGE')
    expect(row).toMatch(/^at +At +True +False +[\dms]+$/)
  })
})

describe('a schema with all that can be said, on a real API server', () => {
  const Kitchen = resource({
    group: 'test.fairlead.dev',
    version: 'v1',
    kind: 'Kitchen',
    plural: 'kitchens',
    shortNames: ['kn'],
    categories: ['food'],
    served: [
      {
        version: 'v1beta1',
        spec: z.object({ small: z.int32().min(1).default(3) }),
        deprecated: 'use test.fairlead.dev/v1',
      },
    ],
    scale: { spec: '.spec.small', status: '.status.small' },
    spec: z.object({
      port: z.union([z.int(), z.string()]).optional(),
      small: z.int32().min(1).default(3),
      big: z.int().optional(),
      ratio: z.number().gt(0).max(1).optional(),
      code: z.string().startsWith('a').endsWith('z').optional(),
      word: z
        .string()
        .regex(/^\w+-\p{L}$/u)
        .optional(),
      id: z.uuid().optional(),
      mail: z.email().optional(),
      link: z.url().optional(),
      ip: z.ipv4().optional(),
      time: z.iso.datetime({ offset: true }).optional(),
      day: z.iso.date().optional(),
      bytes: z.base64().optional(),
      nothing: z.string().nullable().optional(),
      choice: z.enum(['a', 'b']).default('a'),
      labels: z.record(z.string(), z.string()).optional(),
      free: z.record(z.string(), z.unknown()).optional(),
      open: z.looseObject({ known: z.boolean() }).optional(),
      any: z.unknown().optional().meta({ 'x-kubernetes-preserve-unknown-fields': true }),
      nested: z.object({ deep: z.array(z.object({ value: z.string().default('x') })).default([]) }).prefault({}),
      items: z
        .array(z.object({ name: z.string(), weight: z.int32().default(1) }))
        .optional()
        .meta({ 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['name'] }),
      fixed: z
        .string()
        .optional()
        .meta({ 'x-kubernetes-validations': [{ rule: 'self == oldSelf', message: 'fixed is fixed' }] }),
    }),
    status: z.object({ seen: z.boolean(), small: z.int32() }),
  })
  const kitchen = (name: string, spec: object) => ({ ...Kitchen.of({ metadata: { name }, spec: {} }), spec })

  beforeAll(async () => {
    await apply(Kitchen.crd())
    await kubectl(['wait', '--for=condition=Established', 'crd/kitchens.test.fairlead.dev', '--timeout=240s'])
  })

  const everything = {
    port: 'http',
    big: 9_007_199_254_740_991,
    ratio: 0.5,
    code: 'a-z',
    word: 'a-é',
    id: '123e4567-e89b-42d3-a456-426614174000',
    mail: 'a@example.com',
    link: 'https://example.com/',
    ip: '10.0.0.1',
    time: '2030-01-01T00:00:00+02:00',
    day: '2030-01-01',
    bytes: 'AAAA',
    nothing: null,
    labels: { 'a.b/c': 'd' },
    free: { a: { b: [1, null] } },
    open: { known: true, unknown: [1] },
    any: [1, 'a'],
    nested: { deep: [{}] },
    items: [{ name: 'a' }],
    fixed: 'x',
  }

  it('is accepted, and an object with everything is stored as the code reads it', async () => {
    const stored = await create(kitchen('full', everything))
    const read = Kitchen.parse(kitchen('full', everything))
    expect(stored.spec).toEqual(read.spec)
    expect(stored.spec).toMatchObject({
      small: 3,
      choice: 'a',
      nested: { deep: [{ value: 'x' }] },
      free: { a: { b: [1, null] } },
    })
    expect(Kitchen.parse(stored).spec).toEqual(read.spec)
  })

  it.each<[string, object]>([
    ['port', { port: 1.5 }],
    ['small', { small: 0 }],
    ['ratio', { ratio: 0 }],
    ['code', { code: 'a' }],
    ['word', { word: 'a' }],
    ['id', { id: 'x' }],
    ['mail', { mail: 'x' }],
    ['ip', { ip: '10.0.0' }],
    ['time', { time: 'tomorrow' }],
    ['day', { day: '2030-02-30' }],
    ['bytes', { bytes: '!' }],
    ['choice', { choice: 'c' }],
    ['labels', { labels: { a: 1 } }],
    ['open.known', { open: {} }],
    ['items', { items: [{ name: 'a' }, { name: 'a' }] }],
  ])('refuses a wrong %s, on the server', async (path, spec) => {
    await expect(create(kitchen('wrong', spec))).rejects.toThrow(`spec.${path}`)
  })

  it('is served in several versions, with a warning of the old one, and scaled', async () => {
    const old = { ...kitchen('old', { small: 2 }), apiVersion: 'test.fairlead.dev/v1beta1' }
    expect(await create(old)).toMatchObject({ apiVersion: 'test.fairlead.dev/v1beta1', spec: { small: 2 } })
    await kubectl(['scale', 'kn/old', '--replicas=5'])
    const [read] = JSON.parse(await kubectl(['get', 'food', '-o', 'json'])).items as KubeObject[]
    expect(Kitchen.parse(read!)).toMatchObject({ apiVersion: 'test.fairlead.dev/v1', metadata: { name: 'full' } })
    expect(await kubectl(['get', 'kn', 'old', '-o', 'jsonpath={.spec.small}'])).toBe('5')
  })

  it('enforces rules about what was there before', async () => {
    await expect(apply(kitchen('full', { ...everything, fixed: 'y' }))).rejects.toThrow('fixed is fixed')
  })
})

describe('rules on the whole object, on a real API server', () => {
  const base = { group: 'test.fairlead.dev', version: 'v1', scope: 'Cluster' } as const
  const Room = resource({
    ...base,
    kind: 'Room',
    plural: 'rooms',
    spec: z.object({ size: z.int32().default(3), door: z.string().max(20).optional() }),
    status: z.object({ guests: z.int32() }),
    validations: [
      {
        rule: 'self.metadata.name.size() <= 8',
        messageExpression: "'%s has more than 8 characters'.format([self.metadata.name])",
        message: 'the name has 8 characters at most',
        fieldPath: '.metadata.name',
      },
      {
        rule: 'self.spec.size >= oldSelf.spec.size',
        message: 'a room never shrinks',
        reason: 'FieldValueForbidden',
        fieldPath: '.spec.size',
      },
      {
        rule: '!has(self.spec.door) || (oldSelf.hasValue() && has(oldSelf.value().spec))',
        message: 'a door comes later',
        optionalOldSelf: true,
      },
      {
        rule: 'has(self.status) && has(self.status.guests) ? self.status.guests <= self.spec.size : true',
        message: 'too many guests',
      },
    ],
  })
  const room = (name: string, spec: object = {}) => Room.of({ metadata: { name }, spec })
  const guests = (count: number) =>
    kubectl(['patch', 'room', 'attic', '--subresource=status', '--type=merge', '-p', `{"status":{"guests":${count}}}`])

  beforeAll(async () => {
    await apply(Room.crd())
    await kubectl(['wait', '--for=condition=Established', 'crd/rooms.test.fairlead.dev', '--timeout=240s'])
  })

  it('see the name, and kubectl shows their message at their field', async () => {
    await expect(apply(room('living-room'))).rejects.toThrow(
      'The Room "living-room" is invalid: metadata.name: Invalid value: living-room has more than 8 characters',
    )
  })

  it('compare with what the object was, and hold for its creation too if they say so', async () => {
    await expect(apply(room('attic', { door: 'oak' }))).rejects.toThrow('a door comes later')
    expect(await apply(room('attic'))).toContain('created')
    expect(await apply(room('attic', { size: 4, door: 'oak' }))).toContain('configured')
    await expect(apply(room('attic', { size: 2, door: 'oak' }))).rejects.toThrow(
      'The Room "attic" is invalid: spec.size: Forbidden: a room never shrinks',
    )
  })

  it('hold for a status, which is written alone', async () => {
    await expect(guests(5)).rejects.toThrow('too many guests')
    expect(await guests(4)).toContain('patched')
  })

  const size = z.int32()
  it.each<[string, Partial<Parameters<typeof resource>[0]>, string]>([
    [
      'a rule that is no CEL',
      { validations: [{ rule: 'self.spec.size >' }] },
      "resource Wrong: validations[0].rule: Syntax error: mismatched input '<EOF>'",
    ],
    [
      'a rule about a field that is not there',
      { validations: [{ rule: 'true' }, { rule: 'self.spec.sise > 3' }] },
      "resource Wrong: validations[1].rule: undefined field 'sise' (at 10 in: self.spec.sise > 3)",
    ],
    [
      'a rule that is no condition',
      { validations: [{ rule: 'self.spec.size + 1' }] },
      'resource Wrong: validations[0].rule: cel expression must evaluate to a bool',
    ],
    [
      'a message that is no text',
      { validations: [{ rule: 'true', messageExpression: '1 + 1' }] },
      'resource Wrong: validations[0].messageExpression: messageExpression must evaluate to a string',
    ],
    [
      'rules on a field, in one of two versions',
      {
        served: [
          { version: 'v2', spec: z.object({ size: size.meta({ 'x-kubernetes-validations': [{ rule: 'self.x' }] }) }) },
        ],
      },
      "resource Wrong: v2 spec.size.x-kubernetes-validations[0].rule: type 'int' does not support field selection (at 5 in: self.x)",
    ],
    [
      'a pattern that RE2 does not know',
      { spec: z.object({ tags: z.array(z.string().regex(/[^]/)) }) },
      'resource Wrong: spec.tags[].pattern: Invalid value: "[^]": must be a valid regular expression',
    ],
  ])('%s is refused by install in one line, with the path', async (_, more, message) => {
    const Wrong = resource({
      ...base,
      kind: 'Wrong',
      plural: 'wrongs',
      spec: z.object({ size }),
      status: z.object({}),
      ...more,
    })
    const installing = install(kube, [{ name: 'wrong', for: Wrong, owns: [], related: [], reconcile: () => undefined }])
    await expect(installing).rejects.toThrow(message)
    await expect(installing).rejects.toThrow(/^resource W.*$/)
  })
})
