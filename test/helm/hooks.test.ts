import { mkdtemp, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ConfigMap, Deployment, Job, type KubeObject, type Reconciler } from '#sdk'
import { deploymentsRun, jobsRun, lawsOf, outcomeOf, type Simulation, simulate } from '#testing'
import { type ChartFiles, functionOf, helm, WEB, web } from './charts.ts'

const ANNOTATIONS = 'helm.sdk.operatorframework.io/'
const job = (name: string, hook: string, others = '') => `
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-${name}
  annotations: {helm.sh/hook: "${hook}"${others}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "registry.example.com/job:{{ .Values.image.tag }}"}]
`
const HOOKED: ChartFiles = {
  ...WEB,
  'templates/first.yaml': job('first', 'pre-install,pre-upgrade', ', helm.sh/hook-weight: "-5"'),
  'templates/second.yaml': job(
    'second',
    'pre-install',
    ', helm.sh/hook-delete-policy: "before-hook-creation,hook-succeeded"',
  ),
  'templates/after.yaml': job('after', 'post-install,post-upgrade'),
  'templates/last.yaml': job('last', 'pre-delete'),
  'templates/settings.yaml': `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, annotations: {helm.sh/hook: pre-install, helm.sh/hook-weight: "-9"}}
`,
}

/** Names without the mark of the release. */
const plain = (name: string) => name.replace(/-[0-9a-f]{8}$/, '')
const jobsIn = (world: Simulation) => world.list(Job).map(({ metadata }) => plain(metadata.name))
/** The objects in the order in which they were made and deleted. */
const wayOf = (world: Simulation, from = 0) =>
  world.writes
    .slice(from)
    .flatMap(({ verb, object }) =>
      ['create', 'apply', 'delete'].includes(verb) && object.kind !== 'Web'
        ? `${verb === 'delete' ? '-' : ''}${plain(object.metadata.name)}`
        : [],
    )
const conditions = (world: Simulation) =>
  (
    (world.object?.status as { conditions?: { type: string; status: string; reason: string; message?: string }[] })
      ?.conditions ?? []
  ).map(({ type, reason, message = '' }) => `${type} ${reason} ${message}`.trim())

const cluster = [jobsRun({ seconds: 30 }), deploymentsRun] as const
const worldOf = (one: Reconciler, object: KubeObject) => simulate(one, { objects: [object], cluster })
async function pass(world: Simulation, seconds = 600) {
  await world.runUntilIdle()
  await world.advance(seconds)
}

describe('hooks of a chart', () => {
  it('run one after the other by weight, before the objects and when these are ready, and an upgrade has its own', async () => {
    const world = worldOf(await functionOf(HOOKED), web())
    await world.runUntilIdle()
    expect(wayOf(world)).toEqual(['settings', 'a-first'])
    expect(conditions(world)).toEqual([
      expect.stringMatching(
        /^Initialized Initialized waits for Job a-first-\w{8}: it is not complete yet \(stage 2 of 5\)$/,
      ),
    ])
    await pass(world)
    expect(wayOf(world)).toEqual(['settings', 'a-first', 'a-second', 'a-config', 'a', 'a-after', '-a-second'])
    expect(conditions(world)).toContain('Deployed InstallSuccessful a has 1 replicas.')
    expect(jobsIn(world).sort()).toEqual(['a-after', 'a-first'])
    const from = world.writes.length
    world.edit({ spec: { replicas: 2 } })
    await pass(world)
    expect(wayOf(world, from).slice(0, 3)).toEqual(['a-first', 'a', 'a-after'])
    expect(wayOf(world, from).slice(3).sort()).toEqual(['-a-after', '-a-first'])
    expect(world.list(Job).length).toBe(2)
    expect(conditions(world)).toContain('Deployed UpgradeSuccessful a has 2 replicas.')
  })

  it('run once for a release, although their Jobs are deleted', async () => {
    const world = worldOf(await functionOf(HOOKED), web())
    await pass(world, 40)
    expect(jobsIn(world)).toEqual(['a-first', 'a-second'])
    world.delete(Job)
    await pass(world)
    expect(wayOf(world).filter((one) => one === 'a-first').length).toBe(1)
    const from = world.writes.length
    for (const { metadata } of world.list(Job)) world.delete(Job, metadata.name)
    await pass(world)
    expect(wayOf(world, from)).toEqual([])
  })

  it('have the same name in another process, which draws other values', async () => {
    const files = {
      ...HOOKED,
      'templates/id.yaml': 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: id}\ndata: {id: {{ uuidv4 }}}\n',
    }
    // By another path, so that it does not share what was rendered.
    const other = join(await mkdtemp(join(tmpdir(), 'fl-helm-')), 'helm')
    await symlink(helm, other)
    const jobIn = async (one: Reconciler) => {
      const world = worldOf(one, web())
      await pass(world)
      const id = world.list(ConfigMap).find(({ metadata }) => metadata.name === 'id')?.data?.['id']
      return { id, jobs: world.list(Job).map(({ metadata }) => metadata.name) }
    }
    const [first, second] = [
      await jobIn(await functionOf(files)),
      await jobIn(await functionOf(files, {}, { helm: other })),
    ]
    expect(first.id).not.toBe(second.id)
    expect(first.jobs).toEqual(second.jobs)
  })

  it('that fail stop the release, and are named', async () => {
    const world = worldOf(await functionOf(HOOKED), web())
    await world.runUntilIdle()
    const [failing] = world.list(Job)
    world.patch(
      Job,
      { status: { conditions: [{ type: 'Failed', status: 'True', reason: 'BackoffLimitExceeded' }] } },
      failing?.metadata.name,
    )
    await pass(world)
    expect(conditions(world)).toContainEqual(
      expect.stringMatching(
        /^ReleaseFailed InstallError waits for Job a-first-\w{8}: it has failed: BackoffLimitExceeded/,
      ),
    )
    expect(world.list(Deployment)).toEqual([])
    world.delete(Job)
    await pass(world)
    expect(conditions(world)).toContain('Deployed InstallSuccessful a has 1 replicas.')
  })

  it('before the deletion run once, while the objects are there', async () => {
    const world = worldOf(await functionOf(HOOKED), web())
    await pass(world)
    const from = world.writes.length
    world.delete()
    await world.runUntilIdle()
    expect([wayOf(world, from), world.list(Deployment).length]).toEqual([['a-last'], 1])
    await pass(world)
    expect(world.object).toBeUndefined()
  })

  const AWAY =
    'kubectl annotate webs.demo.example.com a -n shop helm.sdk.operatorframework.io/uninstall-disable-hooks=true'
  it('before the deletion that are refused keep the object, and the condition names them and the way out', async () => {
    const world = worldOf(await functionOf(HOOKED), web())
    await pass(world)
    world.refuse(Job)
    world.delete()
    await pass(world, 3600)
    expect(conditions(world).join()).toMatch(/ReleaseFailed UninstallError Job a-last-\w{8}: /)
    expect(conditions(world).join()).toContain(AWAY)
    world.admit(Job)
    await pass(world)
    expect([world.object, jobsIn(world).includes('a-last')]).toEqual([undefined, false])
  })

  it('before the deletion that do not end are named after five minutes, and left out with the annotation', async () => {
    const status = { deployedRelease: { name: 'a' } }
    const stuck = simulate(await functionOf(HOOKED), { objects: [{ ...web(), status }], cluster: deploymentsRun })
    await pass(stuck)
    stuck.delete()
    await pass(stuck, 200)
    expect(conditions(stuck).join()).not.toContain('ReleaseFailed')
    await pass(stuck, 200)
    expect(conditions(stuck).join()).toMatch(
      /ReleaseFailed UninstallError waits for Job a-last-\w{8}: it is not complete/,
    )
    expect(conditions(stuck).join()).toContain(AWAY)
    stuck.edit({ metadata: { annotations: { [`${ANNOTATIONS}uninstall-disable-hooks`]: 'true' } } })
    await pass(stuck)
    expect(stuck.object).toBeUndefined()
  })

  const going = (hooks: object, after = 3600) => {
    const metadata = {
      ...web().metadata,
      uid: 'u',
      deletionTimestamp: '2030-01-01T00:00:00Z',
      finalizers: ['fairlead.dev/web-demo-example-com'],
    }
    const deployedRelease = { name: 'a', digest: 'd' }
    const object = { ...web(), metadata, status: { deployedRelease, ...hooks } }
    return { object, now: new Date(Date.parse(metadata.deletionTimestamp) + after * 1000) }
  }
  it('before the deletion begin whenever a process comes back, and are given up if they cannot be made for five minutes', async () => {
    const one = await functionOf(HOOKED)
    const first = await outcomeOf(one, going({}))
    expect(first).toMatchObject({
      status: { hooks: { digest: 'u', done: [], missingSince: '2030-01-01T01:00:00.000Z' } },
    })
    const since = (seconds: number) => {
      const missingSince = new Date(Date.parse('2030-01-01T01:00:00Z') - seconds * 1000).toISOString()
      return outcomeOf(one, going({ hooks: { digest: 'u', done: [], missingSince } }))
    }
    expect((await since(10)).apply?.map(({ kind }) => kind)).toEqual(['Job'])
    expect(await since(301)).toEqual({})
  })

  it('have no time to live, so that one that is deleted as soon as it is complete does not run twice', async () => {
    const files = {
      ...HOOKED,
      'templates/first.yaml': job('first', 'pre-install').replace('spec:', 'spec:\n  ttlSecondsAfterFinished: 0'),
    }
    const world = worldOf(await functionOf(files), web())
    await world.runUntilIdle()
    expect(
      world.list(Job).map(({ spec }) => (spec as object | undefined) && 'ttlSecondsAfterFinished' in (spec ?? {})),
    ).toEqual([false])
  })

  it.each([
    ['install', ['a-config', 'a']],
    ['upgrade', ['a']],
    ['uninstall', []],
  ])('are left out with the annotation %s-disable-hooks', async (event, way) => {
    const world = worldOf(await functionOf(HOOKED), web({}, { [`${ANNOTATIONS}${event}-disable-hooks`]: 'true' }))
    if (event !== 'install') await pass(world)
    const from = world.writes.length
    if (event === 'upgrade') world.edit({ spec: { replicas: 2 } })
    if (event === 'uninstall') world.delete()
    await pass(world)
    expect(wayOf(world, from).filter((one) => !one.startsWith('-'))).toEqual(way)
  })

  it('of tests and rollbacks are not made', async () => {
    const files = {
      ...WEB,
      'templates/t.yaml': job('t', 'test'),
      'templates/r.yaml': job('r', 'pre-rollback,post-rollback'),
    }
    const world = worldOf(await functionOf(files), web())
    await pass(world)
    expect(wayOf(world)).toEqual(['a-config', 'a'])
  })

  it('do not run for a release that another operator has deployed', async () => {
    const deployedRelease = { name: 'a', manifest: 'as operator-sdk writes it' }
    const world = worldOf(await functionOf(HOOKED), { ...web(), status: { deployedRelease } })
    await pass(world)
    expect(wayOf(world)).toEqual(['a-config', 'a'])
    expect(world.list(ConfigMap).length).toBe(1)
  })
})

describe('a release with hooks keeps the laws', async () => {
  const scenario = {
    objects: [web()],
    cluster,
    finalizeSeconds: Number.POSITIVE_INFINITY,
    steps: [
      ['an hour passes', (world: Simulation) => world.advance(3600)],
      ['the spec changes', (world: Simulation) => world.edit({ spec: { image: { tag: '2' } } })],
      ['an object is deleted', (world: Simulation) => world.delete(ConfigMap, 'a-config')],
    ],
  } as const
  it.each(lawsOf(await functionOf(HOOKED), scenario as never))('%s', (_, holds) => holds())
})
