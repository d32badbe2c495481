import { beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { resourcePath } from '#kube'
import { EventRecorder } from '../../dispatch/apply/event-recorder.ts'
import { Gate, PRIORITY } from '../../dispatch/gate.ts'
import { CONFIG_MAPS, configMap, PODS, pod, silent, until, useFixture, WIDGETS } from './fixture.ts'

const fixture = useFixture()
const scene = fixture.useScene('refusals')

const POLICIES = { group: 'admissionregistration.k8s.io', version: 'v1', resource: 'validatingadmissionpolicies' }
const BINDINGS = { ...POLICIES, resource: 'validatingadmissionpolicybindings' }
const QUOTAS = { group: '', version: 'v1', resource: 'resourcequotas' }
const SECRETS = { group: '', version: 'v1', resource: 'secrets' }

/** Until the API server knows of it. */
const refused = (object: object) =>
  until(() =>
    fixture.kube.create(resourcePath(CONFIG_MAPS, scene.name), object, { dryRun: true }).then(
      () => false,
      () => true,
    ),
  )

describe('a refusal of the API server', () => {
  it('by a quota is shown with its words, and made good when there is room', async () => {
    const hard = { 'count/secrets': '0' }
    const status = { hard, used: { 'count/secrets': '0' } }
    const secret = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'quota-secret' } }
    await using limited = await fixture.scene('quota', {
      spec: { owns: [{ ...SECRETS, kind: 'Secret' }, CONFIG_MAPS] },
      waitFor: false,
    })
    await fixture.listed(SECRETS)
    await fixture.kube.create(resourcePath(QUOTAS, 'quota'), { metadata: { name: 'none' }, spec: { hard } })
    // What the quota controller does.
    await fixture.kube.patch(`${resourcePath(QUOTAS, 'quota')}/none/status`, { status }, 'merge')
    const probe = () => fixture.kube.create(resourcePath(SECRETS, 'quota'), secret, { dryRun: true })
    await until(() => expect(probe()).rejects.toThrow('exceeded quota'))
    await limited.widget('quota', () => ({ apply: [secret, configMap('quota-config')], status: { phase: 'DONE' } }))
    expect((await limited.ended('quota')).result).toBe('error')
    expect(await limited.condition('quota')).toMatchObject({
      status: 'False',
      reason: 'QuotaExceeded',
      message: expect.stringContaining('exceeded quota: none, requested: count/secrets=1, used: count/secrets=0'),
    })
    expect(await limited.get(CONFIG_MAPS, 'quota-config')).toBeDefined()
    await fixture.kube.delete(resourcePath(QUOTAS, 'quota', 'none'))
    await until(async () => (await limited.condition('quota'))?.['status'] === 'True')
    expect((await limited.get(WIDGETS, 'quota'))?.status).toMatchObject({ phase: 'DONE' })
  })

  it('by an admission policy is shown with its words', async () => {
    await fixture.kube.create(resourcePath(POLICIES), {
      metadata: { name: 'no-secrets-in-configs' },
      spec: {
        failurePolicy: 'Fail',
        matchConstraints: {
          resourceRules: [
            { apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE', 'UPDATE'], resources: ['configmaps'] },
          ],
        },
        validations: [
          { expression: "!('password' in object.data)", message: 'a ConfigMap is no place for a password' },
        ],
      },
    })
    await fixture.kube.create(resourcePath(BINDINGS), {
      metadata: { name: 'no-secrets-in-configs' },
      spec: {
        policyName: 'no-secrets-in-configs',
        validationActions: ['Deny'],
        matchResources: { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': scene.name } } },
      },
    })
    const wrong = configMap('policy-config', { password: 'x' })
    await refused(wrong)
    await scene.widget('policy', () => ({ apply: [wrong] }))
    expect((await scene.ended('policy')).result).toBe('error')
    expect(await scene.condition('policy')).toMatchObject({
      status: 'False',
      reason: 'AdmissionDenied',
      message: expect.stringMatching(/no-secrets-in-configs.*denied request: a ConfigMap is no place for a password/),
    })
    scene.behave('policy', () => ({ apply: [configMap('policy-config', { port: '1' })] }))
    await until(async () => (await scene.condition('policy'))?.['status'] === 'True')
  })

  it('of a value that its type does not take is shown, and stops nothing else', async () => {
    await fixture.listed(QUOTAS)
    await using untyped = await fixture.scene('untyped', {
      spec: { owns: [{ ...QUOTAS, kind: 'ResourceQuota' }, PODS] },
    })
    const quota = { apiVersion: 'v1', kind: 'ResourceQuota', metadata: { name: 'q' }, spec: { hard: { pods: 'lots' } } }
    await untyped.widget('w', () => ({ apply: [quota, pod('untyped-pod')] }))
    expect((await untyped.ended('w')).result).toBe('error')
    expect(await untyped.condition('w')).toMatchObject({
      status: 'False',
      reason: 'Invalid',
      message: expect.stringMatching(/^cannot apply ResourceQuota untyped\/q: .*quantities must match/),
    })
    expect(await untyped.get(PODS, 'untyped-pod')).toBeDefined()
  })

  it('by a webhook that does not answer is shown, and stops nothing else', async () => {
    const webhooks = { ...POLICIES, resource: 'validatingwebhookconfigurations' }
    await fixture.kube.create(resourcePath(webhooks), {
      metadata: { name: 'away' },
      webhooks: [
        {
          name: 'away.example.com',
          admissionReviewVersions: ['v1'],
          sideEffects: 'None',
          failurePolicy: 'Fail',
          clientConfig: { url: 'https://127.0.0.1:1/' },
          namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': scene.name } },
          objectSelector: { matchLabels: { checked: 'true' } },
          rules: [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['configmaps'] }],
        },
      ],
    })
    const checked = configMap('webhook-config', { a: '1' })
    Object.assign(checked.metadata, { labels: { checked: 'true' } })
    await refused(checked)
    await scene.widget('webhook', () => ({
      apply: [checked, pod('webhook-pod')],
      conditions: [{ type: 'Ready', status: 'True', reason: 'Up' }],
    }))
    expect((await scene.ended('webhook')).result).toBe('error')
    expect(await scene.condition('webhook')).toMatchObject({
      status: 'False',
      reason: 'AdmissionFailed',
      message: expect.stringContaining('failed calling webhook "away.example.com"'),
    })
    expect(await scene.condition('webhook', 'Ready')).toMatchObject({ status: 'False', reason: 'AdmissionFailed' })
    expect(await scene.get(PODS, 'webhook-pod')).toBeDefined()
    await fixture.kube.delete(resourcePath(webhooks, undefined, 'away'))
    await until(async () => (await scene.condition('webhook'))?.['status'] === 'True')
    expect(await scene.condition('webhook', 'Ready')).toMatchObject({ status: 'True', reason: 'Up' })
  })

  it.each(['a/b', '..', '\ud800'])('of the name %j, which no path can have, stops nothing else', async (name) => {
    const of = `name-${Buffer.from(name).toString('hex')}`
    let told: unknown
    await scene.widget(of, ({ refused }) => {
      told = refused
      return { apply: [configMap(name, { a: '1' }), configMap(of, { a: '1' })], status: { phase: 'Up' } }
    })
    expect((await scene.ended(of)).result).toBe('error')
    expect(await scene.condition(of)).toMatchObject({
      status: 'False',
      reason: 'Invalid',
      message: expect.stringContaining('cannot be the name in an API path'),
    })
    expect((await scene.get(WIDGETS, of))?.status).toMatchObject({ phase: 'Up' })
    expect(await scene.get(CONFIG_MAPS, of)).toBeDefined()
    expect(told).toMatchObject({ 'ConfigMap.v1': [{ reason: 'Invalid' }] })
    scene.behave(of, () => ({}))
    await until(async () => (await scene.condition(of))?.['status'] === 'True')
  })

  it('of a kind that is not in namespaces says so', async () => {
    const CLASSES = { group: 'scheduling.k8s.io', version: 'v1', resource: 'priorityclasses', kind: 'PriorityClass' }
    await using limited = await fixture.scene('unserved', { spec: { owns: [CLASSES, CONFIG_MAPS] }, waitFor: false })
    await fixture.listed(CLASSES)
    const high = { apiVersion: 'scheduling.k8s.io/v1', kind: 'PriorityClass', metadata: { name: 'high' }, value: 1 }
    await limited.widget('unserved', () => ({ apply: [high] }))
    expect((await limited.ended('unserved')).result).toBe('error')
    expect(await limited.condition('unserved')).toMatchObject({
      reason: 'NotFound',
      message: expect.stringContaining('PriorityClass is not served in namespaces'),
    })
  })

  it('of the finalizer is shown with its words, and the function is not called without it', async () => {
    await using finalizing = await fixture.scene('finalizing', { spec: { finalize: true } })
    const name = 'no-finalizers'
    await fixture.kube.create(resourcePath(POLICIES), {
      metadata: { name },
      spec: {
        failurePolicy: 'Fail',
        matchConstraints: {
          resourceRules: [
            { apiGroups: [WIDGETS.group], apiVersions: ['*'], operations: ['UPDATE'], resources: [WIDGETS.resource] },
          ],
        },
        validations: [{ expression: '!has(object.metadata.finalizers)', message: 'nothing is to be held back here' }],
      },
    })
    const namespaceSelector = { matchLabels: { 'kubernetes.io/metadata.name': finalizing.name } }
    await fixture.kube.create(resourcePath(BINDINGS), {
      metadata: { name },
      spec: { policyName: name, validationActions: ['Deny'], matchResources: { namespaceSelector } },
    })
    await fixture.kube.create(resourcePath(WIDGETS, finalizing.name), {
      apiVersion: `${WIDGETS.group}/${WIDGETS.version}`,
      kind: 'Widget',
      metadata: { name: 'probe' },
    })
    const held = { metadata: { finalizers: ['example.com/x'] } }
    await until(() =>
      fixture.kube.patch(resourcePath(WIDGETS, finalizing.name, 'probe'), held, 'merge', { dryRun: true }).then(
        () => false,
        () => true,
      ),
    )
    let calls = 0
    await finalizing.widget('held', () => {
      calls++
      return {}
    })
    await until(async () => (await finalizing.condition('held')) !== undefined)
    expect(await finalizing.condition('held')).toMatchObject({
      status: 'False',
      reason: 'AdmissionDenied',
      message: expect.stringContaining('nothing is to be held back here'),
    })
    expect(calls).toBe(0)
  })
})

describe('Events', () => {
  it('that another process has written count on', async () => {
    const report = { type: 'Warning', reason: 'Odd', message: 'odd' } as const
    const widget = await scene.widget('told', () => ({}))
    const gate = new Gate(1)
    const recorders = ['one', 'other'].map(
      (instance) => new EventRecorder({ gate, instance, now: () => new Date(), dropped: () => undefined, log: silent }),
    )
    for (const recorder of recorders) {
      recorder.record(fixture.kube, 'refusals', widget, report)
      await recorder.flush()
    }
    const reporting = { reportingController: 'fairlead.dev/refusals', reportingInstance: 'one' }
    expect(await scene.reported('told')).toMatchObject([{ ...reporting, series: { count: 2 } }])
  })
})

describe('a kind that is created anew on request', () => {
  it('is deleted when it is declared otherwise, and created as declared', async () => {
    await using recreating = await fixture.scene('recreating', { spec: { owns: [{ ...PODS, strategy: 'Recreate' }] } })
    const withImage = (image: string) => ({ ...pod('r-pod'), spec: { containers: [{ name: 'c', image }] } })
    await recreating.widget('r', () => ({ apply: [withImage('busybox')] }))
    await recreating.ended('r')
    const old = await recreating.get(PODS, 'r-pod')
    expect(await recreating.requestsDuring(() => recreating.run('r'))).toEqual([])
    recreating.behave('r', () => ({ apply: [withImage('busybox:2')] }))
    expect(await recreating.requestsDuring(() => recreating.run('r'))).toEqual([
      'DELETE pods/r-pod 200',
      'POST pods 201',
    ])
    const young = await recreating.get(PODS, 'r-pod')
    expect(young?.metadata.uid).not.toBe(old?.metadata.uid)
    expect(young?.spec).toMatchObject({ containers: [{ image: 'busybox:2' }] })
  })
})

describe('waiting Events', () => {
  const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }
  const WAITING = 1000
  const AT_ONCE = 4

  beforeAll(async () => {
    for (const name of ['loud', 'quiet']) await fixture.kube.create('/api/v1/namespaces', { metadata: { name } })
  })

  const report = { type: 'Normal', reason: 'Told', message: 'told' } as const

  /** An object in the namespace of its reconciler. */
  const object = (namespace: string, name: string): KubeObject => ({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name, namespace, uid: `uid-${name}` },
  })

  async function written(namespace: string): Promise<string[]> {
    const found: string[] = []
    for await (const { items } of fixture.kube.list(resourcePath(EVENTS, namespace)))
      for (const event of items) found.push((event['regarding'] as { name: string }).name)
    return found
  }

  it('keeps 1,000 Events of a reconciler waiting, drops its oldest beyond them, and serves others in turn', async () => {
    const gate = new Gate(1)
    const { promise: backlog, resolve: end } = Promise.withResolvers<void>()
    const busy = gate.run({ reconciler: 'loud', kind: PRIORITY.create }, () => backlog)
    const dropped: string[] = []
    const recorder = new EventRecorder({
      gate,
      instance: 'test',
      now: () => new Date(),
      dropped: (reconciler) => dropped.push(reconciler),
      log: silent,
    })
    const record = (reconciler: string, name: string) =>
      recorder.record(fixture.kube, reconciler, object(reconciler, name), report)
    for (let index = 0; index < AT_ONCE; index++) record('loud', `sending-${index}`)
    record('loud', 'oldest')
    for (let index = 0; index < WAITING; index++) record('loud', `waiting-${index}`)
    record('quiet', 'only')
    expect(dropped).toEqual(['loud'])
    end()
    await busy
    await recorder.flush()
    const posts = fixture.requests.filter(
      ({ method, path }) => method === 'POST' && /\/(loud|quiet)\/events$/.test(path),
    )
    expect(posts.findIndex(({ path }) => path.includes('/quiet/'))).toBeLessThan(2 * AT_ONCE)
    const loud = await written('loud')
    expect(loud).toHaveLength(WAITING + AT_ONCE)
    expect(loud).not.toContain('oldest')
  })
})
