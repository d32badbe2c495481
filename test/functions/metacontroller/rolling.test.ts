import { expect, it } from 'vitest'
import { composite } from '#functions/metacontroller'
import { type KubeObject, kind, manifest, Pod, toInvoke } from '#sdk'
import { type Simulation, simulate } from '#testing'
import { startHttpReceiver } from '../../support/http-receiver.ts'
import { CATSETS, childOf, controllerOf, decisionOf, parentOf, SERVED } from './hooks.ts'

const REVISIONS = kind<{ parentPatch: object; children: { names: string[] }[] }>({
  group: 'metacontroller.k8s.io',
  version: 'v1alpha1',
  kind: 'ControllerRevision',
  plural: 'controllerrevisions',
})
type Method = 'RollingInPlace' | 'RollingRecreate'
const READY = { conditions: [{ type: 'Ready', status: 'True' }] }

interface Sent {
  parent: KubeObject & { spec: { image: string; names?: string[]; fails?: string } }
  children: Record<string, Record<string, KubeObject>>
}

const pod = (name: string, image: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name },
  spec: { containers: [{ name: 'c', image }] },
})

/** A hook that wants a pod for each name of the spec, with its image. */
async function startRolling() {
  const asked: Sent[] = []
  const hook = await startHttpReceiver(({ body, url }, response) => {
    const sent = JSON.parse(body.toString()) as Sent
    asked.push(sent)
    const { image, names = ['a', 'b', 'c'], fails } = sent.parent.spec
    if (fails !== undefined && fails === image) return void response.writeHead(500).end()
    const children = names.map((name) => pod(name, image))
    response.end(JSON.stringify({ children, status: { image }, finalized: url === '/finalize' && image === 'v2' }))
  })
  return { ...hook, asked }
}

const controlling = (url: string, method: Method, statusChecks: object = {}, spec: object = {}) =>
  controllerOf(url, {
    childResources: [{ apiVersion: 'v1', resource: 'pods', updateStrategy: { method, statusChecks } }],
    ...spec,
  })

const parent = parentOf({ spec: { image: 'v1' } })

async function worldOf(controller: KubeObject) {
  const world = simulate(composite(controller, SERVED), { objects: [parent, controller] })
  await world.runUntilIdle()
  return world
}

const imagesOf = (world: Simulation) =>
  world
    .list(Pod)
    .map(({ metadata, spec }) => `${metadata.name} ${spec?.containers[0]?.image}`)
    .sort()
const claimsOf = (world: Simulation) =>
  world
    .list(REVISIONS)
    .map(({ parentPatch, children }) => [parentPatch, children.flatMap(({ names }) => names)])
    .sort((one, other) => JSON.stringify(one[0]).localeCompare(JSON.stringify(other[0])))
const updatedIn = (world: Simulation) => {
  const { conditions = [] } = (world.object?.status ?? {}) as {
    conditions?: { type: string; reason: string; message: string }[]
  }
  const found = conditions.find(({ type }) => type === 'Updated')
  return `${found?.reason}: ${found?.message}`
}
const ready = (world: Simulation, name: string, status = 'True') =>
  world.patch(Pod, { status: { conditions: [{ type: 'Ready', status }] } }, name)

it.each(['RollingInPlace', 'RollingRecreate'] as const)(
  '%s changes one child in a pass, in the order of the answer, and ends with one revision',
  async (method) => {
    await using hook = await startRolling()
    const world = await worldOf(controlling(hook.url, method))
    const before = world.list(Pod).map(({ metadata }) => metadata.uid)
    expect(updatedIn(world)).toContain('OnLatestRevision')
    world.edit({ spec: { image: 'v2' } })
    await world.runUntilIdle()
    expect(imagesOf(world)).toEqual(['a v2', 'b v1', 'c v1'])
    expect(claimsOf(world)).toEqual([
      [{ spec: { image: 'v1' } }, ['b', 'c']],
      [{ spec: { image: 'v2' } }, ['a']],
    ])
    expect(updatedIn(world)).toBe('RolloutProgressing: updating Pod b')
    await world.advance(1)
    expect(imagesOf(world)).toEqual(['a v2', 'b v2', 'c v1'])
    await world.advance(1)
    expect(imagesOf(world)).toEqual(['a v2', 'b v2', 'c v2'])
    expect(claimsOf(world)).toEqual([[{ spec: { image: 'v2' } }, ['a', 'b', 'c']]])
    expect(updatedIn(world)).toContain('OnLatestRevision')
    const after = world.list(Pod).map(({ metadata }) => metadata.uid)
    expect(after.some((uid) => before.includes(uid))).toBe(method === 'RollingInPlace')
  },
)

it('a child changes only after the revision that has it is stored', async () => {
  await using hook = await startRolling()
  const world = await worldOf(controlling(hook.url, 'RollingInPlace'))
  const count = world.writes.length
  world.edit({ spec: { image: 'v2' } })
  await world.runUntilIdle()
  const written = world.writes.slice(count).map(({ object }) => object.kind)
  expect(written.lastIndexOf('ControllerRevision')).toBeLessThan(written.indexOf('Pod'))
})

it('the next child waits until those of the latest revision pass their status checks', async () => {
  await using hook = await startRolling()
  const world = await worldOf(controlling(hook.url, 'RollingInPlace', READY))
  for (const name of ['a', 'b', 'c']) ready(world, name)
  world.edit({ spec: { image: 'v2' } })
  await world.runUntilIdle()
  ready(world, 'a', 'False')
  await world.advance(60)
  expect(imagesOf(world)).toEqual(['a v2', 'b v1', 'c v1'])
  expect(updatedIn(world)).toBe(
    'RolloutWaiting: child Pod a fails its status check: the status of its condition Ready is False, not True',
  )
  ready(world, 'a')
  await world.advance(60)
  expect(imagesOf(world)).toEqual(['a v2', 'b v2', 'c v2'])
})

it('a child of RollingInPlace is not ready before its status is of its last spec', async () => {
  await using hook = await startRolling()
  const world = await worldOf(controlling(hook.url, 'RollingInPlace', {}))
  world.patch(Pod, { metadata: { generation: 2 }, status: { observedGeneration: 1 } }, 'a')
  world.edit({ spec: { image: 'v2' } })
  await world.advance(60)
  expect(imagesOf(world)).toEqual(['a v2', 'b v1', 'c v1'])
})

it('a field that the answer no longer has changes one child, too', async () => {
  await using hook = await startRolling()
  const world = await worldOf(controlling(hook.url, 'RollingInPlace'))
  world.edit({ spec: { image: null } })
  await world.runUntilIdle()
  expect(imagesOf(world)).toEqual(['a undefined', 'b v1', 'c v1'])
})

it('the hook is asked about each revision, with all children; what others change is set back by its revision', async () => {
  await using hook = await startRolling()
  const world = await worldOf(controlling(hook.url, 'RollingInPlace', READY))
  world.edit({ spec: { image: 'v2' } })
  await world.runUntilIdle()
  hook.asked.length = 0
  world.patch(Pod, { spec: { containers: [{ name: 'c', image: 'other' }] } }, 'c')
  await world.runUntilIdle()
  expect(imagesOf(world)).toEqual(['a v2', 'b v1', 'c v1'])
  expect(new Set(hook.asked.map(({ parent: { spec } }) => spec.image))).toEqual(new Set(['v1', 'v2']))
  expect(hook.asked.every(({ children }) => Object.keys(children['Pod.v1'] ?? {}).length === 3)).toBe(true)
})

it('a third revision goes on from both before it', async () => {
  await using hook = await startRolling()
  const world = await worldOf(controlling(hook.url, 'RollingInPlace', READY))
  world.edit({ spec: { image: 'v2' } })
  await world.runUntilIdle()
  world.edit({ spec: { image: 'v3' } })
  await world.runUntilIdle()
  expect(imagesOf(world)).toEqual(['a v3', 'b v1', 'c v1'])
  for (const name of ['a', 'b', 'c']) {
    ready(world, name)
    await world.advance(60)
  }
  expect(imagesOf(world)).toEqual(['a v3', 'b v3', 'c v3'])
  expect(claimsOf(world)).toEqual([[{ spec: { image: 'v3' } }, ['a', 'b', 'c']]])
})

it('the way back needs no write of children that have not moved', async () => {
  await using hook = await startRolling()
  const world = await worldOf(controlling(hook.url, 'RollingInPlace', READY))
  for (const name of ['a', 'b', 'c']) ready(world, name)
  world.edit({ spec: { image: 'v2' } })
  await world.runUntilIdle()
  const count = world.writes.length
  world.edit({ spec: { image: 'v1' } })
  await world.advance(60)
  expect(imagesOf(world)).toEqual(['a v1', 'b v1', 'c v1'])
  const pods = world.writes.slice(count).filter(({ object }) => object.kind === 'Pod')
  expect(new Set(pods.map(({ object }) => object.metadata.name))).toEqual(new Set(['a']))
})

it('children that come or go do not wait', async () => {
  await using hook = await startRolling()
  const world = await worldOf(controlling(hook.url, 'RollingInPlace', READY))
  world.edit({ spec: { image: 'v2', names: ['b', 'c', 'd'] } })
  await world.runUntilIdle()
  expect(imagesOf(world)).toEqual(['b v1', 'c v1', 'd v2'])
})

it('a failure of one revision stops all: nothing is written', async () => {
  await using hook = await startRolling()
  const world = await worldOf(controlling(hook.url, 'RollingInPlace', READY))
  world.edit({ spec: { image: 'v2' } })
  await world.runUntilIdle()
  const count = world.writes.filter(({ object }) => object.kind !== 'CatSet').length
  world.edit({ spec: { image: 'v3', fails: 'v3' } })
  await expect(world.runUntilIdle()).rejects.toThrow('answered 500')
  expect(world.writes.filter(({ object }) => object.kind !== 'CatSet')).toHaveLength(count)
})

it('only the fields of revisionHistory make a revision', async () => {
  await using hook = await startRolling()
  const parentResource = { ...CATSETS, revisionHistory: { fieldPaths: ['spec.image', 'spec.none'] } }
  const world = await worldOf(controlling(hook.url, 'RollingInPlace', READY, { parentResource }))
  world.edit({ spec: { other: true } })
  await world.runUntilIdle()
  expect(claimsOf(world)).toEqual([[{ spec: { image: 'v1' } }, ['a', 'b', 'c']]])
})

it('a parent is finalized when all its revisions are', async () => {
  await using hook = await startRolling()
  const finalize = { webhook: { url: `${hook.url}/finalize` } }
  const hooks = { sync: { webhook: { url: hook.url } }, finalize }
  const world = await worldOf(controlling(hook.url, 'RollingInPlace', READY, { hooks }))
  world.edit({ spec: { image: 'v2' } })
  await world.runUntilIdle()
  world.delete()
  await world.runUntilIdle()
  expect(world.object).toBeDefined()
  for (const name of ['a', 'b']) {
    ready(world, name)
    await world.advance(60)
  }
  expect(world.object).toBeUndefined()
})

it('revisions that are not handed over stop the parent: its children would all change at once', async () => {
  await using hook = await startRolling()
  const theirs = childOf(parent, {
    apiVersion: 'metacontroller.k8s.io/v1alpha1',
    kind: 'ControllerRevision',
    metadata: { name: 'theirs' },
  })
  const controller = controlling(hook.url, 'RollingInPlace')
  const related = {
    'CompositeController.v1alpha1.metacontroller.k8s.io': [controller],
    'ControllerRevision.v1alpha1.metacontroller.k8s.io': [theirs],
    'Pod.v1': [],
  }
  const input = { object: parent, owned: {}, related, attempt: 0, now: '2030-01-01T00:00:00Z', finalizing: false }
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  const { signal } = new AbortController()
  const outcome = toInvoke(composite(controller, SERVED))(input, { log, signal })
  await expect(outcome).rejects.toMatchObject({ reason: 'NotHandedOver' })
  expect(hook.received).toEqual([])
})

it('a parent without a namespace is refused: revisions are in one', async () => {
  await using hook = await startRolling()
  const controller = controlling(hook.url, 'RollingInPlace', {}, { parentResource: { ...CATSETS, resource: 'cages' } })
  const cage = parentOf({ kind: 'Cage' }, { name: 'cage', namespace: undefined })
  await expect(decisionOf(controller, cage)).rejects.toMatchObject({ reason: 'RevisionsNeedNamespace' })
})

it('the Reconciler owns revisions', () => {
  const { owns } = manifest(composite(controlling('http://hook', 'RollingRecreate'), SERVED)).spec
  expect(owns.map(({ resource, strategy }) => [resource, strategy])).toEqual([
    ['pods', 'CreateOnly'],
    ['controllerrevisions', 'Apply'],
  ])
})
