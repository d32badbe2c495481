import { fileURLToPath } from 'node:url'
import { CertificateSigningRequest, Deployment, Node, Pod } from 'fairlead'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ConflictError, type KubeObject, type ResourceRef } from '#contracts'
import { type EventStore, spanAfter } from '#events'
import { isNotFound, resourcePath } from '#kube'
import type { ActedResource } from '#spec'
import { ActsWriter } from '../../dispatch/apply/acts-writer.ts'
import { WriteRequests, type WritingRun } from '../../dispatch/apply/write-requests.ts'
import { InFlight, type WriteThrough } from '../../dispatch/apply/write-through.ts'
import { Gate } from '../../dispatch/gate.ts'
import { widget } from '../dispatch/objects.ts'
import { kubeconfigOf } from '../support/account.ts'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'
import { approver, Shift, shift } from './acts.ts'
import { startWorld, until, type World } from './world.ts'

const FUNCTION = fileURLToPath(new URL('acts.ts', import.meta.url))
const BUDGETS = { group: 'policy', version: 'v1', resource: 'poddisruptionbudgets' }
const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }
/** A request for the name `shift`, made by openssl. */
const REQUEST =
  'LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlITE1ISUNBUUF3RURFT01Bd0dBMVVFQXd3RmMyaHBablF3V1RBVEJnY3Foa2pPUFFJQkJnZ3Foa2pPUFFNQgpCd05DQUFUUjVGUkNZcENqeEMvSlBaR0t0Wm9xSkxBQU1Sb3l2ZDVnN3ZxTXNQMDZXWG8vMXBrdW91cDBTamhSCmIvVXlPcjF4SUlpV1I3VUJINHVtT1lla0lzRVdvQUF3Q2dZSUtvWkl6ajBFQXdJRFNRQXdSZ0loQUpVNDZPUFYKeVZaSThkRnR4cFVqdWpISHNXc2s3Q3A0cS9Sc3pvUGFTQUhaQWlFQTFsSWpJL3luQ2VkazVsa2FIQ0cxYThGWQo3ZkNKdW4vRHBFZ1A1am12b1QwPQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K'

let world: World
let env: Record<string, string>

beforeAll(async () => {
  world = await startWorld({ controllers: true }, async (admin) => {
    const installed = await command(['install', '-f', FUNCTION], admin)
    if (installed.code !== 0) throw new Error(installed.stderr)
  })
  const account = { namespace: 'fairlead-system', name: 'fairlead' }
  env = { ...world.env, KUBECONFIG: await kubeconfigOf(world.kube, world.cluster.kubeconfig, account) }
  await world.kube.create(resourcePath(Node), { apiVersion: 'v1', kind: 'Node', metadata: { name: 'a' } })
  const labels = { app: 'web' }
  await world.kube.create(resourcePath(Deployment, 'default'), {
    metadata: { name: 'web' },
    spec: {
      replicas: 0,
      selector: { matchLabels: labels },
      template: { metadata: { labels }, spec: { containers: [{ name: 'c', image: 'busybox' }] } },
    },
  })
})

afterAll(async () => {
  await world?.[Symbol.asyncDispose]()
})

const up = async () => {
  const running = startFairlead(['up', '-f', FUNCTION], env)
  for (const name of [shift.name, approver.name])
    await running.logged(({ msg, reconciler }) => msg === 'reconciler served' && reconciler === name)
  return running
}
const find = (ref: ResourceRef, name: string, namespace?: string) =>
  world.kube.get<KubeObject>(resourcePath(ref, namespace, name)).catch((error: unknown) => {
    if (!isNotFound(error)) throw error
    return undefined
  })
const specOf = async (ref: ResourceRef, name: string) =>
  ((await find(ref, name, 'default')) ?? {})['spec'] as Record<string, unknown>
/** A Pod that runs and is ready, as far as the API server knows. No scheduler looks at it. */
const runs = async (name: string, label: string, metadata: object = {}) => {
  await world.kube.create(resourcePath(Pod, 'default'), {
    metadata: { name, labels: { shift: label }, ...metadata },
    spec: { schedulerName: 'nobody', containers: [{ name: 'c', image: 'busybox' }] },
  })
  const status = { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] }
  return world.kube.patch<KubeObject>(resourcePath(Pod, 'default', name, 'status'), { status }, 'merge')
}
const create = (name: string, spec: object) =>
  world.kube.create(resourcePath(Shift, 'default'), {
    apiVersion: 'example.com/v1',
    kind: 'Shift',
    metadata: { name },
    spec,
  })
const statusOf = async (name: string) =>
  (await find(Shift, name, 'default'))?.status as
    | { left?: number; waits?: string; conditions?: { type: string; status: string }[] }
    | undefined
const requests = async (resource: string, name: string) =>
  (await world.cluster.audit()).filter((one) => one.resource === resource && one.name === name)
const request = (name: string, annotations: object, signerName = 'example.com/client') =>
  world.kube.create<KubeObject>(resourcePath(CertificateSigningRequest), {
    metadata: { name, annotations },
    spec: { request: REQUEST, signerName, usages: ['client auth'] },
  })
const conditionsOf = (object: KubeObject | undefined) =>
  (object?.status as { conditions?: Record<string, string>[] } | undefined)?.conditions
const budget = (label: string, minAvailable: number) =>
  world.kube.apply(
    resourcePath(BUDGETS, 'default', label),
    {
      apiVersion: 'policy/v1',
      kind: 'PodDisruptionBudget',
      metadata: { name: label },
      spec: { minAvailable, selector: { matchLabels: { shift: label } } },
    },
    { fieldManager: 'test', force: true },
  )
/** The budget is counted by its controller. */
const counted = async (label: string, allowed: number) =>
  until(async () => {
    const { metadata, status } = (await find(BUDGETS, label, 'default')) ?? {}
    const { disruptionsAllowed, observedGeneration } = (status ?? {}) as Record<string, number>
    return observedGeneration === metadata?.generation && disruptionsAllowed === allowed
  })

describe('acts, with the generated rights only', () => {
  it('scale a Deployment of others, and bind a Pod to a Node', async () => {
    await using _process = await up()
    await runs('unbound', 'bind')
    await create('moves', { scale: { name: 'web', replicas: 2 }, bind: { label: 'bind', node: 'a' } })
    await until(async () => (await specOf(Deployment, 'web'))['replicas'] === 2)
    await until(async () => (await specOf(Pod, 'unbound'))['nodeName'] === 'a')
    const acted = (await world.cluster.audit()).filter(({ actedAs }) => actedAs.endsWith(':fairlead-shift'))
    expect(acted.filter(({ code }) => code === 403)).toEqual([])
    const done = acted.filter(({ resource, code }) => /scale|binding/.test(resource) && code < 300)
    expect(done.map(({ verb, resource }) => `${verb} ${resource}`).sort()).toEqual([
      'create pods/binding',
      'patch deployments/scale',
    ])
  })

  it('wait while a disruption budget allows no eviction: no failure, and the eviction follows when it does', async () => {
    await budget('guarded', 1)
    await runs('guarded', 'guarded')
    await counted('guarded', 0)
    await using running = await up()
    await create('drain', { evict: 'guarded' })
    await until(async () => (await statusOf('drain'))?.waits === 'DisruptionBudget', { leastMs: 50 })
    expect((await statusOf('drain'))?.conditions ?? []).toEqual([])
    const [first] = await requests('pods/eviction', 'guarded')
    expect(first?.code).toBe(429)
    expect(running.logs.filter(({ msg }) => msg === 'run failed')).toEqual([])
    const told = 'evict Pod guarded waits: Cannot evict pod'
    await until(async () => (await command(['explain', 'shift/drain'], world.env)).stdout.includes(told))
    await budget('guarded', 0)
    await until(async () => (await find(Pod, 'guarded', 'default')) === undefined)
    await until(async () => (await statusOf('drain'))?.left === 0)
    const codes = (await requests('pods/eviction', 'guarded')).map(({ code }) => code)
    expect(codes.filter((code) => code === 201)).toHaveLength(1)
    const times = (await requests('pods/eviction', 'guarded')).map(({ receivedAt }) => receivedAt)
    for (const [index, at] of times.slice(1).entries()) expect(at - (times[index] ?? 0)).toBeGreaterThan(4900)
  })

  it('are performed once, although the process is killed when the API server has answered', async () => {
    await runs('kept', 'kept', { finalizers: ['example.com/keep'] })
    {
      await using running = await up()
      await create('killed', { evict: 'kept' })
      await running.logged(({ step, verb }) => step === 'written' && verb === 'evict')
      running.kill('SIGKILL')
      await running.exited
    }
    await using _process = await up()
    await until(async () => (await statusOf('killed'))?.left === 0)
    const done = (await requests('pods/eviction', 'kept')).filter(({ code }) => code < 300)
    expect(done).toHaveLength(1)
    await world.kube.patch(resourcePath(Pod, 'default', 'kept'), { metadata: { finalizers: null } }, 'merge')
  })

  it('approve and deny the requests of the declared signers, and of no other', async () => {
    await using _process = await up()
    await request('yes', { 'example.com/wants': 'Approve' })
    await request('no', { 'example.com/wants': 'Deny' })
    await request('foreign', { 'example.com/wants': 'Approve' }, 'example.com/other')
    await until(async () => conditionsOf(await find(CertificateSigningRequest, 'yes'))?.[0]?.['type'] === 'Approved')
    await until(async () => conditionsOf(await find(CertificateSigningRequest, 'no'))?.[0]?.['type'] === 'Denied')
    const told = async () => {
      const { value } = await world.kube.list<KubeObject>(resourcePath(EVENTS, 'default')).next()
      return value?.items.filter((one) => (one['regarding'] as { name: string }).name === 'foreign') ?? []
    }
    await until(async () => (await told()).length > 0)
    expect(await told()).toMatchObject([{ reason: 'Forbidden', note: expect.stringContaining('example.com/other') }])
    expect(conditionsOf(await find(CertificateSigningRequest, 'foreign'))).toBeUndefined()
    expect(await requests('certificatesigningrequests/approval', 'foreign')).toEqual([])
  })

  it('are shown by a dry run, and not performed', async () => {
    await runs('shown', 'shown')
    await create('dry', { evict: 'shown' })
    const { stdout } = await command(['run', 'shift', 'dry', '--dry-run', '-f', FUNCTION], world.env)
    expect(stdout).toContain('perform Evict Pod default/shown')
    expect(await requests('pods/eviction', 'shown')).toEqual([])
  })
})

describe('an act on a version that is past, on a real API server', () => {
  const resourceFor = (act: ActedResource['act'], { group, version, resource, kind }: ResourceRef & { kind: string }) =>
    ({ act, group, version, resource, kind, within: 'Namespace' }) as ActedResource
  const refreshed: (KubeObject | undefined)[] = []
  const send = (declared: ActedResource, object: KubeObject, more: object = {}, primary = widget()) => {
    const act = { act: declared.act, on: object, ...more } as never
    const verb = declared.act.toLowerCase() as 'evict'
    const planned = { target: '', verb, act, resource: declared, object, fingerprint: '', on: '', times: 0 }
    const through: Pick<WriteThrough, 'result'> = {
      result: async (_ref, _owner, _object, found) => ({ object: refreshed[refreshed.push(found) - 1], isOld: false }),
    }
    const run: WritingRun = {
      reconciler: 'test',
      key: 'default.w',
      origin: 'test',
      identity: 'test',
      fieldManager: 'test',
      primary: { ref: declared, object: primary, owner: undefined },
      hold: () => Number.POSITIVE_INFINITY,
      signal: AbortSignal.timeout(30_000),
      span: spanAfter(undefined, false),
      observe: () => undefined,
      report: () => undefined,
    }
    const requests = new WriteRequests({ kube: world.kube, gate: new Gate(1), inFlight: new InFlight() }, run)
    const events: Pick<EventStore, 'observe'> = {
      observe: async () => ({ primary: undefined, owned: [], related: [], news: undefined }),
    }
    return new ActsWriter(requests, through, run, events).send(planned, primary, new AbortController().signal)
  }
  const pod = async (name: string) => ({ ...(await runs(name, 'past', { finalizers: ['example.com/keep'] })) })

  it.each([
    ['Evict', resourceFor('Evict', Pod), () => pod('evicted'), {}],
    ['Bind', resourceFor('Bind', Pod), () => pod('bound'), { node: 'a' }],
    [
      'Scale',
      resourceFor('Scale', Deployment),
      async () => (await find(Deployment, 'web', 'default')) as KubeObject,
      { replicas: 5 },
    ],
    [
      'Approve',
      resourceFor('Approve', CertificateSigningRequest),
      () => request('past', {}),
      { reason: 'Checked', message: 'twice' },
    ],
  ] as const)('is not performed: %s', async (_, declared, made, more) => {
    const seen = await made()
    expect(await send(declared, seen, more)).toEqual({})
    expect(await send(declared, seen, more)).toEqual({ isPast: true })
  })

  it('of which the result is there changes nothing, and says so', async () => {
    const scales = async () => {
      const found = await find(Deployment, 'web', 'default')
      return send(resourceFor('Scale', Deployment), found as KubeObject, { replicas: 7 })
    }
    await until(async () => (await scales()).isPast === undefined)
    expect((await specOf(Deployment, 'web'))['replicas']).toBe(7)
    await until(async () => (await scales()).isUnchanged === true)
    const seen = await request('twice', {})
    const approve = resourceFor('Approve', CertificateSigningRequest)
    expect(await send(approve, seen, { reason: 'Checked' })).toEqual({})
    const approved = (await find(CertificateSigningRequest, 'twice')) as KubeObject
    expect(await send(approve, approved, { reason: 'Checked' })).toEqual({ isUnchanged: true })
  })

  it('is a conflict if it is the object of the function, and EVENTS gets the version of the API server', async () => {
    const seen = await pod('primary')
    await send(resourceFor('Bind', Pod), seen, { node: 'a' }, seen)
    expect(refreshed.splice(0)).toMatchObject([{ spec: { nodeName: 'a' } }])
    await expect(send(resourceFor('Bind', Pod), seen, { node: 'a' }, seen)).rejects.toThrow(ConflictError)
    expect(refreshed.splice(0)).toMatchObject([{ spec: { nodeName: 'a' } }])
  })

  it('is done if the object is gone', async () => {
    const { metadata } = await runs('gone', 'past')
    await world.kube.delete(resourcePath(Pod, 'default', 'gone'), { gracePeriodSeconds: 0 })
    const object = { apiVersion: 'v1', kind: 'Pod', metadata }
    for (const act of ['Evict', 'Bind'] as const)
      expect(await send(resourceFor(act, Pod), object, { node: 'a' })).toEqual({})
  })

  it('is refused if its subresource does not exist, or if two budgets have the Pod', async () => {
    const node = (await find(Node, 'a')) as KubeObject
    await expect(send(resourceFor('Scale', Node), node, { replicas: 1 })).rejects.toThrow(
      'cannot scale Node a: Node has no subresource scale',
    )
    const twice = await runs('twice', 'twice')
    await budget('twice', 0)
    await world.kube.create(resourcePath(BUDGETS, 'default'), {
      metadata: { name: 'other' },
      spec: { minAvailable: 0, selector: { matchLabels: { shift: 'twice' } } },
    })
    await counted('twice', 1)
    await expect(send(resourceFor('Evict', Pod), twice)).rejects.toMatchObject({ reason: 'ManyDisruptionBudgets' })
  })
})
