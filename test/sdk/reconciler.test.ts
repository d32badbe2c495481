import { describe, expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import type { KubeObject, RunInput } from '#contracts'
import {
  Deployment,
  kind,
  manifest,
  Pod,
  type ReconcileOutcome,
  type Reconciler,
  RetryAfterError,
  reconciler,
  resource,
  Secret,
  toInvoke,
} from '#sdk'
import { silent } from '../support/silent.ts'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({ size: z.int32() }),
  status: z.object({ phase: z.enum(['Open', 'Closed']) }),
})

const shop: KubeObject = {
  apiVersion: 'example.com/v1',
  kind: 'Shop',
  metadata: { name: 'corner', namespace: 'default', uid: 'this-one' },
  spec: { size: 2 },
}

const ownedBy = (uid: string, kindName: string, apiVersion: string): KubeObject => ({
  apiVersion,
  kind: kindName,
  metadata: {
    name: `of-${uid}`,
    ownerReferences: [{ apiVersion: 'example.com/v1', kind: 'Shop', name: 'corner', uid, controller: true }],
  },
})

const inputWith = (rest: Partial<RunInput> = {}): RunInput => ({
  object: shop,
  owned: {},
  related: {},
  attempt: 0,
  now: '2030-01-01T00:00:00Z',
  finalizing: false,
  ...rest,
})

const context = {
  signal: new AbortController().signal,
  log: silent,
}

const run = (reconciler: Reconciler, rest?: Partial<RunInput>) => toInvoke(reconciler)(inputWith(rest), context)

/** A function that fails. */
const failWith = (error: Error) => async (): Promise<undefined> => {
  throw error
}

/** A function that returns the given value, typed or not. */
const returning = (outcome: unknown) =>
  reconciler({ name: 'shop', for: Shop, reconcile: () => outcome as ReconcileOutcome<{ phase: 'Open' }> })

describe('a run', () => {
  it('has the object, its own children only, what is related, the time and the attempt', async () => {
    const Cafe = kind<{ seats?: number }>({ group: 'example.com', version: 'v2', kind: 'Cafe', plural: 'cafes' })
    let seen: unknown
    const shops = reconciler({
      name: 'shop',
      for: Shop,
      owns: [Pod, Deployment],
      related: [Secret, Cafe],
      reconcile({ object, owned, related, now, attempt, signal, log }) {
        expectTypeOf(object.spec).toEqualTypeOf<{ size: number }>()
        expectTypeOf(owned(Pod)).items.toMatchTypeOf<{
          spec?: { nodeName?: string }
          status?: { startTime?: string }
        }>()
        expectTypeOf(related(Cafe)).items.toHaveProperty('seats').toEqualTypeOf<number | undefined>()
        log.info({}, 'seen')
        seen = {
          object,
          pods: owned(Pod),
          deployments: owned(Deployment),
          secrets: related(Secret),
          now,
          attempt,
          signal,
        }
        return undefined
      },
    })
    const mine = ownedBy('this-one', 'Pod', 'v1')
    const secret: KubeObject = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 's' } }
    const outcome = await run(shops, {
      owned: { 'Pod.v1': [ownedBy('old', 'Pod', 'v1'), mine] },
      related: { 'Secret.v1': [secret], 'Cafe.v2.example.com': [{ ...secret, kind: 'Cafe', seats: 3 }] },
      attempt: 3,
    })
    expect(outcome).toEqual({})
    expect(seen).toEqual({
      object: { ...shop, status: {} },
      pods: [mine],
      deployments: [],
      secrets: [secret],
      now: new Date('2030-01-01T00:00:00Z'),
      attempt: 3,
      signal: context.signal,
    })
  })

  it('reads children of kinds with a schema by that schema', async () => {
    const owner = reconciler({ name: 'a', for: Shop, owns: [Shop], reconcile: ({ owned }) => void owned(Shop) })
    const child = { ...ownedBy('this-one', 'Shop', 'example.com/v1'), spec: { size: 'x' } }
    await expect(run(owner, { owned: { 'Shop.v1.example.com': [child] } })).rejects.toThrow('spec.size is "x"')
  })

  it('is refused kinds that were not declared, by the compiler and at run time', async () => {
    const careless = reconciler({
      name: 'shop',
      for: Shop,
      owns: [Pod],
      // @ts-expect-error Deployment is not in owns
      reconcile: ({ owned }) => void owned(Deployment),
    })
    await expect(run(careless)).rejects.toThrow('reconciler shop asks for Deployment.v1.apps: add it to its "owns"')
  })

  it('does not happen for an object that is gone, going, or not readable', async () => {
    const failing = reconciler({ name: 'shop', for: Shop, reconcile: failWith(new Error('was called')) })
    expect(await run(failing, { object: null })).toEqual({})
    const going = { ...shop, metadata: { ...shop.metadata, deletionTimestamp: '2030-01-01T00:00:00Z' } }
    expect(await run(failing, { object: going })).toEqual({})
    await expect(run(failing, { object: { ...shop, spec: {} } })).rejects.toMatchObject({
      name: 'TerminalError',
      reason: 'InvalidObject',
    })
  })

  it('fails with the error of the function as it is', async () => {
    const error = new RetryAfterError('not yet', { afterSeconds: 5 })
    const failing = reconciler({ name: 'shop', for: Shop, reconcile: failWith(error) })
    await expect(run(failing)).rejects.toBe(error)
  })
})

describe('an outcome', () => {
  it('becomes plain data', async () => {
    const pod = Pod.of({ metadata: { name: 'p' }, spec: { containers: [], nodeName: undefined as unknown as string } })
    const outcome = await run(
      returning({
        apply: [pod],
        status: { phase: 'Open' },
        conditions: [{ type: 'Ready', status: 'True', reason: 'Open' }],
        metadata: { labels: { tier: 'gold' }, annotations: undefined },
        deleteObject: true,
        events: [{ type: 'Normal', reason: 'Opened', message: 'open' }],
        requeueAfter: 5,
        requeueAt: new Date('2030-01-01T00:00:00Z'),
      }),
    )
    expect(JSON.stringify(outcome)).toBe(
      JSON.stringify({
        apply: [{ apiVersion: 'v1', kind: 'Pod', metadata: { name: 'p' }, spec: { containers: [] } }],
        status: { phase: 'Open' },
        conditions: [{ type: 'Ready', status: 'True', reason: 'Open' }],
        metadata: { labels: { tier: 'gold' } },
        deleteObject: true,
        events: [{ type: 'Normal', reason: 'Opened', message: 'open' }],
        requeueAfterSeconds: 5,
        requeueAt: '2030-01-01T00:00:00.000Z',
      }),
    )
    expect(outcome.apply?.[0], 'no field that is there and undefined').toStrictEqual({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'p' },
      spec: { containers: [] },
    })
  })

  it('may have the status of the object in it, whose kept fields are left out', async () => {
    const conditions = [{ type: 'Ready', status: 'True', reason: 'Open', lastTransitionTime: '2030-01-01T00:00:00Z' }]
    const spreading = reconciler({
      name: 'shop',
      for: Shop,
      reconcile: ({ object }) => ({ status: { ...object.status, phase: 'Open' } }),
    })
    const object = { ...shop, status: { observedGeneration: 3, conditions } }
    expect(await run(spreading, { object })).toEqual({ status: { phase: 'Open' } })
  })

  it.each<[unknown, string]>([
    [{ status: { phase: 'Opem' } }, 'status.phase is "Opem": Invalid option'],
    [{ status: {} }, 'status.phase is missing'],
    [{ status: { phase: 'Open', extra: 1 } }, 'Unrecognized key: "extra"'],
    [
      { status: { phase: 'Open', conditions: [] } },
      'status.conditions is not that of the object: leave it out. "conditions" belong beside "status"',
    ],
    [{ status: { phase: 'Open', observedGeneration: 7 } }, 'status.observedGeneration is not that of the object'],
    [{ metadata: { name: 'other' } }, 'metadata is {…}: Unrecognized key: "name"'],
    [{ metadata: { labels: { size: 3 } } }, 'metadata.labels.size is 3: expected string'],
    [{ deleteObject: 'yes' }, 'deleteObject is "yes": expected boolean'],
    [{ requeueAfterSeconds: 5 }, 'Unrecognized key: "requeueAfterSeconds"'],
    [{ requeueAfter: -1 }, 'requeueAfter is -1: Too small'],
    [{ requeueAfter: Number.NaN }, 'requeueAfter is NaN: expected number'],
    [{ requeueAt: 'tomorrow' }, 'requeueAt is "tomorrow": expected a Date with a time'],
    [{ requeueAt: new Date(Number.NaN) }, 'requeueAt is Invalid Date: expected a Date with a time'],
    [{ apply: [{ kind: 'Pod' }] }, 'apply[0].apiVersion is missing'],
    [{ apply: {} }, 'apply is {}: expected array'],
    [{ apply: { kind: 'Secret', stringData: { a: 'hunter2' } } }, 'apply is {…}: expected array'],
    [{ apply: [{ ...shop, spec: { size: Number.NaN } }] }, 'apply[0].spec.size is NaN, which is not JSON'],
    [{ apply: [{ ...shop, spec: { list: [1, undefined] } }] }, 'apply[0].spec.list[1] is undefined, which is not JSON'],
    [{ apply: [{ ...shop, spec: new Map() }] }, 'apply[0].spec is a Map, which is not JSON'],
    [{ apply: [{ ...shop, spec: { at: new Date(Number.NaN) } }] }, 'apply[0].spec.at is an invalid Date'],
    [{ apply: [{ ...shop, spec: { at: () => 1 } }] }, 'apply[0].spec.at is a function, which is not JSON'],
    ['done', 'the value is "done": expected object'],
  ])('that is wrong is refused for good, by path: %j', async (outcome, message) => {
    await expect(run(returning(outcome))).rejects.toMatchObject({
      name: 'TerminalError',
      reason: 'InvalidOutcome',
      message: expect.stringContaining(message),
    })
  })

  it('is checked by the compiler too', () => {
    const wrong = [
      // @ts-expect-error no such phase
      reconciler({ name: 'shop', for: Shop, reconcile: () => ({ status: { phase: 'Opem' } }) }),
      // @ts-expect-error a status is complete
      reconciler({ name: 'shop', for: Shop, reconcile: () => ({ status: {} }) }),
      // @ts-expect-error seconds are a number
      reconciler({ name: 'shop', for: Shop, reconcile: async () => ({ requeueAfter: '5s' }) }),
    ]
    expect(wrong).toHaveLength(3)
  })
})

describe('the manifest of a function', () => {
  it('has all that bridge and dispatcher must know, defaults written out', () => {
    const shops = reconciler({
      name: 'shop',
      for: Shop,
      selector: 'tier=gold',
      namespaces: ['a', 'b'],
      owns: [Pod, Deployment],
      related: [
        { ...Secret, byName: 'spec.credentials.secretName', namespacePath: 'spec.credentials.namespace' },
        { ...Pod, selector: 'app=x', within: 'Cluster' },
      ],
      changes: ['Generation', 'Annotations'],
      writes: ['Metadata', 'Deletion'],
      binds: [{ kind: 'ClusterRole', name: 'admin' }],
      resyncSeconds: 3600,
      reconcile: () => undefined,
      concurrency: 3,
      timeoutSeconds: 5,
      backoff: { maxSeconds: 9 },
    })
    expect(manifest(shops, { invoke: { http: { url: 'http://shop.default' } } })).toEqual({
      apiVersion: 'fairlead.dev/v1alpha1',
      kind: 'Reconciler',
      metadata: { name: 'shop' },
      spec: {
        for: {
          group: 'example.com',
          version: 'v1',
          resource: 'shops',
          kind: 'Shop',
          selector: 'tier=gold',
          namespaces: ['a', 'b'],
        },
        owns: [
          { group: '', version: 'v1', resource: 'pods', kind: 'Pod', strategy: 'CreateOnly' },
          { group: 'apps', version: 'v1', resource: 'deployments', kind: 'Deployment', strategy: 'Apply' },
        ],
        related: [
          {
            group: '',
            version: 'v1',
            resource: 'secrets',
            kind: 'Secret',
            byName: 'spec.credentials.secretName',
            namespacePath: 'spec.credentials.namespace',
            within: 'Namespace',
          },
          { group: '', version: 'v1', resource: 'pods', kind: 'Pod', selector: 'app=x', within: 'Cluster' },
        ],
        changes: ['Generation', 'Annotations'],
        writes: ['Metadata', 'Deletion'],
        binds: [{ kind: 'ClusterRole', name: 'admin' }],
        resyncSeconds: 3600,
        finalize: false,
        serviceAccount: { name: 'fairlead-shop', namespace: 'fairlead-system' },
        invoke: { http: { url: 'http://shop.default' } },
        concurrency: 3,
        timeoutSeconds: 5,
        backoff: { initialSeconds: 0.25, maxSeconds: 9, jitter: 0.1 },
      },
    })
  })

  it('is refused with a wrong value', () => {
    const one = reconciler({ name: 'shop', for: Shop, reconcile: () => undefined })
    expect(() => manifest(one, { invoke: {} })).toThrow('reconciler shop: invoke is {}: give http or pull')
  })
})

describe('a reconciler that the compiler has not seen', () => {
  const whole = { name: 'shop', for: Shop, reconcile: () => undefined }

  it.each([
    [{ name: 'My Shop' }, 'reconciler name "My Shop" is not a DNS label'],
    [{ name: undefined }, 'reconciler name "undefined" is not a DNS label'],
    [{ timeoutSeconds: 'x' }, 'reconciler shop: timeoutSeconds is "x": expected number, received string'],
    [{ timeoutSeconds: 0 }, 'reconciler shop: timeoutSeconds is 0: Too small'],
    [{ writes: ['Status'] }, 'reconciler shop: writes[0] is "Status": Invalid option'],
    [{ selector: 5 }, 'reconciler shop: selector is 5: expected string'],
    [{ related: [{ ...Secret, byName: 'x y' }] }, 'related[0].byName is "x y": write a path such as'],
    [{ related: [{ ...Secret, namespacePath: 'x y' }] }, 'related[0].namespacePath is "x y": write a path such as'],
    [
      { related: [{ ...Secret, namespacePath: 'status.namespace', within: 'Cluster' }] },
      'related[0].within is "Cluster": leave out "Cluster" beside namespacePath, which names the namespaces',
    ],
    [{ related: [{ ...Secret, byname: 'x' }] }, 'related[0] has an unknown option "byname": did you mean "byName"?'],
    [{ owns: [{ ...Secret, adpot: true }] }, 'owns[0] has an unknown option "adpot": did you mean "adopt"?'],
    [{ owns: [{ ...Pod, adopt: true }] }, 'reconciler shop: owns[0].adopt is true: adopt needs strategy Apply'],
    [{ backoff: { max: 3 } }, 'backoff has an unknown option "max": it takes initialSeconds, maxSeconds, jitter'],
    [{ backoff: 3 }, 'backoff is 3: expected object'],
    [{ own: [Pod] }, 'reconciler shop has an unknown option "own": did you mean "owns"?'],
    [{ finalise: () => undefined }, 'an unknown option "finalise": did you mean "finalize"?'],
    [{ reconcile: undefined, reconcil: () => undefined }, 'option "reconcil": did you mean "reconcile"?'],
    [{ colour: 'red' }, 'an unknown option "colour": it takes name, identity, for, selector'],
    [{ reconcile: undefined }, 'reconciler shop has no "reconcile"'],
    [{ finalize: true }, '"finalize" is not a function'],
    [{ owns: Pod }, '"owns" is not a list of kinds'],
    [{ related: [undefined] }, '"related" is not a list of kinds'],
  ])('is refused with %j, in one line that says what to do', (wrong, message) => {
    const make = () => reconciler({ ...whole, ...wrong } as never)
    expect(make).toThrow(message)
    expect(make).toThrow(/^.*$/)
  })
})

describe('an error that asks for a later run', () => {
  it.each([[{}], [undefined], [{ afterSeconds: '5' }], [{ afterSeconds: Number.NaN }], [{ afterSeconds: -1 }]])(
    'is refused with %j, which is no time',
    (options) => {
      expect(() => new RetryAfterError('later', options as never)).toThrow('"later": afterSeconds is ')
    },
  )
})

describe('a reconciler of a kind that is there anyway', () => {
  const Namespace = kind<{ spec?: { finalizers?: string[] } }>({
    group: '',
    version: 'v1',
    kind: 'Namespace',
    plural: 'namespaces',
  })
  const namespace: KubeObject = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'a', uid: 'this-one' } }

  it('has the object as the API server sent it, and leaves its status alone', async () => {
    const quotas = reconciler({
      name: 'quotas',
      for: Namespace,
      reconcile({ object }) {
        expectTypeOf(object).toHaveProperty('spec').toEqualTypeOf<{ finalizers?: string[] } | undefined>()
        return {
          metadata: { labels: { seen: 'yes' } },
          events: [{ type: 'Normal', reason: 'Seen', message: object.metadata.name }],
        }
      },
    })
    expect(manifest(quotas).spec.for).toMatchObject({ resource: 'namespaces', status: 'Untouched' })
    expect(await run(quotas, { object: namespace })).toMatchObject({ events: [{ message: 'a' }] })
  })

  it('cannot return a status', async () => {
    // @ts-expect-error: it has none that is the function's
    const wrong = reconciler({ name: 'wrong', for: Namespace, reconcile: () => ({ status: { phase: 'Active' } }) })
    await expect(run(wrong, { object: namespace })).rejects.toThrow('status')
  })

  it('has to leave out what it makes, where that is of the same kind', () => {
    const copies = { name: 'copies', for: Secret, owns: [Secret], reconcile: () => undefined }
    expect(() => reconciler(copies)).toThrow('reconciler copies owns what it is for')
    expect(() => reconciler({ ...copies, selector: 'copy=yes' })).not.toThrow()
  })
})

describe('an external system without "perform"', () => {
  const reads = (external: object, effect?: { kind: string }) =>
    reconciler({
      name: 'shop',
      for: Shop,
      external: { read: () => 7, ...external },
      reconcile: () => (effect === undefined ? undefined : { effect }),
    })

  it('is read, and the function decides on it', async () => {
    expect(await toInvoke(reads({}))({ ...inputWith(), ask: 'read' }, context)).toBe(7)
    expect(await run(reads({}), { external: 7 })).toEqual({})
  })

  it('refuses an effect before anything is written, and one that another version has decided on', async () => {
    await expect(run(reads({}, { kind: 'open' }), { external: 7 })).rejects.toMatchObject({
      name: 'TerminalError',
      reason: 'InvalidOutcome',
      message: 'the function returned the effect open, but "external" has no "perform": give it one',
    })
    const asked = { ...inputWith(), ask: 'perform' as const, effect: { kind: 'open' } }
    await expect(toInvoke(reads({}))(asked, context)).rejects.toMatchObject({ name: 'OtherVersionError' })
  })

  it.each([
    [{ read: undefined }, 'reconciler shop: "external" has no "read": give it a function of a run'],
    [
      { perform: 'open' },
      'reconciler shop: external.perform is not a function: give it one of an effect and a run, or',
    ],
  ])('of %j is refused when it is declared', (external, message) => {
    expect(() => reads(external)).toThrow(message)
  })
})
