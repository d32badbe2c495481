import { readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { trigger } from 'fairlead/events'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Memcached } from '#functions/memcached'
import { VisitorsApp } from '#functions/visitors'
import { isNotFound, resourcePath } from '#kube'
import { kubeconfigOf } from '../support/account.ts'
import { startCollector } from '../support/collector.ts'
import { command } from '../support/command.ts'
import { type DeployedNats, startDeployedNats } from '../support/deployed-nats.ts'
import { type FairleadProcess, startFairlead } from '../support/fairlead.ts'
import { ATS, type At, at, startWorld, until, type World } from './world.ts'

const ROLES = { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'clusterroles' }
const PODS = { group: '', version: 'v1', resource: 'pods' }
const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }

let world: World
let nats: DeployedNats
let bridge: FairleadProcess
let dispatcher: FairleadProcess
let collector: Awaited<ReturnType<typeof startCollector>>

/** Bridge and dispatcher as two processes, each with its own account, its own user of NATS, and no other rights. */
beforeAll(async () => {
  nats = await startDeployedNats({ triggers: [{ name: 'clock', reconcilers: ['at'] }] })
  world = await startWorld({ controllers: true, nats: false })
  Object.assign(world.env, await nats.as('fairlead-dispatcher'))
  collector = await startCollector()
  const as = async (name: string) => ({
    ...world.env,
    ...(await nats.as(name)),
    // A long lease, so that no other process takes a run over on a busy machine.
    FAIRLEAD_LEASE_SECONDS: '30',
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    KUBECONFIG: await kubeconfigOf(world.kube, world.cluster.kubeconfig, { namespace: 'fairlead-system', name }),
  })
  bridge = startFairlead(['bridge'], await as('fairlead-bridge'))
  dispatcher = startFairlead(['dispatch', '--builtin', 'all'], await as('fairlead-dispatcher'))
  await dispatcher.logged(({ msg, reconciler }) => msg === 'reconciler served' && reconciler === 'at')
})

afterAll(async () => {
  await dispatcher?.[Symbol.asyncDispose]()
  await bridge?.[Symbol.asyncDispose]()
  await collector?.[Symbol.asyncDispose]()
  await world?.[Symbol.asyncDispose]()
  await nats?.[Symbol.asyncDispose]()
})

const soon = () => new Date(Date.now() - 1000)
const statusOf = async (name: string) => (await world.ats()).find(({ metadata }) => metadata.name === name)?.status

describe('with the generated rights only', () => {
  it('an At runs, and its writes are those of its own account', async () => {
    await world.create(at('allowed', soon()))
    await until(async () => (await statusOf('allowed'))?.phase === 'RUNNING', { leastMs: 50 })
    const writes = (await world.cluster.audit()).filter(
      ({ verb, resource }) => verb === 'create' && resource === 'pods',
    )
    expect(writes.length).toBeGreaterThan(0)
    expect(await world.pods()).toHaveLength(1)
  })

  it('a Memcached and a VisitorsApp are made, and finalized, each by its own account', async () => {
    const made = { memcached: 'mc', visitors: 'va-mysql' }
    const mc = Memcached.of({ metadata: { name: 'mc' }, spec: {} })
    const va = VisitorsApp.of({ metadata: { name: 'va' }, spec: { database: { storage: { size: '1Gi' } } } })
    await world.kube.create(resourcePath(Memcached, 'default'), mc)
    await world.kube.create(resourcePath(VisitorsApp, 'default'), va)
    const creators = async () => {
      const created = (await world.cluster.audit()).filter(
        ({ verb, resource, code }) => verb === 'patch' && resource === 'deployments' && code === 201,
      )
      return Object.fromEntries(created.map(({ name, actedAs }) => [name, actedAs]))
    }
    const expected = Object.entries(made).map(([fn, name]) => [
      name,
      `system:serviceaccount:fairlead-system:fairlead-${fn}`,
    ])
    await until(async () => isDeepStrictEqual(await creators(), Object.fromEntries(expected)), { leastMs: 50 })
    const refused = (await world.cluster.audit()).filter(({ actedAs, code }) => actedAs !== '' && code === 403)
    expect(refused).toEqual([])
    const path = resourcePath(Memcached, 'default', 'mc')
    await world.kube.delete(path)
    await until(async () => world.kube.get(path).then(() => false, isNotFound), { leastMs: 50 })
  })

  it('its change is one trace, from the watch to each request, in spans and logs, across processes', async () => {
    const about = (name: string) =>
      collector.spans.filter(({ attributes }) =>
        attributes.some(({ key, value }) => key === 'k8s.object.name' && value.stringValue === name),
      )
    const publishing = () => about('allowed').find(({ name }) => name.startsWith('publish ats'))
    await until(async () => publishing() !== undefined, { leastMs: 50 })
    const { traceId, spanId } = publishing()!
    const inTrace = (name: string) => collector.spans.find((span) => span.traceId === traceId && span.name === name)
    await until(async () => inTrace('run at') !== undefined, { leastMs: 50 })
    const run = inTrace('run at')!
    expect([run.parentSpanId, inTrace('queue at')?.parentSpanId]).toEqual([spanId, spanId])
    const requests = ['create pods.v1', 'status ats.v1alpha1.cnat.programming-kubernetes.info'].map(inTrace)
    expect(requests.map((span) => span?.parentSpanId)).toEqual([run.spanId, run.spanId])
    expect(dispatcher.logs.filter((line) => line['traceId'] === traceId).map(({ step }) => step)).toContain('finished')
  })

  it('a program that may only trigger an At runs it, and its trace shows why', async () => {
    await using js = await nats.connect('fairlead-trigger-clock', 'program')
    const cause = 'the clock has struck'
    await trigger(js.nc, { reconciler: 'at', namespace: 'default', name: 'allowed', cause })
    const causes = () =>
      collector.spans
        .filter(({ name }) => name === 'queue at')
        .flatMap(({ attributes }) => attributes.filter(({ key }) => key === 'fairlead.causes'))
    await until(async () => causes().some(({ value }) => value.stringValue === `trigger: ${cause}`), { leastMs: 50 })
  })

  it('what a function wants beyond them is refused, shown on the object and in an Event, and made good when allowed', async () => {
    const path = resourcePath(ROLES, undefined, 'fairlead-at')
    const role = await world.kube.get<{ rules: { resources: string[] }[] }>(path)
    const rules = role.rules.filter(({ resources }) => !resources.includes('pods'))
    await world.kube.patch(path, { rules }, 'merge')
    await world.create(at('refused', soon()))
    const failure = async () =>
      (await statusOf('refused'))?.conditions?.find(({ type, status }) => type === 'Reconciled' && status === 'False')
    await until(async () => (await failure()) !== undefined, { leastMs: 50 })
    expect(await failure()).toMatchObject({
      reason: 'Forbidden',
      message: expect.stringMatching(
        /User "system:serviceaccount:fairlead-system:fairlead-at" cannot create resource "pods"/,
      ),
    })
    const reported = async () => {
      const events: { reason: string; regarding: { name: string } }[] = []
      for await (const { items } of world.kube.list<(typeof events)[number]>(resourcePath(EVENTS, 'default')))
        events.push(...items)
      return events.filter(({ regarding }) => regarding.name === 'refused')
    }
    await until(async () => (await reported()).length > 0, { leastMs: 50 })
    expect(await reported()).toMatchObject([{ reason: 'Forbidden' }])

    await world.kube.patch(path, { rules: role.rules }, 'merge')
    await until(async () => (await statusOf('refused'))?.phase === 'RUNNING', { leastMs: 50 })
  })

  it.each([
    ['fairlead-bridge', '$JS.API.CONSUMER.MSG.NEXT.WORK.at-high'],
    ['fairlead-bridge', '$JS.API.STREAM.DELETE.EVENTS'],
    ['fairlead-dispatcher', 'cursor.core.pods.v1._'],
    ['fairlead-dispatcher', '$JS.API.STREAM.PURGE.WORK'],
  ] as const)('NATS refuses nothing that they need; to %s it refuses %s', async (user, subject) => {
    const log = readFileSync(nats.nats.processes.logFile('nats'), 'utf8').split('\n')
    expect(log.filter((line) => line.includes('Violation') && !line.includes('probe'))).toEqual([])
    await using js = await nats.connect(user, 'probe')
    await expect(js.nc.request(subject, '', { timeout: 60_000 })).rejects.toThrow(/Permissions Violation/)
  })

  it('a dispatcher may act as nobody else', async () => {
    const asDispatcher = world.kube.as('system:serviceaccount:fairlead-system:fairlead-dispatcher')
    const pods = resourcePath({ group: '', version: 'v1', resource: 'pods' }, 'default')
    await expect(asDispatcher.list(pods).next()).rejects.toMatchObject({ code: 403 })
    const review = {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SubjectAccessReview',
      spec: {
        user: 'system:serviceaccount:fairlead-system:fairlead-dispatcher',
        resourceAttributes: { verb: 'impersonate', resource: 'serviceaccounts', name: 'fairlead-at' },
      },
    }
    const mayAct = async (namespace: string) => {
      const { spec } = review
      const asked = { ...review, spec: { ...spec, resourceAttributes: { ...spec.resourceAttributes, namespace } } }
      const path = '/apis/authorization.k8s.io/v1/subjectaccessreviews'
      return (await world.kube.create<{ status: { allowed: boolean } }>(path, asked)).status.allowed
    }
    expect([await mayAct('fairlead-system'), await mayAct('default')]).toEqual([true, false])
  })
})

describe('the API server counts', () => {
  const ACCOUNT = 'system:serviceaccount:fairlead-system:'
  /** Returns the requests of bridge and dispatcher. Only the end of a watch is logged. */
  async function requestsOfOurs() {
    const all = (await world.cluster.audit()).filter(({ user, verb }) => user.startsWith(ACCOUNT) && verb !== 'watch')
    return all.map(({ actedAs, verb, resource, name }) => {
      return { said: `${actedAs.replace(ACCOUNT, '')} ${verb} ${resource}`, name }
    })
  }

  /** An At whose pod has succeeded. */
  async function succeeded(name: string, due: Date, more: object = {}): Promise<void> {
    // No scheduler handles its pod: the reason why the pod does not start would add another write.
    const object = at(name, due) as At
    const template = { spec: { schedulerName: 'nobody' } }
    await world.create({ ...object, spec: { ...object.spec, template, ...more } })
    await until(async () => (await statusOf(name))?.phase === 'RUNNING', { leastMs: 20 })
    const path = resourcePath(PODS, 'default', `${name}-pod`, 'status')
    await world.kube.patch(path, { status: { phase: 'Succeeded' } }, 'merge')
  }

  /** Each request that is about the At or its pod. */
  async function requestsAbout(name: string): Promise<string[]> {
    await fence()
    const about = (await requestsOfOurs()).filter((request) => [name, `${name}-pod`].includes(request.name))
    return about.map(({ said }) => said)
  }

  /** The whole life of an At, and whether it had to wait. */
  async function lived(name: string, due: Date) {
    await succeeded(name, due)
    await until(async () => (await statusOf(name))?.phase === 'DONE', { leastMs: 20 })
    const requests = await requestsAbout(name)
    return { waited: (await statusOf(name))?.scheduledTime !== undefined, requests }
  }

  let fences = 0
  /** The whole life of another At: requests that were due before have been made. */
  async function fence(): Promise<void> {
    const name = `fence-${fences++}`
    await succeeded(name, soon())
    await until(async () => (await statusOf(name))?.phase === 'DONE', { leastMs: 20 })
  }

  it('three requests for an At that is due at once, one more if it had to wait, and none while nothing happens', async () => {
    const [create, status] = ['fairlead-at create pods', 'fairlead-at patch ats/status']
    expect(await lived('counted', soon())).toEqual({ waited: false, requests: [create, status, status] })
    // A late run does not find the At waiting.
    const { waited, requests } = await lived('waiting', new Date(Date.now() + 3000))
    expect(requests).toEqual([...(waited ? [status] : []), create, status, status])
  })

  it('one more for an At with a time to live, which deletes the At as its own account', async () => {
    await succeeded('short-lived', soon(), { ttlSecondsAfterFinished: 0 })
    const path = resourcePath(ATS, 'default', 'short-lived')
    await until(async () => world.kube.get(path).then(() => false, isNotFound), { leastMs: 20 })
    const requests = ['create pods', 'patch ats/status', 'patch ats/status', 'delete ats']
    expect(await requestsAbout('short-lived')).toEqual(requests.map((said) => `fairlead-at ${said}`))
  })
})

describe('a dry run from the command line', () => {
  it('shows outcome and difference, and writes nothing', async () => {
    const later = new Date(Date.now() + 3_600_000)
    await world.create(at('dry-run', later))
    await until(async () => (await statusOf('dry-run'))?.phase === 'PENDING', { leastMs: 50 })
    const run = (...args: string[]) => command(['run', 'at', 'dry-run', '--dry-run', ...args], world.env)
    const waiting = await run()
    expect(waiting).toMatchObject({ code: 0, stdout: expect.stringContaining('Nothing would be written.') })
    expect(waiting.stdout).toContain(`the next one begin at ${later.toISOString()}`)

    await dispatcher[Symbol.asyncDispose]()
    const ats = resourcePath(ATS, 'default', 'dry-run')
    await world.kube.patch(ats, { spec: { schedule: soon().toISOString() } }, 'merge')
    const its = async () => (await world.pods()).filter(({ metadata }) => metadata.name.startsWith('dry-run'))
    const before = await world.kube.get(ats)
    const due = await run()
    expect(due.stdout).toMatch(/create Pod default\/dry-run-pod/)
    expect(due.stdout).toContain('+ .spec.schedulerName: "default-scheduler"')
    expect(due.stdout).toContain('~ .status.phase: "PENDING" → "RUNNING"')
    const { would } = JSON.parse((await run('-o', 'json')).stdout) as { would: { would: string; kind: string }[] }
    expect(would[0]).toMatchObject({ would: 'create', kind: 'Pod' })
    expect([await world.kube.get(ats), await its()]).toEqual([before, []])
  })

  it.each([
    [['run', 'at', 'nobody', '--dry-run'], 'there is no At nobody in namespace default'],
    [['run', 'bat', 'x', '--dry-run'], 'there is no function bat, but at'],
    [['run', 'at', 'x'], '--dry-run'],
  ])('%j is wrong use', async (args, message) => {
    expect(await command(args, world.env)).toMatchObject({ code: 2, stderr: expect.stringContaining(message) })
  })
})
