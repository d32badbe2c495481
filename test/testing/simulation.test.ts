import { isDeepStrictEqual } from 'node:util'
import { describe, expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import type { KubeObject } from '#contracts'
import {
  ConfigMap,
  defaultFrom,
  fieldsOf,
  immutable,
  Node,
  notDeletedWhile,
  onlyGroups,
  Pod,
  type ReconcileOutcome,
  RetryAfterError,
  type Run,
  reconciler,
  resource,
  Secret,
  setOnce,
} from '#sdk'
import { lawsOf, outcomeOf, ownedBy, type Scenario, type Simulation, simulate } from '#testing'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({ data: z.record(z.string(), z.string()).optional(), due: z.string().optional() }),
  status: z.object({ phase: z.string() }),
})
const owns = [ConfigMap, Secret] as const
type ShopRun = Run<typeof Shop, (typeof owns)[number], never>

const shopThat = (reconcile: (run: ShopRun) => ReconcileOutcome<{ phase: string }> | undefined) =>
  reconciler({ name: 'shop', for: Shop, owns, reconcile })
const corner = (spec: Parameters<typeof Shop.of>[0]['spec'] = {}): KubeObject =>
  Shop.of({ metadata: { name: 'corner', namespace: 'default' }, spec })
const config = (data: Record<string, string> = {}) => ConfigMap.of({ metadata: { name: 'map' }, data })

const mapped = ({ object: { spec } }: Pick<ShopRun, 'object'>) => ({ apply: spec.data ? [config(spec.data)] : [] })
const mapper = shopThat(mapped)
const dataOf = (world: Simulation) => world.list(ConfigMap).map(({ data }) => data)

describe('one decision, as a table row', () => {
  const counter = shopThat(({ owned, now, attempt }) => ({
    status: { phase: `${owned(ConfigMap).length} ${now.toISOString()} ${attempt}` },
  }))

  it('sees the given objects as a dispatcher would show them', async () => {
    const own = ownedBy(corner(), config())
    const other = { ...own, metadata: { ...own.metadata, ownerReferences: [] } }
    const given = { object: corner(), others: [own, other], now: '2030-01-01T01:00:00+01:00', attempt: 3 }
    expect(await outcomeOf(counter, given)).toEqual({ status: { phase: '1 2030-01-01T00:00:00.000Z 3' } })
  })

  it('does not see what another creator has made for the same object', async () => {
    const others = [ownedBy(corner(), config(), 'some-controller')]
    expect(await outcomeOf(counter, { object: corner(), others })).toMatchObject({ status: { phase: /^0 / } })
  })

  it('sees Secrets as the API server keeps them', async () => {
    const reader = shopThat(({ owned }) => ({
      status: { phase: JSON.stringify(owned(Secret)[0]?.data) },
    }))
    const secret = ownedBy(corner(), Secret.of({ metadata: { name: 's' }, stringData: { a: 'b' } }))
    expect(await outcomeOf(reader, { object: corner(), others: [secret] })).toEqual({
      status: { phase: '{"a":"Yg=="}' },
    })
  })

  it('is told of refusals, of no kind that it does not own', async () => {
    const unsure = shopThat(({ refused }) => ({
      status: {
        phase: refused(ConfigMap)
          .map(({ name, reason }) => `${name} ${reason}`)
          .join(),
      },
    }))
    const refused = [{ kind: ConfigMap, name: 'map', namespace: 'default', reason: 'Forbidden' }]
    expect(await outcomeOf(unsure, { object: corner(), refused })).toEqual({ status: { phase: 'map Forbidden' } })
    expect(await outcomeOf(unsure, { object: corner() })).toEqual({ status: { phase: '' } })
    const wrong = shopThat(({ refused }) => ({ status: { phase: `${refused(Pod).length}` } }))
    await expect(outcomeOf(wrong, { object: corner(), refused })).rejects.toMatchObject({ reason: 'UndeclaredKind' })
  })

  it('is of an object that is created at that time, unless it says otherwise', async () => {
    const ageing = shopThat(({ object: { metadata }, now }) => ({
      status: { phase: `${(now.getTime() - Date.parse(metadata.creationTimestamp ?? '')) / 1000} s` },
    }))
    const now = '2030-01-01T01:00:00Z'
    expect(await outcomeOf(ageing, { object: corner(), now })).toEqual({ status: { phase: '0 s' } })
    const { metadata, ...others } = corner()
    const old = { ...others, metadata: { ...metadata, creationTimestamp: '2030-01-01T00:00:00Z' } }
    expect(await outcomeOf(ageing, { object: old, now })).toEqual({ status: { phase: '3600 s' } })
  })

  it('is of an object that a run would call the function with: one that goes has the finalizer', async () => {
    const going = (finalizers: string[] = []) => {
      const shop = corner()
      return { ...shop, metadata: { ...shop.metadata, deletionTimestamp: '2030-01-01T00:00:00Z', finalizers } }
    }
    const reconcile = () => undefined
    const closing = reconciler({
      name: 'shop',
      for: Shop,
      reconcile,
      finalize: () => ({ status: { phase: 'Closing' } }),
    })
    await expect(outcomeOf(closing, { object: going() })).rejects.toThrow(
      "Shop.example.com default/corner has a deletionTimestamp without the finalizer fairlead.dev/shop, and no run calls the function for it: give it metadata.finalizers: ['fairlead.dev/shop']",
    )
    const closed = { status: { phase: 'Closing' } }
    expect(await outcomeOf(closing, { object: going(['fairlead.dev/shop']) })).toEqual(closed)
    expect(await outcomeOf(closing, { object: going(), finalizing: true })).toEqual(closed)
    expect(await outcomeOf(mapper, { object: going() })).toEqual({})
  })

  it('is rejected with what the function throws', async () => {
    const failing = shopThat(() => {
      throw new RetryAfterError('closed', { afterSeconds: 9 })
    })
    await expect(outcomeOf(failing, { object: corner() })).rejects.toMatchObject({ afterSeconds: 9 })
  })
})

describe('a secret that is drawn', () => {
  const drawing = (isKept: boolean) =>
    shopThat(({ owned, object: { spec }, secret }) => {
      const stored = isKept ? owned(Secret)[0]?.data?.['key'] : undefined
      const key = Secret.of({ metadata: { name: 'key' }, data: { key: stored ?? btoa(secret('key')) } })
      return { apply: [key, config(spec.data)] }
    })
  const started = async (isKept: boolean) => {
    const world = simulate(drawing(isKept), { objects: [corner()] })
    await world.run()
    return world
  }
  const keyOf = (world: Simulation) => world.list(Secret)[0]?.data?.['key']

  it('is another one in the next run of a simulation, unless the function reads it back', async () => {
    for (const isKept of [true, false]) {
      const world = await started(isKept)
      const [before, copy] = [keyOf(world), world.copy()]
      for (const one of [world, copy]) {
        one.edit({ spec: { data: { a: 'b' } } })
        await one.run()
      }
      expect(keyOf(world) === before).toBe(isKept)
      expect(keyOf(copy)).toBe(keyOf(world))
      expect(keyOf(await started(isKept))).toBe(before)
    }
  })

  it('is never at rest, if each run makes it anew', async () => {
    const world = await started(false)
    await expect(world.runUntilIdle()).rejects.toThrow('shop never becomes idle')
  })

  it('is the same for the same decision, and another one after its own write', async () => {
    const keyAfter = async (isKept: boolean, others: KubeObject[]) => {
      const { apply } = await outcomeOf(drawing(isKept), { object: corner(), others })
      return apply?.find(({ kind }) => kind === 'Secret')
    }
    for (const isKept of [true, false]) {
      const first = await keyAfter(isKept, [])
      expect(await keyAfter(isKept, [])).toEqual(first)
      const again = await keyAfter(isKept, [ownedBy(corner(), first!)])
      expect(isDeepStrictEqual(again, first)).toBe(isKept)
    }
  })
})

describe('a simulated cluster', () => {
  it('prunes nothing that another creator has made for the same object, and leaves it its name', async () => {
    const foreign = ownedBy(corner(), config({ theirs: 'yes' }), 'some-controller')
    const world = simulate(mapper, { objects: [corner(), foreign] })
    await world.runUntilIdle()
    expect(dataOf(world)).toEqual([{ theirs: 'yes' }])
    world.edit({ spec: { data: { a: '1' } } })
    await world.runUntilIdle()
    expect(dataOf(world)).toEqual([{ theirs: 'yes' }])
    expect(world.failure?.message).toContain('ConfigMap default/map exists, but Reconciler some-controller created it')
  })

  it('renamed, with the identity of the former name, goes on with what that has made', async () => {
    const owns = [ConfigMap] as const
    const renamed = reconciler({ name: 'renamed', identity: 'shop', for: Shop, owns, reconcile: () => ({ apply: [] }) })
    const world = simulate(renamed, { objects: [corner(), ownedBy(corner(), config(), 'shop')] })
    await world.runUntilIdle()
    expect(dataOf(world)).toEqual([])
  })

  it('keeps what others set, takes away what is no longer wanted, and prunes', async () => {
    const world = simulate(mapper, { objects: [corner({ data: { a: '1', b: '2' } })] })
    await world.runUntilIdle()
    world.patch(ConfigMap, { data: { theirs: 'x' } })
    world.edit({ spec: { data: { b: null } } })
    await world.runUntilIdle()
    expect(dataOf(world)).toEqual([{ a: '1', theirs: 'x' }])
    world.edit({ spec: { data: null } })
    await world.runUntilIdle()
    expect(dataOf(world)).toEqual([])
    expect(world.writes.map(({ verb }) => verb)).toEqual(['apply', 'apply', 'delete'])
  })

  it('shows the function what its run has written, among the related objects too', async () => {
    const Labelled = { ...ConfigMap, selector: 'shop' } as const
    const seen = new Set<string>()
    const shop = reconciler({
      name: 'shop',
      for: Shop,
      owns,
      related: [Labelled, Node],
      patches: [Node],
      reconcile({ owned, related }) {
        const names = related(Labelled).map(({ metadata }) => metadata.name)
        seen.add(`${owned(ConfigMap).length} ${names} ${related(Node)[0]?.spec?.unschedulable}`)
        const map = ConfigMap.of({ metadata: { name: 'map', labels: { shop: 'corner' } }, data: {} })
        return {
          apply: names.length === 0 ? [...owned(ConfigMap), map] : owned(ConfigMap),
          patch: [fieldsOf(Node, { metadata: { name: 'a' }, spec: { unschedulable: true } })],
        }
      },
    })
    const node = { apiVersion: 'v1', kind: 'Node', metadata: { name: 'a' }, spec: {} }
    const world = simulate(shop, { objects: [corner(), node] })
    await world.run()
    expect([world.failure, [...seen]]).toEqual([undefined, ['0  undefined', '1 map undefined', '1 map true']])
  })

  it('repairs drift', async () => {
    const world = simulate(mapper, { objects: [corner({ data: { a: '1' } })] })
    await world.runUntilIdle()
    world.patch(ConfigMap, { data: { a: '2' } })
    await world.runUntilIdle()
    expect(dataOf(world)).toEqual([{ a: '1' }])
  })

  it('keeps what is somebody else’s, and says so on the object', async () => {
    const theirs = { ...config({ theirs: 'x' }), metadata: { name: 'map', namespace: 'default' } }
    const world = simulate(mapper, { objects: [corner({ data: { a: '1' } }), theirs] })
    await world.runUntilIdle()
    expect(dataOf(world)).toEqual([{ theirs: 'x' }])
    expect(world.object).toMatchObject({ status: { conditions: [{ type: 'Reconciled', reason: 'NameTaken' }] } })
    world.delete(ConfigMap)
    await world.advance(60)
    expect(dataOf(world)).toEqual([{ a: '1' }])
    expect(world.object).toMatchObject({ status: { conditions: [{ type: 'Reconciled', status: 'True' }] } })
  })

  it('refuses what a test wants it to refuse, and goes on without it', async () => {
    const keeper = shopThat(({ object: { spec }, owned, refused }) => ({
      apply: [config(spec.data), Secret.of({ metadata: { name: 's' } })],
      status: { phase: owned(ConfigMap).length > 0 ? 'Up' : (refused(ConfigMap)[0]?.reason ?? 'Waiting') },
      conditions: [{ type: 'Ready', status: 'True', reason: 'Up' }],
    }))
    const world = simulate(keeper, { objects: [corner({ data: { a: '1' } })] })
    world.refuse(ConfigMap, 'QuotaExceeded')
    await world.runUntilIdle()
    expect([world.list(ConfigMap).length, world.list(Secret).length]).toEqual([0, 1])
    expect(world.failure?.message).toBe('cannot apply ConfigMap default/map: the simulation refuses it')
    expect(world.object?.status).toMatchObject({
      phase: 'QuotaExceeded',
      conditions: [
        { type: 'Ready', status: 'False', reason: 'QuotaExceeded' },
        { type: 'Reconciled', status: 'False', reason: 'QuotaExceeded' },
      ],
    })
    expect(world.timer?.getTime()).toBeGreaterThan(world.now.getTime())
    const { length } = world.writes
    await world.advance(1)
    expect(world.writes).toHaveLength(length)
    world.admit(ConfigMap)
    await world.advance(60)
    expect(dataOf(world)).toEqual([{ a: '1' }])
    expect(world.object?.status).toMatchObject({
      phase: 'Up',
      conditions: [
        { type: 'Ready', status: 'True' },
        { type: 'Reconciled', status: 'True' },
      ],
    })
  })

  it('refuses one object by its name, and labels of the object itself', async () => {
    const labels = reconciler({
      name: 'shop',
      for: Shop,
      owns,
      writes: ['Metadata'],
      reconcile: ({ refused }) => ({
        apply: ['a', 'b'].map((name) => ConfigMap.of({ metadata: { name } })),
        metadata: { labels: { a: '1' } },
        status: { phase: [...refused(ConfigMap), ...refused(Shop)].map(({ name }) => name).join() },
      }),
    })
    const world = simulate(labels, { objects: [corner()] })
    world.refuse(ConfigMap, 'Forbidden', 'a')
    world.refuse(Shop)
    await world.runUntilIdle()
    expect(world.list(ConfigMap).map(({ metadata }) => metadata.name)).toEqual(['b'])
    expect(world.object).toMatchObject({ status: { phase: 'a,corner' } })
    world.admit()
    await world.advance(60)
    expect(world.list(ConfigMap)).toHaveLength(2)
    expect(world.object).toMatchObject({ metadata: { labels: { a: '1' } }, status: { phase: '' } })
  })

  it('takes over what nobody controls, where that is declared, and tells it once', async () => {
    const theirs = { ...config({ a: 'x', theirs: 'x' }), metadata: { name: 'map', namespace: 'default' } }
    const adopting = reconciler({ name: 'shop', for: Shop, owns: [{ ...ConfigMap, adopt: true }], reconcile: mapped })
    const world = simulate(adopting, { objects: [corner({ data: { a: '1' } }), theirs] })
    await world.runUntilIdle()
    expect(dataOf(world)).toEqual([{ a: '1', theirs: 'x' }])
    expect(world.events).toEqual([
      {
        type: 'Normal',
        reason: 'Adopted',
        message: 'ConfigMap default/map had no controller, and is controlled by this Shop now',
      },
    ])
    world.edit({ spec: { data: null } })
    await world.runUntilIdle()
    expect(dataOf(world)).toEqual([])
  })

  describe('with an object that outlives its owner', () => {
    const keeper = reconciler({
      name: 'shop',
      for: Shop,
      owns: [ConfigMap],
      reconcile: ({ object: { spec }, owned }) => ({
        apply: spec.data === undefined ? [] : [{ ...config(spec.data), retain: spec.due === undefined }],
        status: { phase: `${owned(ConfigMap).length}` },
      }),
    })

    it('keeps that, and takes it over for the next owner of that name', async () => {
      const world = simulate(keeper, { objects: [corner({ data: { a: '1' } })] })
      await world.runUntilIdle()
      expect(world.object).toMatchObject({ status: { phase: '1' } })
      const [{ metadata }] = world.list(ConfigMap) as [KubeObject]
      expect(metadata.ownerReferences).toBeUndefined()
      world.delete()
      await world.runUntilIdle()
      world.create(corner({ data: { b: '2' } }))
      await world.runUntilIdle()
      expect(dataOf(world)).toEqual([{ b: '2' }])
      expect(world.list(ConfigMap)[0]?.metadata.uid).toBe(metadata.uid)
      expect(world.events.map(({ message }) => message)).toEqual([
        'ConfigMap default/map was retained for an earlier Shop of this name, and is retained for this Shop now',
      ])
    })

    it('that is a Secret keeps the values that were drawn for its first owner', async () => {
      const drawn: string[] = []
      const locksmith = shopThat(({ owned, secret }) => {
        const stored = owned(Secret)[0]?.data?.['key']
        if (stored === undefined) drawn.push(secret('key'))
        const data = { key: stored ?? btoa(secret('key')) }
        return { apply: [{ ...Secret.of({ metadata: { name: 's' }, data }), retain: true }] }
      })
      const world = simulate(locksmith, { objects: [corner()] })
      await world.runUntilIdle()
      world.delete()
      world.create(corner())
      await world.runUntilIdle()
      expect(new Set(drawn).size).toBe(2)
      expect(world.list(Secret)).toMatchObject([{ data: { key: btoa(drawn[0]!) } }])
    })

    it('leaves it alone, and does not show it, as long as the next owner of that name does not return it', async () => {
      const world = simulate(keeper, { objects: [corner({ data: { a: '1' } })] })
      await world.runUntilIdle()
      world.delete()
      world.create(corner())
      await world.runUntilIdle()
      expect(dataOf(world)).toEqual([{ a: '1' }])
      expect(world.object).toMatchObject({ status: { phase: '0' } })
    })

    it('deletes it when the function no longer returns it, and says so', async () => {
      const world = simulate(keeper, { objects: [corner({ data: { a: '1' } })] })
      await world.runUntilIdle()
      world.edit({ spec: { data: null } })
      await world.runUntilIdle()
      expect(dataOf(world)).toEqual([])
      const message = 'ConfigMap default/map was retained, and was deleted because the function no longer returns it'
      expect(world.events).toEqual([{ type: 'Normal', reason: 'Pruned', message }])
    })

    it('owns it and retains it again as the function says, in one write each', async () => {
      const world = simulate(keeper, { objects: [corner({ data: { a: '1' } })] })
      await world.runUntilIdle()
      const { length } = world.writes
      world.edit({ spec: { due: 'now' } })
      await world.runUntilIdle()
      const [{ metadata }] = world.list(ConfigMap) as [KubeObject]
      expect(metadata.ownerReferences).toMatchObject([{ kind: 'Shop', controller: true }])
      expect(metadata.annotations).not.toHaveProperty('fairlead.dev/retained-for')
      world.edit({ spec: { due: null } })
      await world.runUntilIdle()
      expect(world.list(ConfigMap)[0]?.metadata).not.toHaveProperty('ownerReferences.0')
      const writes = world.writes.slice(length).filter(({ verb }) => verb !== 'status')
      expect(writes.map(({ verb }) => verb)).toEqual(['patch', 'apply', 'patch', 'apply'])
    })
  })

  it('writes a Secret once, though its values are not compared', async () => {
    const keeper = shopThat(() => ({ apply: [Secret.of({ metadata: { name: 's' }, stringData: { a: 'b' } })] }))
    const world = simulate(keeper, { objects: [corner()] })
    await world.runUntilIdle()
    await world.runUntilIdle()
    expect(world.writes).toHaveLength(1)
  })

  it('takes along what an object owned', async () => {
    const world = simulate(mapper, { objects: [corner({ data: {} })] })
    await world.runUntilIdle()
    world.delete()
    expect(world.memory.all()).toEqual([])
    await world.runUntilIdle()
    expect(world.memory.all()).toEqual([])
  })
})

it('names a time that is none', async () => {
  const message = 'now is "yesterday": give a Date, or a time such as "2030-01-01T00:00:00Z"'
  const given = { objects: [corner()], object: corner(), now: 'yesterday' }
  expect(() => simulate(mapper, given)).toThrow(message)
  await expect(outcomeOf(mapper, given)).rejects.toThrow(message)
})

describe('a simulated object that fails a check in code', () => {
  const Zoned = resource({
    group: 'example.com',
    version: 'v1',
    kind: 'Zoned',
    plural: 'zoneds',
    spec: z.object({
      zone: z.string().refine((zone) => zone !== 'Mars', 'no zone'),
      minutes: z.int32().default(5),
    }),
    status: z.object({}),
  })
  const finalized: string[] = []
  const zoned = reconciler({
    name: 'zoned',
    for: Zoned,
    reconcile: () => undefined,
    finalize: ({ object: { spec } }) => void finalized.push(`${spec.zone} ${spec.minutes}`),
  })
  const given = (spec: object) => ({ ...Zoned.of({ metadata: { name: 'z' }, spec: { zone: 'Mars' } }), spec })
  const deleted = async (spec: object) => {
    const world = simulate(zoned, { objects: [given(spec)] })
    await world.runUntilIdle()
    expect(world.failure).toMatchObject({ reason: 'InvalidObject' })
    world.delete()
    await world.runUntilIdle()
    return world
  }

  it('is finalized all the same when it is deleted', async () => {
    expect((await deleted({ zone: 'Mars' })).object).toBeUndefined()
    expect(new Set(finalized)).toEqual(new Set(['Mars 5']))
  })

  it('is not finalized where it has not even the types that the function expects', async () => {
    const world = await deleted({ zone: 3 })
    expect(world.object?.metadata.finalizers).toEqual(['fairlead.dev/zoned'])
    expect(world.failure?.message).toBe('spec.zone is 3: expected string, received number')
  })
})

describe('a simulated object whose function labels or deletes it', () => {
  const labelling = reconciler({
    name: 'shop',
    for: Shop,
    writes: ['Metadata', 'Deletion'],
    reconcile({ object: { spec } }) {
      if (spec.data === undefined) return { deleteObject: true, requeueAfter: 60 }
      return { metadata: { labels: spec.data } }
    },
  })
  const labelsOf = ({ object }: Simulation) => object?.metadata.labels

  it('keeps the keys of others, and loses those that are returned no longer', async () => {
    const world = simulate(labelling, { objects: [corner({ data: { a: '1', b: '2' } })] })
    await world.runUntilIdle()
    world.edit({ metadata: { labels: { theirs: 'x' } } })
    world.edit({ spec: { data: { a: '3', b: null } } })
    await world.runUntilIdle()
    expect(labelsOf(world)).toEqual({ a: '3', theirs: 'x' })
    expect(world.writes.map(({ verb }) => verb)).toEqual(['metadata', 'metadata'])
    world.edit({ spec: { data: { a: null } } })
    await world.runUntilIdle()
    expect(labelsOf(world)).toEqual({ theirs: 'x' })
  })

  it('takes back what somebody else has changed or removed', async () => {
    const world = simulate(labelling, { objects: [corner({ data: { a: '1', b: '2' } })] })
    await world.runUntilIdle()
    world.edit({ metadata: { labels: { a: 'theirs', b: null } } })
    await world.runUntilIdle()
    expect(labelsOf(world)).toEqual({ a: '1', b: '2' })
  })

  it('is gone, with its timer, when it is to be deleted; with the finalizer of another one it stays', async () => {
    const held = corner()
    held.metadata.finalizers = ['example.com/other']
    const worlds = [corner(), held].map((object) => simulate(labelling, { objects: [object] }))
    for (const world of worlds) await world.runUntilIdle()
    expect(worlds.map(({ object }) => object?.metadata.deletionTimestamp !== undefined)).toEqual([false, true])
    expect(worlds.map(({ object, timer }) => [object?.metadata.name, timer])).toEqual([
      [undefined, undefined],
      ['corner', undefined],
    ])
  })
})

describe('a simulated object that names the namespace of related objects', () => {
  const Workspace = resource({
    group: 'example.com',
    version: 'v1',
    kind: 'Workspace',
    plural: 'workspaces',
    scope: 'Cluster',
    spec: z.object({ in: z.string().optional() }),
    status: z.object({ namespace: z.string().optional(), maps: z.int32() }),
  })
  const Map = { ...ConfigMap, namespacePath: 'status.namespace' } as const
  const counting = reconciler({
    name: 'workspace',
    for: Workspace,
    related: [Map],
    reconcile: ({ object: { spec }, related }) => ({ status: { namespace: spec.in, maps: related(Map).length } }),
  })
  const workspace = Workspace.of({ metadata: { name: 'w' }, spec: { in: 'one' } })
  const mapIn = (namespace: string, name: string) => ConfigMap.of({ metadata: { namespace, name }, data: {} })
  const others = [mapIn('one', 'a'), mapIn('one', 'b'), mapIn('two', 'c')]
  const given = { others, object: { ...workspace, status: { namespace: 'two' } } }
  const move = (namespace: string | null) => (world: Simulation) => world.edit({ spec: { in: namespace } })
  const scenario: Scenario = {
    objects: [workspace, ...others],
    steps: [
      ['it moves', move('two')],
      ['it is nowhere', move(null)],
      ['it is back', move('one')],
    ],
  }

  it('sees those of that namespace, and none while it names none', async () => {
    expect(await outcomeOf(counting, given)).toEqual({ status: { namespace: 'one', maps: 1 } })
    expect(await outcomeOf(counting, { ...given, object: workspace })).toMatchObject({ status: { maps: 0 } })
  })

  it('sees those of another one in the very run that names it', async () => {
    const world = simulate(counting, scenario)
    const seen: unknown[] = []
    for (const namespace of ['one', 'two', null]) {
      move(namespace)(world)
      await world.run()
      seen.push(world.object?.status?.maps)
    }
    expect(seen).toEqual([2, 1, 0])
  })

  it.each(lawsOf(counting, scenario))('%s', (_, holds) => holds())
})

describe('the types of a simulation', () => {
  const world = simulate(mapper, {
    objects: [Shop.of({ metadata: { name: 'corner' }, spec: { due: 'x' }, status: { phase: 'Open' } }), config()],
  })

  it('are those of its object, which has no status at first, and no defaults', () => {
    expectTypeOf(world.object?.spec.due).toEqualTypeOf<string | undefined>()
    expectTypeOf(world.object?.status?.phase).toEqualTypeOf<string | undefined>()
    expectTypeOf(world.object?.status?.observedGeneration).toEqualTypeOf<number | undefined>()
    expect(world.object?.status?.phase).toBe('Open')
    expect(simulate(mapper, { objects: [corner()] }).object?.status).toBeUndefined()
  })

  it('are those of the objects beside it', () => {
    expectTypeOf(world.list(ConfigMap)[0]?.data).toEqualTypeOf<Record<string, string> | undefined>()
    expectTypeOf(world.list(Shop)[0]?.status?.phase).toEqualTypeOf<string | undefined>()
    expect(world.list(Shop).map(({ status }) => status?.phase)).toEqual(['Open'])
  })

  it('are known to steps, to whoever plays the cluster, and forgotten where a helper does not ask for them', () => {
    const helper = (other: Simulation): KubeObject | undefined => other.object
    expect(helper(world)?.metadata.name).toBe('corner')
    const scenario: Scenario<typeof Shop> = {
      objects: [corner()],
      steps: [['it is due', (one) => void expectTypeOf(one.object?.status?.phase).toEqualTypeOf<string | undefined>()]],
      cluster: (one) => void expectTypeOf(one.object?.spec.due).toEqualTypeOf<string | undefined>(),
    }
    expect(lawsOf(mapper, scenario).length).toBeGreaterThan(0)
  })
})

describe('the clock of a simulation', () => {
  const sleeper = shopThat(({ object: { spec }, now }) => {
    const due = new Date(spec.due ?? 0)
    return now < due ? { status: { phase: 'waits' }, requeueAt: due } : { status: { phase: now.toISOString() } }
  })
  const due = '2030-01-01T00:01:00.000Z'
  const phaseOf = ({ object }: Simulation) => (object as { status?: { phase: string } }).status?.phase

  it('stands still until it is moved, and fires timers at their time', async () => {
    const world = simulate(sleeper, { objects: [corner({ due })] })
    await world.runUntilIdle()
    expect([phaseOf(world), world.timer?.toISOString()]).toEqual(['waits', due])
    await world.advance(59.999)
    expect(phaseOf(world)).toBe('waits')
    await world.advance(3600)
    expect(phaseOf(world)).toBe(due)
    expect(world.now.toISOString()).toBe('2030-01-01T01:00:59.999Z')
  })

  it('runs what is pending first: a new object, an edit, a deletion', async () => {
    const closing = reconciler({
      name: 'shop',
      for: Shop,
      owns,
      reconcile: mapped,
      finalize: () => undefined,
    })
    const world = simulate(closing, { objects: [corner({ data: { a: '1' } })] })
    await world.advance(1)
    expect(dataOf(world)).toEqual([{ a: '1' }])
    world.edit({ spec: { data: { a: '2' } } })
    await world.advance(1)
    expect(dataOf(world)).toEqual([{ a: '2' }])
    world.delete()
    await world.advance(30)
    expect(world.object).toBeUndefined()
  })

  it('does not try a failed run again before its timer', async () => {
    let calls = 0
    const closed = shopThat(() => {
      calls++
      throw new RetryAfterError('closed', { afterSeconds: 9 })
    })
    const world = simulate(closed, { objects: [corner()] })
    await world.runUntilIdle()
    const before = calls
    await world.advance(8)
    expect(calls).toBe(before)
    await world.advance(1)
    expect(calls).toBeGreaterThan(before)
  })

  it('fires late when nobody runs at its time', async () => {
    const world = simulate(sleeper, { objects: [corner({ due })] })
    await world.runUntilIdle()
    world.pass(3600)
    await world.runUntilIdle()
    expect(phaseOf(world)).toBe('2030-01-01T01:00:00.000Z')
  })

  it('counts failures, and backs off', async () => {
    const attempts: number[] = []
    const failing = shopThat(({ attempt }) => {
      attempts.push(attempt)
      throw new Error('broken')
    })
    const world = simulate(failing, { objects: [corner()] })
    for (let runs = 0; runs < 3; runs++) await world.run()
    expect(attempts).toEqual([0, 1, 2])
    expect(world.timer?.getTime()).toBeGreaterThan(world.now.getTime() + 500)
    await expect(world.runUntilIdle()).rejects.toThrow('broken')
  })

  it('does not go on for ever with a function that wants to run again at once', async () => {
    const restless = shopThat(() => ({ requeueAfter: 0 }))
    await expect(simulate(restless, { objects: [corner()] }).runUntilIdle()).rejects.toThrow('shop never becomes idle')
  })
})

describe('a simulation that makes no sense', () => {
  it.each([
    [[], '"objects" is empty'],
    [[config()], 'the first object is a ConfigMap, but shop reconciles Shop'],
  ])('is refused: %j', (objects, message) => {
    expect(() => simulate(mapper, { objects })).toThrow(message)
  })

  it('is refused when its cluster never comes to rest', () => {
    const cluster = (world: Simulation) => world.edit({ metadata: { labels: { n: String(world.memory.version) } } })
    expect(() => simulate(mapper, { objects: [corner()], cluster })).toThrow('"cluster" still changes something')
  })
})

describe('a simulated run decides whether the object is its own, as a dispatcher does', () => {
  const only = (selection: object) =>
    reconciler({ name: 'shop', for: Shop, ...selection, owns, reconcile: () => ({ apply: [config({ a: '1' })] }) })
  const writesOf = async (one: ReturnType<typeof only>, object = corner()) => {
    const world = simulate(one, { objects: [object] })
    await world.runUntilIdle()
    return world.writes.map(({ verb }) => verb)
  }

  it.each([
    ['its labels match', { selector: 'app=web' }, { labels: { app: 'web' } }, ['apply']],
    ['its labels do not match', { selector: 'app=web' }, { labels: { app: 'db' } }, []],
    ['it is in one of the namespaces', { namespaces: ['default'] }, {}, ['apply']],
    ['it is in another namespace', { namespaces: ['elsewhere'] }, {}, []],
    ['it is paused', {}, { annotations: { 'fairlead.dev/paused': 'true' } }, ['status']],
  ])('%s', async (_, selection, metadata, writes) => {
    const object = corner()
    expect(await writesOf(only(selection), { ...object, metadata: { ...object.metadata, ...metadata } })).toEqual(
      writes,
    )
  })

  it('shows in a dry run what it would write, and writes nothing', async () => {
    const world = simulate(mapper, { objects: [corner({ data: { a: '1' } })] })
    expect((await world.dryRun()).map(({ verb, object }) => [verb, object.kind])).toEqual([['apply', 'ConfigMap']])
    expect([world.list(ConfigMap), world.writes]).toEqual([[], []])
  })
})

describe('rules, which the API server would check', () => {
  const Disk = resource({
    group: 'example.com',
    version: 'v1',
    kind: 'Disk',
    plural: 'disks',
    spec: z.object({ zone: z.string(), host: z.string().optional(), kept: z.boolean().optional() }),
    status: z.object({ claim: z.string() }),
    rules: [
      immutable('.spec.zone'),
      setOnce('.status.claim'),
      defaultFrom('.spec.host', '.metadata.name'),
      onlyGroups(['admins'], ['DELETE']),
      notDeletedWhile('.spec.kept', true),
    ],
  })
  const home = (spec: object = {}) =>
    Disk.of({ metadata: { name: 'home', namespace: 'default' }, spec: { zone: 'a', ...spec } })
  const disk = reconciler({ name: 'disk', for: Disk, reconcile: () => ({ status: { claim: 'c' } }) })

  it('refuse what a user does, and fill in what a user leaves out', async () => {
    const world = simulate(disk, { objects: [home()] })
    await world.runUntilIdle()
    expect(world.object).toMatchObject({ spec: { host: 'home' }, status: { claim: 'c' } })
    expect(() => world.edit({ spec: { zone: 'b' } })).toThrow(
      'Disk home is refused: spec.zone: spec.zone cannot be changed',
    )
    expect(() => world.delete()).toThrow('only admins may delete it')
    world.groups = ['admins']
    world.edit({ spec: { kept: true } })
    expect(() => world.copy().delete()).toThrow('it cannot be deleted while spec.kept is true')
    world.edit({ spec: { kept: null } })
    world.delete()
    expect(world.object).toBeUndefined()
  })

  it('refuse what the function writes, which shows it as any refusal', async () => {
    let runs = 0
    const moving = reconciler({ name: 'disk', for: Disk, reconcile: () => ({ status: { claim: `c${++runs}` } }) })
    const world = simulate(moving, { objects: [home()] })
    await world.run()
    await world.run()
    expect(world.failure?.message).toContain('status.claim is set once')
    expect(world.object?.status).toMatchObject({ claim: 'c1' })
  })

  it('stop no law, whose disturbances are those of Kubernetes', async () => {
    for (const [, holds] of lawsOf(disk, { objects: [home({ kept: true })] })) await holds()
  })
})
