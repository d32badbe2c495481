import { ConfigMap, Namespace, Pod, ResourceQuota, RoleBinding } from 'fairlead'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { resourcePath } from '#kube'
import { Workspace } from '../../docs/examples/workspace/resource.ts'
import { overlaps } from '../support/runs.ts'
import { PATIENCE_MS } from './chaos.ts'
import { LimitRange } from './workspace-upgraded.ts'
import { restart, startWorkspaces, until, type Workspaces } from './workspaces.ts'

const SAID =
  /^without admins: cannot apply RoleBinding new\/admins: system:serviceaccount:fairlead-system:fairlead-workspace would grant rights that it does not have: [^\n]+ and \d+ more\. Add \{ kind: 'ClusterRole', name: 'admin' \} to "binds"/

let world: Workspaces
beforeAll(async () => {
  world = await startWorkspaces()
})
afterAll(() => world?.[Symbol.asyncDispose]())

const waitForReady = (name: string, seconds: number) =>
  world.kubectl(['wait', '--for=condition=Ready', `workspace/${name}`, `--timeout=${seconds}s`])
const secondsSince = (time = '') => Math.ceil((Date.now() - Date.parse(time)) / 1000)
/** Its timer is set now, and fires in so many seconds. */
async function expireIn(name: string, seconds: number): Promise<void> {
  const { creationTimestamp } = (await world.get(Workspace, name))?.metadata ?? {}
  await world.patch(Workspace, name, { spec: { expiresAfterSeconds: secondsSince(creationTimestamp) + seconds } })
}

describe('forbidden: a Workspace whose RoleBinding its account may not write', () => {
  it('has everything else, the status of its function, and is not ready', async () => {
    const allow = await world.forbid('bind')
    await world.create('new')
    await world.untilProblem('new', 'Forbidden')
    const { RoleBinding: refused, ...others } = await world.partsOf('new')
    expect([refused, ...Object.values(others)]).toEqual([undefined, ...Array(4).fill(expect.any(String))])
    expect(await world.statusOf('new')).toMatchObject({ phase: 'Pending', observedGeneration: 1 })
    expect((await world.condition('new', 'Ready'))?.message).toMatch(SAID)
    await expect(waitForReady('new', 1)).rejects.toThrow('timed out')

    await world.patch(Workspace, 'new', { spec: { quota: { pods: '30' } } })
    await until(async () => JSON.stringify(await world.get(ResourceQuota, 'limits', 'new')).includes('"pods":"30"'))
    await until(async () => (await world.condition('new', 'Ready'))?.observedGeneration === 2)
    expect(await world.condition('new', 'Ready')).toMatchObject({ status: 'False', reason: 'Forbidden' })

    await allow()
    await waitForReady('new', 240)
    expect(await world.statusOf('new')).toMatchObject({ phase: 'Active' })
    expect(await world.partsOf('new')).toEqual({ ...others, RoleBinding: expect.any(String) })
  })

  it('is not ready any more when the right is gone and the RoleBinding was deleted', async () => {
    const allow = await world.forbid('rolebindings')
    await world.delete(RoleBinding, 'admins', 'new')
    await world.untilProblem('new', 'Forbidden')
    await expect(waitForReady('new', 1)).rejects.toThrow('timed out')
    await allow()
    await waitForReady('new', 240)
  })

  it('says that its namespace is being deleted, and makes a new one when it is gone', async () => {
    const held = { metadata: { name: 'held', finalizers: ['example.com/held'] } }
    await world.kube.create(resourcePath(ConfigMap, 'new'), held)
    const before = await world.partsOf('new')
    await world.delete(Namespace, 'new')
    await until(async () => (await world.condition('new', 'Reconciled'))?.reason === 'NamespaceTerminating')
    expect(await world.condition('new', 'Ready')).toMatchObject({ status: 'False' })
    await world.patch(ConfigMap, 'held', { metadata: { finalizers: null } }, 'new')
    await until(async () => (await world.get(Namespace, 'new'))?.metadata.uid !== before['Namespace'])
    await world.untilReady('new', 'Active')
  })
})

it('taken: a Workspace whose namespace is somebody else’s has a status, and writes nothing into that namespace', async () => {
  await world.kube.create('/api/v1/namespaces', { metadata: { name: 'taken' } })
  await world.create('taken')
  await world.untilProblem('taken', 'NameTaken')
  expect(await world.statusOf('taken')).toMatchObject({ phase: 'Pending', observedGeneration: 1 })
  expect((await world.condition('taken', 'Ready'))?.message).toMatch(/^without taken: Namespace taken exists/)
  const { Namespace: _, ...inside } = await world.partsOf('taken')
  expect(Object.values(inside)).toEqual([undefined, undefined, undefined, undefined])
})

it('refused: a Workspace whose name no namespace can have', async () => {
  await expect(world.create('a.b')).rejects.toThrow('a namespace cannot have this name')
})

it('expired and retained: it is deleted by its timer when its last pod has ended, and its record stays', async () => {
  await world.create('short')
  await world.untilReady('short', 'Active')
  const pod = Pod.of({
    metadata: { name: 'job' },
    spec: { schedulerName: 'nobody', containers: [{ name: 'c', image: 'c' }] },
  })
  await until(() => world.kube.create(resourcePath(Pod, 'short'), pod))
  await until(async () => (await world.statusOf('short'))?.runningPods === 1)
  await expireIn('short', 1)
  await world.untilProblem('short', 'PodsRunning')
  expect((await world.get(Namespace, 'short'))?.metadata).not.toHaveProperty('deletionTimestamp')
  await world.kube.patch(resourcePath(Pod, 'short', 'job', 'status'), { status: { phase: 'Succeeded' } }, 'merge')
  await world.untilGone(Workspace, 'short')
  await world.untilGone(Namespace, 'short')
  expect(await world.recordsOf('short')).toEqual(['short'])
})

it('archived: it is read-only, and its namespace outlives it, which no other Workspace gets', async () => {
  await world.create('old', { onExpiry: 'Archive' })
  await world.untilReady('old', 'Active')
  const before = await world.partsOf('old')
  await expireIn('old', 1)
  await world.untilReady('old', 'Archived')
  const archived = await world.partsOf('old', 'views')
  expect(archived).toEqual({ ...before, RoleBinding: expect.any(String) })
  expect(await world.get(RoleBinding, 'admins', 'old')).toBeUndefined()
  expect((await world.get(ResourceQuota, 'limits', 'old'))?.['spec']).toEqual({ hard: { pods: '0' } })

  await world.delete(Workspace, 'old')
  await world.untilGone(Workspace, 'old')
  expect(await world.recordsOf('old')).toEqual(['old'])
  await world.create('old')
  await world.untilProblem('old', 'NameTaken')
  expect(await world.partsOf('old', 'views')).toEqual(archived)
})

it(
  'while every process is killed, nothing is lost and nothing is doubled',
  async () => {
    const names = Array.from({ length: 6 }, (_, index) => `k${index}`)
    const [archived, expiring, deleted] = [names.slice(0, 2), names.slice(2, 4), names.slice(4)]
    const all = <T>(some: string[], what: (name: string) => Promise<T>) => Promise.all(some.map(what))
    const [one, other] = world.replicas.map((replica) => () => restart(replica))
    const [nats, apiServer] = ['nats', 'kube-apiserver'].map((server) => () => world.cluster.restart(server))
    const runs = () => world.replicas.flatMap((replica) => replica.runs())
    /** Kills one after the other, from the first run that begins after the change. */
    async function during(change: Promise<unknown>, kills: ((() => Promise<void>) | undefined)[]): Promise<void> {
      const before = runs().length
      const killed = until(() => runs().length > before).then(async () => {
        for (const kill of kills) await kill?.()
      })
      await Promise.all([change, killed])
    }

    const create = (name: string) => world.create(name, { onExpiry: archived.includes(name) ? 'Archive' : 'Delete' })
    await during(all(names, create), [one, nats, other])
    await all(names, (name) => world.untilReady(name, 'Active'))
    const before = await all(names, (name) => world.partsOf(name))

    const edit = (name: string) => world.patch(Workspace, name, { spec: { quota: { services: '7' } } })
    const change = async (name: string) => {
      await edit(name)
      if (!deleted.includes(name)) await expireIn(name, 2)
    }
    await during(all(names, change), [apiServer, one, other])
    const isEdited = async (name: string) =>
      JSON.stringify(await world.get(ResourceQuota, 'limits', name)).includes('"services":"7"')
    await all([...archived, ...deleted], (name) => until(() => isEdited(name)))
    expect(await all(deleted, (name) => world.partsOf(name))).toEqual(before.slice(4))

    await during(
      all(deleted, (name) => world.delete(Workspace, name)),
      [nats, one],
    )
    for (const kind of [Workspace, Namespace])
      await all([...expiring, ...deleted], (name) => world.untilGone(kind, name))
    await all(archived, (name) => world.untilReady(name, 'Archived'))

    expect(await world.recordsOf('k')).toEqual([...expiring, ...deleted])
    const left = await all(archived, (name) => world.partsOf(name, 'views'))
    expect(left).toEqual(before.slice(0, 2).map((parts) => ({ ...parts, RoleBinding: expect.any(String) })))
    const creations = await world.creationsIn('k')
    expect(creations.length).toBeGreaterThanOrEqual(5 * names.length)
    expect(creations.filter((count) => count !== 1)).toEqual([])
    expect(overlaps(runs())).toEqual([])
  },
  PATIENCE_MS,
)

it('upgraded: a revision that makes one more object adds it, and keeps the others', async () => {
  await world.create('upgraded')
  await world.untilReady('upgraded', 'Active')
  const before = await world.partsOf('upgraded')
  await world.upgrade()
  // Its first answer is how Fairlead learns of a revision.
  await world.create('later')
  await until(async () => (await world.get(LimitRange, 'containers', 'upgraded')) !== undefined)
  await world.untilReady('upgraded', 'Active')
  expect(await world.partsOf('upgraded')).toEqual(before)
})
