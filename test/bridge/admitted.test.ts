import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { ApiError, type KubeClient, resourcePath } from '#kube'
import { coverageId, isRefused, RECONCILERS } from '#spec'
import { Admission } from '../../bridge/admission.ts'
import { parseReconciler, type Reconciler } from '../../bridge/reconcilers.ts'
import { Relations } from '../../bridge/relations.ts'
import { Routes } from '../../bridge/routing.ts'
import { Names } from '../../streams/queue/wire.ts'
import { admittedObject, definition, names, specifications } from './admitted.ts'
import { configMaps, object, reconciler, reconcilerObject } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import { createReconciler, removeReconcilers, silent, startBridge, until, untilCondition } from './world.ts'

/** A bridge is given so many at once. The API server takes about two of five that are made. */
const ON_SERVERS = 16
const MADE = 200
/** `npm run soak reconcilers` tries more of them, one lot after the other. */
const LOTS = Math.ceil(Number(process.env['FAIRLEAD_FUZZ_RECONCILERS'] ?? ON_SERVERS) / ON_SERVERS)
const SEED = Number(process.env['FAIRLEAD_FUZZ_SEED'] ?? Date.now() % 1_000_000)
const KINDS: Record<string, string> = { configmaps: 'ConfigMap', secrets: 'Secret', namespaces: 'Namespace' }
const SEEDS = Array.from({ length: LOTS }, (_, lot) => SEED + lot)

describe('every Reconciler that the definition admits', () => {
  it.each(SEEDS)(
    'is read, and either refused with a reason or routed without an error (FAIRLEAD_FUZZ_SEED=%i)',
    (seed) => {
      const specs = specifications(MADE, seed)
      const given = names(specs.length, seed)
      const read = specs.map((spec, index) => parseReconciler(admittedObject(given[index] ?? 'x', spec)))
      const served = read.filter((entry): entry is Reconciler => !isRefused(entry))
      expect(served.length).toBeGreaterThan(0)
      for (const refused of read.filter((entry) => isRefused(entry)))
        expect(refused.message).toMatch(/^(spec|metadata\.name)\b/)
      for (const { name, object: made, spec, selects } of served) {
        const routes = new Routes([...served.slice(0, 3), { name, object: made, spec, selects, coverageId: name }])
        const deps = { events: undefined as never, log: silent, isClusterScoped: async () => false }
        new Relations({ ...deps, signal: AbortSignal.abort() }, async () => {}).reroute(routes)
        for (const ref of routes.refs) {
          for (const namespace of [undefined, ...(routes.namespacesOf(ref) ?? [])]) resourcePath(ref, namespace)
          routes.selectionOf(ref)
          const changed = object('ConfigMap', 'a', { labels: { a: 'b' } })
          routes.targetsOf(ref, { namespace: 'default', name: 'a', object: changed, owners: [] }, () => false)
        }
        expect(new Names('').consumer(name, 'high').length).toBeLessThanOrEqual(255)
        expect(coverageId(made, spec)).toContain(name)
      }
    },
  )
})

type Kinds = ConstructorParameters<typeof Admission>[0]['kindOf']

/** Resolves with what becomes of Reconcilers, whose kinds the API server tells in this way. */
function admission(kindOf: Kinds = async ({ resource }) => KINDS[resource]) {
  const admitting: Admission = new Admission({
    queue: { declare: async () => {} },
    shard: '',
    log: silent,
    kindOf: (ref) => kindOf(ref),
    changed: () => undefined,
  })
  return {
    admitting,
    /** What each is after another review: admitted, or the reason. */
    async review(...reconcilers: Reconciler[]): Promise<string[]> {
      admitting.review(reconcilers)
      await until(() => admitting.isDecided)
      await new Promise(setImmediate)
      return reconcilers.map((one) =>
        admitting.isAdmitted(one) ? 'admitted' : (admitting.failureOf(one)?.reason ?? 'none'),
      )
    },
    [Symbol.dispose]: () => admitting.stop(),
  }
}

it('a Reconciler for which no path can be made is kept out alone, and says why', async () => {
  using one = admission()
  const good = reconciler('good', { for: configMaps })
  const bad = reconciler('bad', { for: configMaps })
  bad.spec = { ...bad.spec, for: { ...bad.spec.for, namespaces: ['team/a'] } }
  expect(await one.review(bad, good)).toEqual(['NotPrepared', 'admitted'])
  expect(one.admitting.failureOf(bad)?.message).toContain('team/a')
})

describe('a Reconciler that names the kind of another resource', () => {
  const maps = reconciler('maps', { for: configMaps })
  const thief = (resource: string, kind = 'ConfigMap') =>
    reconciler('thief', { for: { ...configMaps, resource, kind } })

  it('is kept out alone, and says both kinds', async () => {
    using one = admission()
    expect(await one.review(maps, thief('secrets'))).toEqual(['admitted', 'KindMismatch'])
    expect(one.admitting.failureOf(thief('secrets'))?.message).toBe(
      'spec.for is secrets.v1 as ConfigMap, but the API server serves it as Secret: correct kind or resource',
    )
    expect(await one.review(maps, thief('secrets', 'Secret'))).toEqual(['admitted', 'admitted'])
    expect(await one.review(maps, thief('secrets'))).toEqual(['admitted', 'KindMismatch'])
  })

  it('is kept out also if the API server does not serve its resource', async () => {
    using one = admission()
    expect(await one.review(thief('widgets'))).toEqual(['admitted'])
    expect(await one.review(thief('widgets'), maps)).toEqual(['KindUnknown', 'admitted'])
    expect(one.admitting.failureOf(thief('widgets'))?.message).toContain('the Reconciler maps is for configmaps.v1')
  })

  it('takes nothing while the API server does not answer, and others go on', async () => {
    const api = { answers: false }
    using one = admission(async ({ resource }) => {
      if (!api.answers) throw new Error('503')
      return KINDS[resource]
    })
    const other = reconciler('other', { for: { ...configMaps, resource: 'namespaces', kind: 'Namespace' } })
    const all = [maps, thief('secrets'), other]
    // The older one is served, or the first by name.
    expect(await one.review(...all)).toEqual(['admitted', 'KindUnknown', 'admitted'])
    api.answers = true
    expect(await one.review(...all)).toEqual(['admitted', 'KindMismatch', 'admitted'])
    api.answers = false
    for (const { spec } of all) one.admitting.doubt(spec.for)
    expect(await one.review(...all)).toEqual(['admitted', 'KindMismatch', 'admitted'])
  })

  it('is served while the API server does not answer if it is older, and no longer than that', async () => {
    const api = { answers: false }
    using one = admission(async ({ resource }) => {
      if (!api.answers) throw new Error('503')
      return KINDS[resource]
    })
    const created = (of: Reconciler, creationTimestamp: string): Reconciler => ({
      ...of,
      object: { ...of.object, metadata: { ...of.object.metadata, creationTimestamp } },
    })
    const younger = created(maps, '2026-02-01T00:00:00Z')
    const all = [younger, created(thief('secrets'), '2026-01-01T00:00:00Z')]
    expect(await one.review(...all)).toEqual(['KindUnknown', 'admitted'])
    expect(one.admitting.failureOf(younger)?.message).toContain('the Reconciler thief is for secrets.v1')
    api.answers = true
    expect(await one.review(...all)).toEqual(['admitted', 'KindMismatch'])
  })

  it('is kept out when its resource comes back with another kind', async () => {
    const kinds = { ...KINDS }
    using one = admission(async ({ resource }) => kinds[resource])
    const secrets = thief('secrets', 'Secret')
    expect(await one.review(secrets)).toEqual(['admitted'])
    kinds['secrets'] = 'Password'
    one.admitting.doubt(secrets.spec.for)
    expect(await one.review(secrets)).toEqual(['KindMismatch'])
  })
})

describe('on servers', () => {
  let servers: Servers
  let kube: KubeClient
  let number = 0

  beforeAll(async () => {
    servers = await startServers()
    ;({ kube } = servers)
  })
  afterEach(() => removeReconcilers(kube))
  afterAll(() => servers?.[Symbol.asyncDispose]())

  const start = (prefix = `a${++number}`) => startBridge(kube, servers.nats.url, { prefix })

  it.each(SEEDS)(
    'no Reconciler that the API server takes keeps the bridge from any other, now or after a restart (FAIRLEAD_FUZZ_SEED=%i)',
    async (seed) => {
      const prefix = `a${++number}`
      const taken: string[] = []
      {
        await using bridge = await start(prefix)
        const given = names(MADE, seed)
        for (const [index, spec] of specifications(MADE, seed).entries()) {
          if (taken.length === ON_SERVERS) break
          const name = `${index}-${given[index]}`.slice(0, 250)
          if (await isTaken(kube, admittedObject(name, spec))) taken.push(name)
        }
        expect(taken).toHaveLength(ON_SERVERS)
        await createReconciler(kube, 'canary', { for: configMaps })
        await untilSaid(kube, 'canary', 'Watching')
        await bridge.synced('configmaps.v1')
        for (const name of taken) await untilSaid(kube, name)
      }
      await using again = await start(prefix)
      await createReconciler(kube, 'second-canary', { for: configMaps })
      await untilSaid(kube, 'second-canary', 'Watching')
      await until(
        async () => {
          const { refused } = again.bridge.status()
          return refused.every(({ name }) => taken.includes(name)) && again.bridge.status().resources.length > 0
        },
        { what: 'each is read again' },
      )
    },
  )

  it('one that an older definition admits is refused by name, and the others go on', async () => {
    await using _ = await withoutPatterns(kube)
    await using bridge = await start()
    await createReconciler(kube, 'culprit', { for: { ...configMaps, namespaces: ['team/a'] } })
    await createReconciler(kube, 'c'.repeat(251), { for: configMaps })
    await untilCondition(kube, 'culprit', 'InvalidSpec')
    await untilCondition(kube, 'c'.repeat(251), 'InvalidSpec')
    await createReconciler(kube, 'other', { for: configMaps })
    await untilCondition(kube, 'other', 'Watching')
    expect(
      bridge.bridge
        .status()
        .refused.map(({ name }) => name)
        .toSorted(),
    ).toEqual(['c'.repeat(251), 'culprit'])
  })

  it('one whose queue cannot be declared says why, holds up no other of the same resource, and is served once it can', async () => {
    await using bridge = await start()
    const { js, queue } = bridge
    const subject = queue.mark.replace(/key\._$/, 'work.culprit.>')
    const config = { durable_name: 'blocker', ack_policy: 'explicit', filter_subject: subject } as const
    await js.admin.consumers.add(queue.stream, config)
    await createReconciler(kube, 'culprit', { for: configMaps })
    await untilCondition(kube, 'culprit', 'NotPrepared')
    await createReconciler(kube, 'other', { for: configMaps })
    await untilCondition(kube, 'other', 'Watching')
    await kube.create(resourcePath(configMaps, 'default'), { metadata: { name: 'one' }, data: {} })
    await until(async () => bridge.keysOf('other').includes('default.one'), { what: 'the other has the key' })
    expect(bridge.keysOf('culprit')).toEqual([])
    await js.admin.consumers.delete(queue.stream, 'blocker')
    await untilCondition(kube, 'culprit', 'Watching')
    await until(async () => bridge.keysOf('culprit').includes('default.one'), {
      what: 'every object that exists runs',
    })
  })
})

const isTaken = (kube: KubeClient, made: KubeObject): Promise<boolean> =>
  kube.create(resourcePath(RECONCILERS), made).then(
    () => true,
    (error: unknown) => {
      if (error instanceof ApiError && error.code < 500) return false
      throw error
    },
  )

/** Resolves when the condition has the wanted text, or a text that remains. */
const untilSaid = (kube: KubeClient, name: string, wanted?: string) => {
  let last: KubeObject | undefined
  const isSaid = async () => {
    last = await kube.get<KubeObject>(resourcePath(RECONCILERS, undefined, name))
    const { conditions = [] } = (last.status ?? {}) as { conditions?: { type: string; reason: string }[] }
    const { reason = 'Listing' } = conditions.find(({ type }) => type === 'Synced') ?? {}
    return wanted === undefined ? reason !== 'Listing' : reason === wanted
  }
  return until(isSaid, { what: `${name} has its condition` }).catch((error: Error) => {
    throw new Error(`${error.message}: ${JSON.stringify(last)}`, { cause: error })
  })
}

/** Until the end of the block, Reconcilers are admitted as before the definition had patterns and a rule for the name. */
async function withoutPatterns(kube: KubeClient): Promise<AsyncDisposable> {
  const path = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions/reconcilers.fairlead.dev'
  const put = (versions: object[]) => kube.patch(path, { spec: { versions } }, 'merge')
  const admits = (namespace: string) =>
    kube
      .create(
        `${resourcePath(RECONCILERS)}?dryRun=All`,
        reconcilerObject('x', { for: { ...configMaps, namespaces: [namespace] } }),
      )
      .then(
        () => true,
        () => false,
      )
  const { versions } = definition().spec
  const loose = JSON.parse(JSON.stringify(versions), (key, value: unknown) =>
    key === 'pattern' || key === 'x-kubernetes-validations' ? undefined : value,
  ) as object[]
  await put(loose)
  await until(() => admits('team/a'), { what: 'the older definition is in force' })
  return {
    async [Symbol.asyncDispose]() {
      await put(versions)
      await until(async () => !(await admits('team/a')), { what: 'the definition is in force again' })
    },
  }
}
