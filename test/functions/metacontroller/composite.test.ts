import { once } from 'node:events'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { describe, expect, it } from 'vitest'
import { composite } from '#functions/metacontroller'
import { issueFrom, newAuthority } from '#pki'
import { type KubeObject, manifest, RetryAfterError } from '#sdk'
import { outcomeOf, simulate } from '#testing'
import type { HttpReceiver } from '../../support/http-receiver.ts'
import {
  bodyOf,
  CATSETS,
  CONFIG_MAPS,
  childOf,
  configMap,
  controllerOf,
  decisionOf,
  parentOf,
  SERVED,
  startHook,
} from './hooks.ts'

describe('what a hook is asked', () => {
  it('has controller, parent, children by kind and name, related and finalizing, in JSON', async () => {
    await using hook = await startHook({ children: [] })
    const controller = controllerOf(hook.url, {
      childResources: [CONFIG_MAPS, { apiVersion: 'apps/v1', resource: 'statefulsets' }],
    })
    const parent = parentOf()
    const child = childOf(parent, configMap('tom'))
    await decisionOf(controller, parent, { others: [child] })
    expect(hook.received[0]).toMatchObject({ method: 'POST', headers: { 'content-type': 'application/json' } })
    expect(bodyOf(hook)).toMatchObject({
      controller: { metadata: { name: 'catset-controller' } },
      parent: { metadata: { name: 'cats' } },
      children: { 'ConfigMap.v1': { tom: { data: { purr: 'yes' } } }, 'StatefulSet.apps/v1': {} },
      related: {},
      finalizing: false,
    })
  })

  const isOf = (scope: 'namespaced' | 'cluster'): KubeObject =>
    scope === 'namespaced' ? parentOf() : parentOf({ kind: 'Cage' }, { name: 'cage', namespace: undefined })
  it.each([
    ['v1', 'namespaced', 'tom'],
    ['v2', 'namespaced', 'zoo/tom'],
    ['v1', 'cluster', 'zoo/tom'],
    ['v2', 'cluster', 'zoo/tom'],
  ] as const)('names a namespaced child, in %s of a %s parent, %s', async (version, scope, key) => {
    await using hook = await startHook({ children: [] })
    const parent = isOf(scope)
    const resource = scope === 'namespaced' ? 'catsets' : 'cages'
    const controller = controllerOf(hook.url, {
      parentResource: { ...CATSETS, resource },
      hooks: { sync: { version, webhook: { url: hook.url } } },
    })
    await decisionOf(controller, parent, { others: [childOf(parent, configMap('tom'))] })
    expect(Object.keys(bodyOf(hook)['children']?.['ConfigMap.v1'] as object)).toEqual([key])
  })

  it('has children that Metacontroller has made, and none of other parents', async () => {
    await using hook = await startHook({ children: [] })
    const parent = parentOf()
    const theirs = childOf(parentOf({}, { name: 'dogs', uid: 'parent-2' }), configMap('rex'))
    const unowned = { ...configMap('stray', { namespace: 'zoo', labels: { 'controller-uid': 'parent-1' } }) }
    await decisionOf(controllerOf(hook.url), parent, { others: [childOf(parent, configMap('tom')), theirs, unowned] })
    expect(Object.keys(bodyOf(hook)['children']?.['ConfigMap.v1'] as object)).toEqual(['tom'])
  })

  it('goes to url, or else to service and path', async () => {
    await using hook = await startHook({ children: [] })
    const { port } = new URL(hook.url)
    const service = { name: '127', namespace: '1', port: Number(port) }
    const controller = controllerOf('', { hooks: { sync: { webhook: { service, path: '/sync' } } } })
    await decisionOf(controller, parentOf())
    expect(hook.received.map(({ url }) => url)).toEqual(['/sync'])
  })

  it('follows the controller as it is now: its hooks need no installation', async () => {
    await using before = await startHook({ children: [] })
    await using now = await startHook({ children: [] })
    const made = composite(controllerOf(before.url), SERVED)
    await outcomeOf(made, { object: parentOf(), others: [controllerOf(now.url)] })
    expect([before.received.length, now.received.length]).toEqual([0, 1])
  })
})

describe('what an answer does', () => {
  const answered = async (answer: object, spec: object = {}, parent = parentOf(), others: KubeObject[] = []) => {
    await using hook = await startHook(answer)
    return await decisionOf(controllerOf(hook.url, spec), parent, { others })
  }

  it('applies children, and labels them by generateSelector', async () => {
    const { apply } = await answered({ children: [configMap('tom'), configMap('kit', { labels: { a: 'b' } })] })
    expect(apply?.map(({ metadata }) => [metadata.name, metadata.labels])).toEqual([
      ['tom', { 'controller-uid': 'parent-1' }],
      ['kit', { a: 'b', 'controller-uid': 'parent-1' }],
    ])
  })

  it.each([[{ children: [] }], [{ children: null }], [{ status: {} }]])('wants no children by %j', async (answer) => {
    expect(await answered(answer)).toMatchObject({ apply: [] })
  })

  it('takes the last one of two children with one name', async () => {
    const { apply } = await answered({ children: [configMap('tom'), { ...configMap('tom'), data: { purr: 'no' } }] })
    expect(apply).toMatchObject([{ data: { purr: 'no' } }])
  })

  it.each([
    [{ children: [], resyncAfterSeconds: 1.5 }, 1.5],
    [{ children: [], resyncAfterSeconds: 0 }, undefined],
    [{ children: [], resyncAfterSeconds: -1 }, undefined],
    [{ children: [] }, undefined],
  ])('%j asks for another run after %s s', async (answer, seconds) => {
    expect((await answered(answer)).requeueAfterSeconds).toBe(seconds)
  })

  it('gives its events to the parent, and from them alone nothing follows', async () => {
    const events = [{ type: 'Warning', reason: 'Hungry', message: 'no fish' }]
    expect(await answered({ children: [configMap('tom')], events })).toMatchObject({ apply: [{}], events })
    await expect(answered({ events })).rejects.toThrow('would delete all children')
    await expect(answered({ children: [], events: [{ reason: 'no word' }] })).rejects.toThrow('events')
  })

  it('replaces the status, with its conditions, and leaves those of Fairlead', async () => {
    const conditions = ['Old', 'Ready', 'Reconciled'].map((type) => ({ type, status: 'True', reason: 'R' }))
    const parent = parentOf({ status: { replicas: 1, gone: true, conditions } })
    const status = { replicas: 2, observedGeneration: 1, conditions: [{ type: 'Ready', status: 'False' }] }
    const outcome = await answered({ children: [], status }, {}, parent)
    expect(outcome.status).toEqual({ replicas: 2 })
    expect(outcome.conditions).toEqual([
      { type: 'Ready', status: 'False', reason: 'Reported' },
      { type: 'Old', status: null },
    ])
  })

  it('writes no status where the definition of the parent has no such subresource', async () => {
    const hermits = { parentResource: { ...CATSETS, resource: 'hermits' } }
    const outcome = await answered({ children: [], status: { a: 1 } }, hermits, parentOf({ kind: 'Hermit' }))
    expect(outcome).toEqual({ apply: [] })
  })

  it.each([
    ['no JSON', 'no valid JSON', '<html>'],
    ['null', 'no object', 'null'],
    ['a list', 'no object', '[]'],
    ['no field', 'without any field that is known', '{}'],
    ['a misspelt field alone', 'without any field that is known', '{"childs": []}'],
    ['a misspelt field beside another', 'with "childs" and without "children"', '{"status": {}, "childs": []}'],
    ['children that are no list', '"children" that is no list', '{"children": {}}'],
    [
      'a child without a name',
      'children[0]',
      '{"children": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}]}',
    ],
    [
      'a child with a label that is no text',
      'children[0]',
      JSON.stringify({ children: [configMap('a', { labels: { a: 1 } })] }),
    ],
    ['a status that is no object', 'status', '{"children": [], "status": 3}'],
    ['conditions that are no list', 'status.conditions', '{"children": [], "status": {"conditions": {}}}'],
    [
      'a child of another kind',
      'not in spec.childResources',
      '{"children": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}]}',
    ],
    [
      'a child in another namespace',
      'its parent is in zoo',
      JSON.stringify({ children: [configMap('a', { namespace: 'sea' })] }),
    ],
    [
      'a child of another selector',
      'do not match',
      JSON.stringify({ children: [configMap('a', { labels: { 'controller-uid': 'x' } })] }),
    ],
  ])('is refused, and deletes nothing, with %s', async (_, why, text) => {
    await using hook = await startHook(text)
    await expect(decisionOf(controllerOf(hook.url), parentOf())).rejects.toThrow(why)
  })

  const known = JSON.stringify({ children: [], extra: 1 })
  const twice = '{"children": [], "status": {"children": 1}, "children": []}'
  it.each([
    ['v1', undefined, known, undefined],
    ['v1', undefined, twice, undefined],
    ['v1', 'strict', known, '"extra"'],
    ['v1', 'strict', twice, '"children" twice'],
    ['v2', undefined, known, '"extra"'],
    ['v2', undefined, twice, '"children" twice'],
    ['v2', 'loose', known, undefined],
    ['v2', 'loose', twice, undefined],
  ] as const)('%s with responseUnMarshallMode %s: %s', async (version, responseUnMarshallMode, text, refused) => {
    await using hook = await startHook(text)
    const sync = { version, webhook: { url: hook.url, responseUnMarshallMode } }
    const outcome = decisionOf(controllerOf(hook.url, { hooks: { sync } }), parentOf())
    expect(await outcome.then(() => 'taken', String)).toContain(refused ?? 'taken')
  })
})

describe('a hook that does not answer with 200', () => {
  const NOW = '2030-01-01T00:00:00Z'
  it.each([
    ['30', 30],
    ['99999999999999', 86_400],
    ['Tue, 01 Jan 2030 00:00:20 GMT', 20],
    ['Mon, 31 Dec 2029 00:00:00 GMT', undefined],
    ['soon', undefined],
    [undefined, undefined],
  ])('429 with Retry-After %s waits %s s, or by the backoff', async (header, seconds) => {
    await using hook = await startHook((response) => {
      response.writeHead(429, header === undefined ? {} : { 'retry-after': header }).end()
    })
    const error: unknown = await decisionOf(controllerOf(hook.url), parentOf(), { now: NOW }).catch(
      (one: unknown) => one,
    )
    expect(error instanceof RetryAfterError ? error.afterSeconds : undefined).toBe(seconds)
    expect(String(error)).toContain('answered 429')
  })

  it.each([500, 404, 201, 204, 302])('%d is a failure, with what it says', async (code) => {
    await using hook = await startHook((response) => void response.writeHead(code).end('{"children": []}'))
    await expect(decisionOf(controllerOf(hook.url), parentOf())).rejects.toThrow(
      `the sync hook at ${hook.url}/ answered ${code}`,
    )
  })

  it('fails after its timeout, which names it', async () => {
    await using hook = await startHook(() => undefined)
    const controller = controllerOf('', { hooks: { sync: { webhook: { url: hook.url, timeout: '0.05s' } } } })
    await expect(decisionOf(controller, parentOf())).rejects.toThrow('has not answered within 0.05 s')
  })

  it('fails over TLS unless its authority is known, which caBundle.inline names', async () => {
    const validity = { now: new Date(), days: 1 }
    const authority = newAuthority({ cn: 'hooks' }, validity)
    const { certificate: cert, privateKey } = issueFrom(
      authority,
      { subject: { cn: 'hook' }, sans: ['127.0.0.1'] },
      validity,
    )
    const key = privateKey.export({ type: 'pkcs8', format: 'pem' })
    const server = createServer({ cert, key }, (_, response) => response.end('{"children":[]}')).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const url = `https://127.0.0.1:${port}/`
    const asking = (webhook: object) =>
      decisionOf(controllerOf(url, { hooks: { sync: { webhook: { url, ...webhook } } } }), parentOf())
    expect(await asking({ caBundle: { inline: authority.certificate } })).toMatchObject({ apply: [] })
    await expect(asking({})).rejects.toThrow('cannot be reached')
    server.closeAllConnections()
    server.close()
  })

  it('is named where nobody listens', async () => {
    const hook = await startHook({})
    await hook[Symbol.asyncDispose]()
    await expect(decisionOf(controllerOf(hook.url), parentOf())).rejects.toThrow(
      `the sync hook at ${hook.url}/ cannot be reached`,
    )
  })
})

describe('the selector of a parent', () => {
  const selecting = { generateSelector: false }
  it.each([
    [{ matchLabels: { app: 'cats' } }, { app: 'cats' }, true],
    [{ matchLabels: { app: 'cats' } }, { app: 'dogs' }, false],
    [{ matchExpressions: [{ key: 'app', operator: 'In', values: ['cats', 'dogs'] }] }, { app: 'dogs' }, true],
    [{ matchExpressions: [{ key: 'app', operator: 'In', values: ['cats'] }] }, {}, false],
    [{ matchExpressions: [{ key: 'app', operator: 'NotIn', values: ['cats'] }] }, {}, true],
    [{ matchExpressions: [{ key: 'app', operator: 'NotIn', values: ['cats'] }] }, { app: 'cats' }, false],
    [{ matchExpressions: [{ key: 'app', operator: 'Exists' }] }, { app: '' }, true],
    [{ matchExpressions: [{ key: 'app', operator: 'DoesNotExist' }] }, { app: '' }, false],
  ])('%j takes a child with %j: %s', async (selector, labels, isTaken) => {
    await using hook = await startHook({ children: [configMap('tom', { labels })] })
    const outcome = decisionOf(controllerOf(hook.url, selecting), parentOf({ spec: { selector } }))
    expect(await outcome.then(() => 'taken', String)).toContain(isTaken ? 'taken' : 'do not match')
  })

  it.each([[undefined], [{}], [{ matchLabels: {} }], ['app=cats'], [{ matchLabels: { a: 1 } }]])(
    '%j is an error, and the hook is not asked',
    async (selector) => {
      await using hook = await startHook({ children: [] })
      const outcome = decisionOf(controllerOf(hook.url, selecting), parentOf({ spec: { selector } }))
      await expect(outcome).rejects.toMatchObject({ reason: 'NoSelector' })
      expect(hook.received).toEqual([])
    },
  )

  it('that a child no longer matches is no reason to delete the child', async () => {
    await using hook = await startHook({ children: [] })
    const parent = parentOf()
    const child = childOf(parent, configMap('tom'), { 'controller-uid': 'released' })
    const outcome = decisionOf(controllerOf(hook.url), parent, { others: [child] })
    await expect(outcome).rejects.toMatchObject({ reason: 'ReleaseNotOffered' })
  })
})

describe('finalize', () => {
  const finalizing = (url: string) => ({
    hooks: { sync: { webhook: { url } }, finalize: { webhook: { url: `${url}/finalize` } } },
  })
  const GONE = {
    deletionTimestamp: '2030-01-01T00:00:00Z',
    finalizers: ['metacontroller.io/compositecontroller-catset-controller'],
  }

  it('is asked in place of sync while the parent is being deleted, also with the finalizer of Metacontroller', async () => {
    await using hook = await startHook({ finalized: false, children: [configMap('tom')] })
    const outcome = await decisionOf(controllerOf('', finalizing(hook.url)), parentOf({}, GONE))
    expect(hook.received.map(({ url }) => url)).toEqual(['/finalize'])
    expect(bodyOf(hook)).toMatchObject({ finalizing: true })
    expect(outcome).toMatchObject({ apply: [{ metadata: { name: 'tom' } }] })
  })

  it.each([
    [{ finalized: true, children: [configMap('tom')] }, false, undefined],
    [{ finalized: false, children: [] }, true, 315_576_000],
    [{ finalized: false, children: [], resyncAfterSeconds: 5 }, true, 5],
  ])('by %j manages children: %s, and waits %s s', async (answer, isManaging, seconds) => {
    await using hook = await startHook(answer)
    const outcome = await decisionOf(controllerOf('', finalizing(hook.url)), parentOf({}, GONE))
    expect([outcome.apply !== undefined, outcome.requeueAfterSeconds]).toEqual([isManaging, seconds])
  })

  it.each(['foregroundDeletion', 'orphan'])('leaves the children to garbage collection with %s', async (finalizer) => {
    await using hook = await startHook({ finalized: false, children: [] })
    const parent = parentOf({}, { ...GONE, finalizers: [...GONE.finalizers, finalizer] })
    const { apply } = await decisionOf(controllerOf('', finalizing(hook.url)), parent)
    expect(apply).toBeUndefined()
  })

  it('has both finalizers removed when the hook has finalized', async () => {
    await using hook = await startHook((response) => {
      const isFinalizing = hook.received.at(-1)?.url === '/finalize'
      response.end(JSON.stringify(isFinalizing ? { finalized: true } : { children: [configMap('tom')] }))
    })
    const controller = controllerOf('', finalizing(hook.url))
    const world = simulate(composite(controller, SERVED), {
      objects: [parentOf({}, { finalizers: GONE.finalizers }), controller],
    })
    await world.runUntilIdle()
    expect(world.object?.metadata.finalizers).toHaveLength(2)
    world.delete()
    await world.runUntilIdle()
    expect(world.object).toBeUndefined()
  })
})

describe('the Reconciler of a controller', () => {
  const FORMER = ['metacontroller.io/compositecontroller-catset-controller']
  const specOf = (spec: object, name?: string) => manifest(composite(controllerOf('http://hook', spec, name), SERVED))

  it.each([
    [undefined, 'CreateOnly'],
    ['OnDelete', 'CreateOnly'],
    ['Recreate', 'CreateOnly'],
    ['InPlace', 'Apply'],
  ])('writes children of the method %s by the strategy %s', (method, strategy) => {
    const childResources = [{ ...CONFIG_MAPS, ...(method && { updateStrategy: { method } }) }]
    expect(specOf({ childResources }).spec.owns).toMatchObject([
      { resource: 'configmaps', kind: 'ConfigMap', strategy },
    ])
  })

  it.each([
    [{}, { for: { kind: 'CatSet' }, finalize: false, timeoutSeconds: 3600, concurrency: 5, formerFinalizers: FORMER }],
    [{ resyncPeriodSeconds: 30 }, { resyncSeconds: 30 }],
    [{ resyncPeriodSeconds: 0 }, { resyncSeconds: undefined }],
    [
      {
        parentResource: {
          ...CATSETS,
          labelSelector: {
            matchLabels: { a: 'b' },
            matchExpressions: [
              { key: 'c', operator: 'NotIn', values: ['d', 'e'] },
              { key: 'f', operator: 'DoesNotExist' },
            ],
          },
        },
      },
      { for: { selector: 'a=b,c notin (d,e),!f' } },
    ],
    [
      { parentResource: { ...CATSETS, ignoreStatusChanges: true } },
      { changes: ['Generation', 'Labels', 'Annotations'] },
    ],
    [
      {
        hooks: {
          sync: { webhook: { url: 'http://hook', timeout: '1m30s' } },
          finalize: { webhook: { url: 'http://hook' } },
        },
      },
      {
        timeoutSeconds: 3600,
        finalize: true,
        formerFinalizers: FORMER,
      },
    ],
  ])('of %j has %j', (spec, expected) => {
    expect(specOf(spec).spec).toMatchObject(expected)
  })

  it.each([
    ['catset-controller', 'composite-catset-controller'],
    ['cats.example.com', /^composite-[0-9a-f]{16}$/],
    ['c'.repeat(200), /^composite-[0-9a-f]{16}$/],
    ['secret-watch', /^composite-[0-9a-f]{16}$/],
  ])('of %s is named %s', (name, expected) => {
    expect(specOf({}, name).metadata.name).toMatch(expected)
  })

  it('keeps the status of the parent only where there is such a subresource', () => {
    const status = (resource: string) => specOf({ parentResource: { ...CATSETS, resource } }).spec.for.status
    expect([status('catsets'), status('hermits')]).toEqual([undefined, 'Untouched'])
  })

  const hooks = (webhook: object) => ({ hooks: { sync: { webhook: { url: 'http://hook', ...webhook } } } })
  it.each([
    [{ hooks: { sync: { webhook: { url: 'http://hook' } }, customize: {} } }, 'spec.hooks.customize'],
    [
      {
        childResources: [{ ...CONFIG_MAPS, updateStrategy: { method: 'InPlace', statusChecks: { phase: 'Running' } } }],
      },
      'spec.childResources.0.updateStrategy.statusChecks',
    ],
    [{ endpointConfigs: [] }, 'spec.endpointConfigs'],
    [hooks({ authorization: {} }), 'spec.hooks.sync.webhook.authorization'],
    [hooks({ basicAuth: {} }), 'spec.hooks.sync.webhook.basicAuth'],
    [hooks({ clientTLS: {} }), 'spec.hooks.sync.webhook.clientTLS'],
    [hooks({ caBundle: { secretRef: {} } }), 'spec.hooks.sync.webhook.caBundle.secretRef'],
    [hooks({ caBundle: { configMapRef: {} } }), 'spec.hooks.sync.webhook.caBundle.configMapRef'],
    [hooks({ retries: 3 }), 'retries'],
    [{ hooks: { sync: {} } }, 'spec.hooks.sync has no webhook'],
    [{ hooks: { sync: { webhook: { path: '/sync' } } } }, 'spec.hooks.sync.webhook needs an url, or service and path'],
    [
      {
        parentResource: { ...CATSETS, labelSelector: { matchLabels: { a: 'b' } } },
        hooks: { finalize: { webhook: { url: 'http://hook' } } },
      },
      'spec.hooks.finalize beside',
    ],
    [{ hooks: { sync: { version: 'v3', webhook: { url: 'http://hook' } } } }, 'spec.hooks.sync.version'],
    [{ somethingNew: true }, 'somethingNew'],
    [
      { childResources: [{ apiVersion: 'v1', resource: 'unicorns' }] },
      'spec.childResources[0]: unicorns of v1 is not served',
    ],
  ])('is refused for what is not offered, by its path: %j', (spec, path) => {
    expect(() => specOf(spec)).toThrow(path)
    expect(() => specOf(spec)).toThrow('CompositeController catset-controller has what is not offered')
  })
})

describe('a controller that is not as it was installed', () => {
  const FINALIZE = (url: string) => ({
    hooks: { sync: { webhook: { url } }, finalize: { webhook: { url: `${url}/finalize` } } },
  })
  const decided = async (hook: HttpReceiver, now: KubeObject[], parent: KubeObject, before: object = {}) =>
    outcomeOf(composite(controllerOf(hook.url, before), SERVED), { object: parent, others: now })

  it.each([
    ['a method', { childResources: [{ ...CONFIG_MAPS, updateStrategy: { method: 'OnDelete' } }] }, 'ControllerChanged'],
    ['a selector', { parentResource: { ...CATSETS, labelSelector: { matchLabels: { a: 'b' } } } }, 'ControllerChanged'],
    ['what is not offered', { endpointConfigs: [] }, 'NotOffered'],
  ])('with %s keeps its parents as they are, and they have an Event alone', async (_, spec, reason) => {
    await using hook = await startHook({ children: [] })
    const outcome = await decided(hook, [controllerOf(hook.url, spec)], parentOf())
    expect(outcome).toEqual({ events: [expect.objectContaining({ type: 'Warning', reason })] })
    expect(hook.received).toEqual([])
  })

  it.each([
    ['resyncPeriodSeconds', () => ({ resyncPeriodSeconds: 30 })],
    ['a longer timeout', (url: string) => ({ hooks: { sync: { webhook: { url, timeout: '20m' } } } })],
    ['a finalize hook', FINALIZE],
  ])('with %s goes on', async (_, specOf) => {
    await using hook = await startHook({ children: [] })
    await decided(hook, [controllerOf(hook.url, specOf(hook.url))], parentOf())
    expect(hook.received).toHaveLength(1)
  })

  const GOING = {
    deletionTimestamp: '2030-01-01T00:00:00Z',
    finalizers: ['metacontroller.io/compositecontroller-catset-controller'],
  }
  it('finalizes what is being deleted, as long as the kinds are the same', async () => {
    await using hook = await startHook({ finalized: true })
    const now = controllerOf(hook.url, { ...FINALIZE(hook.url), resyncPeriodSeconds: 3 })
    await decided(hook, [now], parentOf({}, GOING), FINALIZE(hook.url))
    expect(hook.received.map(({ url }) => url)).toEqual(['/finalize'])
  })

  it.each([
    ['is gone', () => []],
    ['has other kinds', (url: string) => [controllerOf(url, { ...FINALIZE(url), childResources: [] })]],
  ])('and %s keeps the finalizer of what is being deleted', async (_, now) => {
    await using hook = await startHook({ finalized: true })
    const outcome = await decided(hook, now(hook.url), parentOf({}, GOING), FINALIZE(hook.url))
    expect(outcome).toMatchObject({ requeueAfterSeconds: 315_576_000 })
    expect(outcome.apply).toBeUndefined()
    expect(hook.received).toEqual([])
  })

  it('and is gone deletes no child, and writes nothing', async () => {
    await using hook = await startHook({ children: [configMap('tom')] })
    const world = simulate(composite(controllerOf(hook.url), SERVED), { objects: [parentOf()] })
    await world.runUntilIdle()
    expect(world.events).toMatchObject([{ reason: 'ControllerGone' }])
    expect(world.writes.filter(({ verb }) => verb === 'delete')).toEqual([])
  })

  it('and has lost its finalize hook takes back the finalizer of Metacontroller from what is being deleted', async () => {
    await using hook = await startHook({ children: [] })
    const controller = controllerOf(hook.url)
    const world = simulate(composite(controller, SERVED), { objects: [parentOf({}, GOING), controller] })
    await world.runUntilIdle()
    expect(world.object).toBeUndefined()
  })
})

describe('an answer that is harmless', () => {
  const answered = async (answer: object) => {
    await using hook = await startHook(answer)
    return await decisionOf(controllerOf(hook.url), parentOf())
  }
  const child = (metadata: object, fields: object = {}) => ({
    children: [{ ...configMap('tom'), ...fields, metadata: { name: 'tom', ...metadata } }],
  })
  it.each([
    ['null in metadata', child({ annotations: null, labels: null, ownerReferences: null, creationTimestamp: null })],
    ['an empty namespace', child({ namespace: '' })],
    ['fields of an outcome of Fairlead', child({}, { stage: 'x', retain: true })],
  ])('with %s is taken', async (_, answer) => {
    const { apply } = await answered(answer)
    expect(apply).toEqual([
      { ...configMap('tom'), metadata: { name: 'tom', namespace: 'zoo', labels: { 'controller-uid': 'parent-1' } } },
    ])
  })

  it.each([
    [null, []],
    [
      [{ type: 'Ready', status: 'True', reason: 'All pods are ready' }],
      [{ type: 'Ready', status: 'True', reason: 'Reported' }],
    ],
  ])('with the conditions %j has %j', async (conditions, expected) => {
    expect((await answered({ children: [], status: { conditions } })).conditions ?? []).toEqual(expected)
  })

  it('waits ten years at most', async () => {
    const { requeueAfterSeconds } = await answered({ children: [], resyncAfterSeconds: 1e12 })
    expect(requeueAfterSeconds).toBe(315_576_000)
  })
})
