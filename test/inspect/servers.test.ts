import { readFile, writeFile } from 'node:fs/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { deadKey } from '#events'
import { isNotFound, resourcePath } from '#kube'
import { freePorts } from '../../packages/lab/ports.ts'
import { until } from '../support/wait.ts'
import { explained, explainedAs, startWorld, type World } from './real.ts'

const SITES = { group: 'example.com', version: 'v1', resource: 'sites' }
const CONFIG_MAPS = { group: '', version: 'v1', resource: 'configmaps' }
const RECONCILERS = { group: 'fairlead.dev', version: 'v1alpha1', resource: 'reconcilers' }
const BINDINGS = { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'clusterrolebindings' }

let world: World
beforeAll(async () => {
  world = await startWorld()
  await world.perform('fairlead install -f FILE')
  await world.bridge.start()
  await world.dispatcher.start()
})
afterAll(() => world?.[Symbol.asyncDispose]())

async function create(name: string, spec: object = {}, metadata: object = {}): Promise<void> {
  await world.kube.create(resourcePath(SITES, 'default'), {
    apiVersion: 'example.com/v1',
    kind: 'Site',
    metadata: { name, ...metadata },
    spec,
  })
}

const patch = (name: string, change: object) => world.kube.patch(resourcePath(SITES, 'default', name), change, 'merge')
const patchReconciler = (spec: object) =>
  world.kube.patch(resourcePath(RECONCILERS, undefined, 'site'), { spec }, 'merge')
const correct = (name: string) => patch(name, { spec: { mode: 'ok' } })
const configMap = (name: string) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name }, data: {} })
const healthy = (name: string) => explainedAs(world, `site/${name}`, (now) => now.healthy)
const first = (name: string, reason: string) =>
  explainedAs(world, `site/${name}`, ({ findings }) => findings[0]?.reason === reason)

/** Returns the file of a kubeconfig whose API server does not exist. */
async function kubeconfigAway(): Promise<string> {
  const away = `${world.module}.kubeconfig`
  const [port] = await freePorts(1)
  const kubeconfig = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'c', cluster: { server: `https://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true } }],
    users: [{ name: 'u', user: { token: 'x' } }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
  }
  await writeFile(away, JSON.stringify(kubeconfig))
  return away
}

/** Its timer may have fired meanwhile: then the key is idle, and there is nothing to retry. */
async function retried(line: string): Promise<void> {
  const { code, stdout, stderr } = await world.fairlead(line)
  if (code !== 0 && !stdout.includes('idle, nothing to retry')) throw new Error(`${line}: ${stdout}${stderr}`)
}

/** How to create the situation, its first finding, and how to perform the next step: by its command, or by its text. */
const SITUATIONS: [
  what: string,
  reason: string,
  make: (name: string) => Promise<unknown>,
  help?: (name: string) => Promise<unknown>,
][] = [
  [
    'the Reconciler is paused',
    'ReconcilerPaused',
    async (name) => {
      await patchReconciler({ paused: true })
      await create(name)
    },
  ],
  [
    'no dispatcher runs',
    'Unserved',
    async (name) => {
      await world.dispatcher.stop()
      await create(name)
    },
  ],
  [
    'no bridge runs, and the object has changed',
    'BridgeBehind',
    async (name) => {
      await create(name)
      await healthy(name)
      await world.bridge.stop()
      await patch(name, { spec: { mode: 'other' } })
    },
  ],
  [
    'no bridge runs, and the object is new',
    'NotInEvents',
    async (name) => {
      await world.bridge.stop()
      await create(name)
    },
  ],
  ['the object is paused', 'Paused', (name) => create(name, {}, { annotations: { 'fairlead.dev/paused': 'true' } })],
  ['the selector leaves the object out', 'Unselected', (name) => create(name, {}, { labels: { site: 'no' } })],
  [
    'the Reconciler writes nothing',
    'DryRun',
    async (name) => {
      await patchReconciler({ dryRun: true })
      await create(name)
    },
  ],
  ['the run fails for good', 'TerminalError', (name) => create(name, { mode: 'terminal' }), correct],
  [
    'runs fail',
    'Retrying',
    (name) => create(name, { mode: 'error' }),
    async (name) => {
      await correct(name)
      const { command } = (await explained(world, `site/${name}`)).next ?? {}
      if (command !== undefined) await retried(command)
    },
  ],
  [
    'its key is parked by hand',
    'ParkedByHand',
    async (name) => {
      await create(name, { mode: 'timer' })
      await explainedAs(world, `site/${name}`, ({ findings }) => findings[0]?.reason === 'TimerPending')
      await world.perform(`fairlead queue park site default/${name}`)
    },
  ],
  [
    'a right is missing',
    'RightsMissing',
    async (name) => {
      await world.kube.delete(resourcePath(BINDINGS, undefined, 'fairlead-site'))
      await create(name)
      await explainedAs(world, `site/${name}`, ({ findings }) => findings.some(({ reason }) => reason === 'Retrying'))
    },
    async (name) => {
      await world.perform('fairlead install -f FILE')
      await until(
        async () => !(await explained(world, `site/${name}`)).findings.some(({ reason }) => reason === 'RightsMissing'),
      )
      const { next } = await explained(world, `site/${name}`)
      if (next?.command?.startsWith('fairlead queue retry')) await retried(next.command)
    },
  ],
  [
    'what its spec names is missing',
    'RelatedMissing',
    (name) => create(name, { config: `${name}-config` }),
    (name) => world.kube.create(resourcePath(CONFIG_MAPS, 'default'), configMap(`${name}-config`)),
  ],
  ['a write is refused', 'Invalid', (name) => create(name, { mode: 'invalid' }), correct],
  [
    'the name is taken',
    'NameTaken',
    async (name) => {
      await world.kube.create(resourcePath(CONFIG_MAPS, 'default'), configMap(name))
      await create(name)
    },
    async (name) => {
      await world.kube.delete(resourcePath(CONFIG_MAPS, 'default', name))
      await retried(`fairlead queue retry site default/${name}`)
    },
  ],
  [
    'there is a dead letter of its key',
    'DeadLetter',
    async (name) => {
      await create(name)
      await healthy(name)
      const since = new Date()
      const of = { reconciler: 'site', key: `default.${name}`, lane: 'high', since, stream: world.streams.queue.stream }
      await world.streams.dead.put(deadKey({ ...of, reason: 'unknown-reconciler', detail: 'Reconciler site was gone' }))
    },
  ],
]

it.each(SITUATIONS)('%s: explain says so, and its step helps', async (what, reason, make, help) => {
  const name = what.toLowerCase().replaceAll(/[^a-z]+/g, '-')
  await make(name)
  const { next } = await first(name, reason)
  if (help) await help(name)
  else await world.perform(next?.command ?? 'false')
  await healthy(name)
})

it('a refused write is one problem, which names the next try', async () => {
  await create('refused', { mode: 'invalid' })
  const { findings } = await explainedAs(
    world,
    'site/refused',
    ({ findings: [first] }) => first?.reason === 'Invalid' && first.message.includes('the next try is in'),
  )
  expect(findings.filter(({ level }) => level === 'problem').map(({ reason }) => reason)).toEqual(['Invalid'])
})

it('a Deployment that waits for a pod is explained by the pod', async () => {
  const pods = { group: '', version: 'v1', resource: 'pods' }
  const pod = (name: string, labels: Record<string, string>) => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, labels },
    spec: { serviceAccountName: 'default', containers: [{ name: 'web', image: 'wbe' }] },
  })
  const waiting = { name: 'web', image: 'wbe', imageID: '', ready: false, restartCount: 0 }
  await create('stuck', { mode: 'deployment' })
  await first('stuck', 'OwnedProgressing')
  for (const [name, labels] of [
    ['stuck-1', { app: 'stuck' }],
    ['other-1', { app: 'other' }],
  ] as const) {
    await world.kube.create(resourcePath(pods, 'default'), pod(name, labels))
    const state = { waiting: { reason: 'ImagePullBackOff', message: `Back-off of ${name}` } }
    const status = { phase: 'Pending', containerStatuses: [{ ...waiting, state }] }
    await world.kube.patch(`${resourcePath(pods, 'default', name)}/status`, { status }, 'merge')
  }
  const { findings, next } = await first('stuck', 'OwnedFailed')
  expect(findings.filter(({ level }) => level === 'problem').map(({ message }) => message)).toEqual([
    'Deployment default/stuck cannot get ready: Pod stuck-1: web: ImagePullBackOff Back-off of stuck-1',
  ])
  expect(next?.command).toBe('kubectl describe pods stuck-1 -n default')
})

it('a healthy object has three lines', async () => {
  const { stdout, code } = await world.fairlead('fairlead explain site/a-right-is-missing')
  expect(stdout).toContain('its last recorded run ended')
  expect({ lines: stdout.trimEnd().split('\n').length, code }).toEqual({ lines: 3, code: 0 })
})

it('the key of an object that does not exist is an error, which tells where the name exists', async () => {
  const { stderr, code } = await world.fairlead('fairlead queue show site a-right-is-missing')
  expect({ stderr, code }).toEqual({
    stderr: 'fairlead: site a-right-is-missing: no such object; there is default/a-right-is-missing\n',
    code: 2,
  })
})

it.each([
  ['with both servers', []],
  ['without the API server', ['--kubeconfig', 'AWAY']],
])(
  'what an object retains is owned by it, a Secret too, whose annotations only the API server has: %s',
  async (what, args) => {
    const name = what.replaceAll(' ', '-').toLowerCase()
    await create(name, { mode: 'retained' })
    await healthy(name)
    const { stdout } = await world.fairlead(
      ['fairlead', ...args, `explain site/${name} -o json`].join(' ').replace('AWAY', await kubeconfigAway()),
    )
    const { reconcilers, findings } = JSON.parse(stdout) as Awaited<ReturnType<typeof explained>> & {
      reconcilers: object[]
    }
    expect(findings.map(({ reason }) => reason)).not.toContain('OwnedMissing')
    const kept = { name: `${name}-kept` }
    expect(reconcilers).toMatchObject([
      {
        owned: [
          { kind: 'ConfigMap', ...kept },
          { kind: 'Secret', ...kept },
        ],
      },
    ])
  },
)

it('a recorded run is replayed on the function as it is, and on another version of it', async () => {
  const run = await until(async () => {
    const { stdout } = await world.fairlead('fairlead runs ls site default/a-right-is-missing --result success -o json')
    return (JSON.parse(stdout) as { run: number }[]).at(-1)?.run ?? false
  })
  const same = await world.fairlead(`fairlead replay ${run} -f FILE`)
  expect(same).toMatchObject({ code: 0, stdout: expect.stringContaining('It decides as it did.') })
  const other = world.module.replace('.ts', '-other.ts')
  await writeFile(
    other,
    (await readFile(world.module, 'utf8')).replace('const status = { mode }', "const status = { mode: 'x' }"),
  )
  const differs = await world.fairlead(`fairlead replay ${run} -f ${other}`)
  expect(differs).toMatchObject({ code: 1, stdout: expect.stringContaining('~ .outcome.status.mode: "ok" → "x"') })
})

it('an edit of a related object is named as the cause of the run', async () => {
  const path = resourcePath(CONFIG_MAPS, 'default', 'settings')
  await world.kube.create(resourcePath(CONFIG_MAPS, 'default'), configMap('settings'))
  await create('caused', { mode: 'terminal', config: 'settings' })
  await first('caused', 'TerminalError')
  const edited = await world.kube.patch<KubeObject>(path, { data: { level: '2' } }, 'merge')
  const cause = `modified ConfigMap.v1 default/settings@${edited.metadata.resourceVersion}`
  const runs = async () => {
    const { stdout } = await world.fairlead('fairlead runs ls site default/caused -o json')
    return JSON.parse(stdout) as { run: number; causes?: string[] }[]
  }
  await until(async () => expect((await runs()).at(-1)?.causes).toEqual([cause]))
  const { stdout } = await world.fairlead(`fairlead runs show ${(await runs()).at(-1)?.run}`)
  expect(stdout).toContain(`Because:   ${cause.replace('.v1', '')}\n`)
  expect(stdout).toContain('What differs from the run before:\n  changed ConfigMap default/settings\n')
  const shown = await world.fairlead('fairlead explain site/caused')
  expect(shown.stdout).toContain(`because ${cause.replace('.v1', '')}`)
})

it('fields that another manager sets are named with that manager', async () => {
  await create('contested')
  await healthy('contested')
  const path = resourcePath(CONFIG_MAPS, 'default', 'contested')
  await world.kube.apply(
    path,
    { ...configMap('contested'), data: { mode: 'theirs' } },
    { fieldManager: 'other', force: true },
  )
  const is = ({ findings }: { findings: { reason: string }[] }) =>
    findings.some((one) => one.reason === 'FieldsTakenBack')
  const { findings } = await explainedAs(world, 'site/contested', is)
  expect(findings.find((one) => one.reason === 'FieldsTakenBack')?.message).toContain('other')
})

it('an object that is being deleted waits for its finalize, and then for others, and is gone', async () => {
  await create('going', { mode: 'stays' }, { finalizers: ['example.com/dns'] })
  await healthy('going')
  await world.kube.delete(resourcePath(SITES, 'default', 'going'))
  await first('going', 'Retrying')
  await correct('going')
  const { next } = await first('going', 'FinalizerOfOthers')
  expect(next?.say).toContain('example.com/dns')
  await patch('going', { metadata: { finalizers: null } })
  const gone = await world.fairlead('fairlead explain site/going')
  expect(gone).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('there is no Site going in the namespace default'),
  })
})

it('a finalizer of a Reconciler that is gone is taken away by the step', async () => {
  const path = resourcePath(CONFIG_MAPS, 'default')
  await world.kube.create(path, { ...configMap('held'), metadata: { name: 'held', finalizers: ['fairlead.dev/gone'] } })
  await world.kube.delete(`${path}/held`)
  const { next } = await explained(world, 'configmap/held')
  await world.perform(next?.command ?? 'false')
  await expect(world.kube.get(`${path}/held`)).rejects.toSatisfy(isNotFound)
})

it('an owned object leads to its owner', async () => {
  const { next } = await explained(world, 'cm/contested')
  expect(next?.command).toBe('fairlead explain site/contested -n default')
})

it('without NATS it tells what the API server knows, and says what it cannot know', async () => {
  const [port] = await freePorts(1)
  const { fairlead } = world
  const without = await fairlead(`fairlead --nats nats://127.0.0.1:${port} explain site/contested -o json`)
  const { findings, healthy: isHealthy } = JSON.parse(without.stdout) as Awaited<ReturnType<typeof explained>>
  expect({ isHealthy, reason: findings[0]?.reason }).toEqual({ isHealthy: false, reason: 'NatsAway' })
  expect(findings[0]?.message).toContain('queue, last run, servers and dead letters are not known')
})

it('without the API server it tells what NATS knows', async () => {
  const { stdout } = await world.fairlead(
    `fairlead --kubeconfig ${await kubeconfigAway()} explain site/contested -o json`,
  )
  const said = JSON.parse(stdout) as Awaited<ReturnType<typeof explained>> & { reconcilers: object[] }
  expect(said.findings[0]?.reason).toBe('ApiServerAway')
  expect(said.reconcilers).toMatchObject([{ name: 'site', served: 'yes', queue: [], owned: [{ name: 'contested' }] }])
})

it('a namespace that is being deleted is named, and what it waits for', async () => {
  await world.kube.create('/api/v1/namespaces', { metadata: { name: 'ending' } })
  await world.kube.create(resourcePath(SITES, 'ending'), {
    apiVersion: 'example.com/v1',
    kind: 'Site',
    metadata: { name: 'in-it' },
    spec: {},
  })
  await world.kube.delete('/api/v1/namespaces/ending')
  const { findings } = await explained(world, 'site/in-it -n ending')
  expect(findings[0]?.reason).toBe('NamespaceTerminating')
})

it('a definition that was deleted is installed again by the step', async () => {
  const crds = { group: 'apiextensions.k8s.io', version: 'v1', resource: 'customresourcedefinitions' }
  const definition = resourcePath(crds, undefined, 'sites.example.com')
  await patch('contested', { metadata: { finalizers: null } })
  await world.dispatcher.stop()
  const sites = await world.kube.list(resourcePath(SITES)).next()
  for (const { metadata } of (sites.value as { items: { metadata: { namespace: string; name: string } }[] }).items)
    await world.kube.patch(
      resourcePath(SITES, metadata.namespace, metadata.name),
      { metadata: { finalizers: null } },
      'merge',
    )
  await world.kube.delete(definition)
  await until(async () => world.kube.get(definition).then(() => false, isNotFound))
  const { next } = await explainedAs(world, 'site/contested', ({ findings }) => findings[0]?.reason === 'KindNotServed')
  await world.perform(next?.command ?? 'false')
  await world.dispatcher.start()
  await until(() =>
    create('contested').then(
      () => true,
      () => false,
    ),
  )
  await world.kube.delete(resourcePath(CONFIG_MAPS, 'default', 'contested')).catch(() => undefined)
  await healthy('contested')
})
