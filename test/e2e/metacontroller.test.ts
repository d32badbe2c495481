import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { isNotFound, resourcePath } from '#kube'
import { CATSETS, CONFIG_MAPS, configMap } from '../functions/metacontroller/hooks.ts'
import { command } from '../support/command.ts'
import type { FairleadProcess } from '../support/fairlead.ts'
import { startFairlead } from '../support/fairlead.ts'
import { type HttpReceiver, type ReceivedRequest, startHttpReceiver } from '../support/http-receiver.ts'
import { startTestCluster } from '../support/servers.ts'
import { until, type World, worldOn } from './world.ts'

const DEFINITIONS = { group: 'apiextensions.k8s.io', version: 'v1', resource: 'customresourcedefinitions' }
const CONTROLLERS = { group: 'metacontroller.k8s.io', version: 'v1alpha1', resource: 'compositecontrollers' }
const DECORATORS = { ...CONTROLLERS, resource: 'decoratorcontrollers' }
const CATS = { group: 'ctl.example.com', version: 'v1', resource: 'catsets' }
const KENNELS = { ...CATS, resource: 'kennels' }
const MAPS = { group: '', version: 'v1', resource: 'configmaps' }
const RECONCILERS = { group: 'fairlead.dev', version: 'v1alpha1', resource: 'reconcilers' }
const ROLES = { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'clusterroles' }
const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }

const OPEN = { 'x-kubernetes-preserve-unknown-fields': true }
/** `status` without fields, as that of Metacontroller: nothing that is written there stays. */
const definitionOf = (
  group: string,
  version: string,
  kind: string,
  plural: string,
  scope: string,
  status: object,
  others: object = {},
) => ({
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: {
    name: `${plural}.${group}`,
    // For a group that ends with k8s.io.
    annotations: { 'api-approved.kubernetes.io': 'unapproved, a test' },
  },
  spec: {
    group,
    names: { kind, plural },
    scope,
    versions: [
      {
        name: version,
        served: true,
        storage: true,
        subresources: { status: {} },
        schema: {
          openAPIV3Schema: {
            type: 'object',
            properties: {
              spec: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
              status: { type: 'object', ...status },
              ...others,
            },
          },
        },
      },
    ],
  },
})

interface Cats extends KubeObject {
  spec: { replicas: number; misspelt?: boolean }
  status?: {
    replicas?: number
    observedGeneration?: number
    conditions?: { type: string; status: string; message: string }[]
  }
}

/** As a user has written it: it knows nothing of Fairlead. */
function answerOf({ url, body }: ReceivedRequest): object {
  if (url === '/tag')
    return {
      labels: { tagged: 'yes' },
      attachments: [{ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'plain' } }],
    }
  if (url === '/litter') {
    const { parent } = JSON.parse(body.toString()) as { parent: { spec: { fur: string } } }
    const kitten = (name: string) => ({
      apiVersion: 'ctl.example.com/v1',
      kind: 'Kitten',
      metadata: { name },
      spec: { fur: parent.spec.fur },
    })
    return { status: {}, children: ['tom', 'kit', 'mog'].map(kitten) }
  }
  if (url === '/customize')
    return { relatedResources: [{ ...CONFIG_MAPS, labelSelector: { matchLabels: { breed: 'any' } } }] }
  if (url === '/kennel') {
    const { related } = JSON.parse(body.toString()) as { related: Record<string, object> }
    return { status: { breeds: Object.keys(related['ConfigMap.v1'] ?? {}).sort() }, children: [] }
  }
  const { parent, children } = JSON.parse(body.toString()) as {
    parent: Cats
    children: Record<string, Record<string, object>>
  }
  const { name } = parent.metadata
  const present = Object.keys(children['ConfigMap.v1'] ?? {})
  if (url === '/finalize')
    return present.includes(`${name}-farewell`)
      ? { finalized: true, children: [] }
      : { finalized: false, children: [configMap(`${name}-farewell`)] }
  const wanted = Array.from({ length: parent.spec.replicas }, (_, index) => configMap(`${name}-${index}`))
  return parent.spec.misspelt ? { childs: wanted } : { status: { replicas: present.length }, children: wanted }
}

let world: World
let hook: HttpReceiver
let up: FairleadProcess
beforeAll(async () => {
  hook = await startHttpReceiver((request, response) => {
    response.end(JSON.stringify(answerOf(request)))
  })
  world = await worldOn(startTestCluster({ nats: true, controllers: true }), async () => undefined)
  for (const crd of [
    definitionOf('metacontroller.k8s.io', 'v1alpha1', 'CompositeController', 'compositecontrollers', 'Cluster', {}),
    definitionOf('metacontroller.k8s.io', 'v1alpha1', 'DecoratorController', 'decoratorcontrollers', 'Cluster', {}),
    definitionOf('ctl.example.com', 'v1', 'CatSet', 'catsets', 'Namespaced', OPEN),
    definitionOf('ctl.example.com', 'v1', 'Kennel', 'kennels', 'Namespaced', OPEN),
    definitionOf('ctl.example.com', 'v1', 'Litter', 'litters', 'Namespaced', OPEN),
    definitionOf('ctl.example.com', 'v1', 'Kitten', 'kittens', 'Namespaced', OPEN),
    definitionOf(
      'metacontroller.k8s.io',
      'v1alpha1',
      'ControllerRevision',
      'controllerrevisions',
      'Namespaced',
      {},
      {
        parentPatch: { type: 'object', ...OPEN },
        children: { type: 'array', items: { type: 'object', ...OPEN } },
      },
    ),
  ])
    await world.kube.create(resourcePath(DEFINITIONS), crd)
  await until(() => created('catset-controller'))
})
afterAll(async () => {
  await up?.[Symbol.asyncDispose]()
  await world?.[Symbol.asyncDispose]()
  await hook?.[Symbol.asyncDispose]()
})

const controllerSpec = () => ({
  parentResource: CATSETS,
  childResources: [{ ...CONFIG_MAPS, updateStrategy: { method: 'InPlace' } }],
  generateSelector: true,
  hooks: { sync: { webhook: { url: `${hook.url}/sync` } }, finalize: { webhook: { url: `${hook.url}/finalize` } } },
})

function falseIfMissing(error: unknown): false {
  if (isNotFound(error)) return false
  throw error
}

/** False until the definition is served. */
const created = (name: string, spec: object = controllerSpec(), annotations: Record<string, string> = {}) =>
  world.kube
    .create(resourcePath(CONTROLLERS), {
      apiVersion: 'metacontroller.k8s.io/v1alpha1',
      kind: 'CompositeController',
      metadata: { name, annotations },
      spec,
    })
    .then(() => true, falseIfMissing)

const installed = async (): Promise<string> => {
  const { code, stderr } = await command(['install', '--adapter', 'metacontroller'], world.env)
  if (code !== 0) throw new Error(stderr)
  return stderr
}
const cats = (name: string) => resourcePath(CATS, 'default', name)
const catsOf = (name: string) => world.kube.get<Cats>(cats(name))
const create = (name: string, replicas: number) =>
  world.kube.create<Cats>(resourcePath(CATS, 'default'), {
    apiVersion: 'ctl.example.com/v1',
    kind: 'CatSet',
    metadata: { name, namespace: 'default' },
    spec: { replicas },
  })
/** A child as Metacontroller makes it. */
const made = ({ apiVersion, metadata: { name: owner, uid = '' } }: Cats, name: string, annotations: object = {}) =>
  world.kube.create<KubeObject>(resourcePath(MAPS, 'default'), {
    ...configMap(name),
    metadata: {
      name,
      namespace: 'default',
      labels: { 'controller-uid': uid },
      annotations,
      ownerReferences: [{ apiVersion, kind: 'CatSet', name: owner, uid, controller: true, blockOwnerDeletion: true }],
    },
  })
const edit = (name: string, spec: object) => world.kube.patch(cats(name), { spec }, 'merge')

async function mapsOf(name: string): Promise<KubeObject[]> {
  const all: KubeObject[] = []
  for await (const { items } of world.kube.list<KubeObject>(resourcePath(MAPS, 'default'))) all.push(...items)
  return all.filter(({ metadata }) => metadata.name.startsWith(`${name}-`))
}
const namesOf = async (name: string) => (await mapsOf(name)).map(({ metadata }) => metadata.name).sort()
const untilNames = (name: string, names: string[]) =>
  until(async () => JSON.stringify(await namesOf(name)) === JSON.stringify(names), { what: `children ${names.join()}` })
const failureOf = (object: Cats) =>
  object.status?.conditions?.find(({ type, status }) => type === 'Reconciled' && status === 'False')?.message
const untilFails = (name: string, words: string) =>
  until(async () => failureOf(await catsOf(name))?.includes(words) === true, { what: `${name} fails with ${words}` })
const untilTold = (name: string, reason: string) =>
  until(async () => {
    for await (const { items } of world.kube.list<KubeObject & { regarding?: { name: string }; reason?: string }>(
      resourcePath(EVENTS),
    ))
      if (items.some((one) => one.regarding?.name === name && one.reason === reason)) return true
    return false
  })

it('children of Metacontroller change hands by install alone: the difference is empty, and they stay what they are', async () => {
  const parent = await create('siamese', 1)
  await created('beyond', { ...controllerSpec(), endpointConfigs: [] })
  const refused = await command(['install', '--adapter', 'metacontroller'], world.env)
  expect(refused.code).not.toBe(0)
  expect(refused.stderr).toContain('CompositeController beyond has what is not offered: spec.endpointConfigs')
  const missing = world.kube.get(resourcePath(RECONCILERS, undefined, 'composite-catset-controller'))
  await expect(missing).rejects.toSatisfy(isNotFound)
  await world.kube.delete(resourcePath(CONTROLLERS, undefined, 'beyond'), {})
  const theirs = await made(parent, 'siamese-0', { 'metacontroller.k8s.io/last-applied-configuration': '{}' })
  expect(await installed()).toContain('1 objects that were made before are marked')
  const { stdout } = await command(['diff', '--adapter', 'metacontroller', '--all', '-o', 'json'], world.env)
  const { reconcilers } = JSON.parse(stdout) as { reconcilers: { reconciler: string; shapes: object[] }[] }
  const difference = reconcilers.find(({ reconciler }) => reconciler === 'composite-catset-controller')
  expect(difference).toMatchObject({ objects: 1, failed: 0 })
  expect(JSON.stringify(difference?.shapes)).not.toContain('ConfigMap')
  up = startFairlead(['up', '--adapter', 'metacontroller'], world.env)
  await until(async () => (await catsOf('siamese')).status?.replicas === 1)
  const [{ metadata, ...content } = theirs] = await mapsOf('siamese')
  expect({ ...content, uid: metadata.uid, labels: metadata.labels }).toEqual({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    data: { purr: 'yes' },
    uid: theirs.metadata.uid,
    labels: theirs.metadata.labels,
  })
  await edit('siamese', { replicas: 0 })
  await untilNames('siamese', [])
})

it('a parent has the children and the status that its hook answers, and follows its changes', async () => {
  const { metadata } = await create('tabby', 2)
  await untilNames('tabby', ['tabby-0', 'tabby-1'])
  const [first] = await mapsOf('tabby')
  expect(first?.metadata).toMatchObject({
    labels: { 'controller-uid': metadata.uid },
    ownerReferences: [{ kind: 'CatSet', uid: metadata.uid, controller: true, blockOwnerDeletion: true }],
  })
  await until(async () => (await catsOf('tabby')).status?.replicas === 2)
  expect((await catsOf('tabby')).status).toMatchObject({ replicas: 2, observedGeneration: 1 })
  await edit('tabby', { replicas: 1 })
  await untilNames('tabby', ['tabby-0'])
})

it('an answer with a misspelt field deletes nothing, and the parent says so', async () => {
  await create('manx', 1)
  await untilNames('manx', ['manx-0'])
  await edit('manx', { misspelt: true })
  await untilFails('manx', 'without any field that is known')
  expect(await namesOf('manx')).toEqual(['manx-0'])
  await edit('manx', { misspelt: false, replicas: 2 })
  await untilNames('manx', ['manx-0', 'manx-1'])
})

it('the finalize hook is asked until it has finalized, and its children come first', async () => {
  await create('lynx', 1)
  await untilNames('lynx', ['lynx-0'])
  await world.kube.delete(cats('lynx'), {})
  await until(() => catsOf('lynx').then(() => false, isNotFound))
  const asked = hook.received.filter(({ url, body }) => url === '/finalize' && body.includes('"lynx"'))
  const [before, after] = [asked[0], asked.at(-1)].map(
    (one) => JSON.parse(one?.body.toString() ?? '').children['ConfigMap.v1'],
  )
  expect([Object.keys(before), Object.keys(after)]).toEqual([['lynx-0'], ['lynx-farewell']])
})

it('a child of Metacontroller that is not marked is shown to the hook, and neither changed nor made twice', async () => {
  const parent = await create('bengal', 0)
  await until(async () => (await catsOf('bengal')).status?.replicas === 0)
  const theirs = await made(parent, 'bengal-0')
  await edit('bengal', { replicas: 1 })
  await untilFails('bengal', 'kubectl annotate')
  const asked = hook.received.findLast(({ body }) => body.includes('"bengal"'))
  expect(Object.keys(JSON.parse(asked?.body.toString() ?? '').children['ConfigMap.v1'])).toEqual(['bengal-0'])
  expect(await mapsOf('bengal')).toMatchObject([{ metadata: { uid: theirs.metadata.uid } }])
})

it('the rights of a controller are those for its parents and children alone', async () => {
  const { rules } = await world.kube.get<{ rules: { resources: string[] }[] }>(
    resourcePath(ROLES, undefined, 'fairlead-composite-catset-controller'),
  )
  const resources = new Set(rules.flatMap((rule) => rule.resources))
  expect([...resources].sort()).toEqual([
    'catsets',
    'catsets/finalizers',
    'catsets/status',
    'compositecontrollers',
    'configmaps',
    'events',
  ])
})

it('a decorator labels the objects of others, and owns its attachments', async () => {
  await world.kube.create(resourcePath(DECORATORS), {
    apiVersion: 'metacontroller.k8s.io/v1alpha1',
    kind: 'DecoratorController',
    metadata: { name: 'tagger' },
    spec: {
      resources: [
        { apiVersion: 'v1', resource: 'configmaps', annotationSelector: { matchAnnotations: { tag: 'yes' } } },
      ],
      attachments: [{ apiVersion: 'v1', resource: 'secrets' }],
      hooks: { sync: { webhook: { url: `${hook.url}/tag` } } },
    },
  })
  await installed()
  const path = resourcePath(MAPS, 'default', 'plain')
  const plain = { ...configMap('plain'), metadata: { name: 'plain', namespace: 'default', labels: { of: 'others' } } }
  await world.kube.create(resourcePath(MAPS, 'default'), plain)
  await world.kube.patch(path, { metadata: { annotations: { tag: 'yes' } } }, 'merge')
  const secret = resourcePath({ group: '', version: 'v1', resource: 'secrets' }, 'default', 'plain')
  const attached = await until(() => world.kube.get<KubeObject>(secret).catch(falseIfMissing))
  expect(attached).toMatchObject({ metadata: { ownerReferences: [{ kind: 'ConfigMap', name: 'plain' }] } })
  await until(async () => (await world.kube.get<KubeObject>(path)).metadata.labels?.['tagged'] === 'yes')
  expect((await world.kube.get<KubeObject>(path)).metadata.labels).toEqual({ of: 'others', tagged: 'yes' })
})

it('a customize hook chooses the objects that sync is given, of kinds that its controller grants, and their changes count', async () => {
  const spec = {
    parentResource: { ...CATSETS, resource: 'kennels' },
    generateSelector: true,
    hooks: {
      sync: { webhook: { url: `${hook.url}/kennel` } },
      customize: { webhook: { url: `${hook.url}/customize` } },
    },
  }
  await created('kennel-controller', spec, { 'fairlead.dev/related': 'configmaps.v1' })
  await installed()
  const breed = (name: string, labels: Record<string, string>) =>
    world.kube.create(resourcePath(MAPS, 'default'), configMap(name, { namespace: 'default', labels }))
  await breed('beagle', { breed: 'any' })
  await breed('wolf', {})
  await world.kube.create(resourcePath(KENNELS, 'default'), {
    apiVersion: 'ctl.example.com/v1',
    kind: 'Kennel',
    metadata: { name: 'dogs', namespace: 'default' },
    spec: {},
  })
  const untilBreeds = (breeds: string[]) =>
    until(
      async () => {
        const { status } = await world.kube.get<{ status?: { breeds?: string[] } }>(
          resourcePath(KENNELS, 'default', 'dogs'),
        )
        return JSON.stringify(status?.breeds) === JSON.stringify(breeds)
      },
      { what: `breeds ${breeds.join()}` },
    )
  await untilBreeds(['beagle'])
  await breed('pug', { breed: 'any' })
  await untilBreeds(['beagle', 'pug'])
  await world.kube.patch(resourcePath(MAPS, 'default', 'wolf'), { metadata: { labels: { breed: 'any' } } }, 'merge')
  await untilBreeds(['beagle', 'pug', 'wolf'])
  await world.kube.delete(resourcePath(MAPS, 'default', 'pug'), {})
  await untilBreeds(['beagle', 'wolf'])
})

it('a rolling update changes one child after the other, as each is ready, and its revisions are those of Metacontroller', async () => {
  const [LITTERS, KITTENS] = [
    { ...CATS, resource: 'litters' },
    { ...CATS, resource: 'kittens' },
  ]
  const updateStrategy = {
    method: 'RollingInPlace',
    statusChecks: { conditions: [{ type: 'Ready', status: 'True' }] },
  }
  await created('litter-controller', {
    parentResource: { ...CATSETS, resource: 'litters' },
    childResources: [{ ...CATSETS, resource: 'kittens', updateStrategy }],
    generateSelector: true,
    hooks: { sync: { webhook: { url: `${hook.url}/litter` } } },
  })
  await installed()
  const litter = resourcePath(LITTERS, 'default', 'july')
  await world.kube.create(resourcePath(LITTERS, 'default'), {
    apiVersion: 'ctl.example.com/v1',
    kind: 'Litter',
    metadata: { name: 'july', namespace: 'default' },
    spec: { fur: 'white' },
  })
  const furs = async () => {
    const all: (KubeObject & { spec: { fur: string } })[] = []
    for await (const { items } of world.kube.list<(typeof all)[number]>(resourcePath(KITTENS, 'default')))
      all.push(...items)
    return Object.fromEntries(all.map(({ metadata: { name }, spec }) => [name, spec.fur]))
  }
  const untilFurs = (tom: string, kit: string, mog: string) =>
    until(async () => JSON.stringify(await furs()) === JSON.stringify({ kit, mog, tom }), {
      what: `${tom} ${kit} ${mog}`,
    })
  const isReady = (name: string, status: string) =>
    world.kube.patch(
      `${resourcePath(KITTENS, 'default', name)}/status`,
      { status: { conditions: [{ type: 'Ready', status }] } },
      'merge',
    )
  const updated = async () => {
    const { status } = await world.kube.get<Cats>(litter)
    return status?.conditions?.find(({ type }) => type === 'Updated')?.message ?? ''
  }
  await untilFurs('white', 'white', 'white')
  for (const name of ['tom', 'kit', 'mog']) await isReady(name, 'True')
  await isReady('tom', 'False')
  await world.kube.patch(litter, { spec: { fur: 'black' } }, 'merge')
  await untilFurs('black', 'white', 'white')
  await until(async () => (await updated()).includes('child Kitten tom fails its status check'))
  const revisions = { ...CONTROLLERS, resource: 'controllerrevisions' }
  const claims: unknown[] = []
  for await (const { items } of world.kube.list<KubeObject & { parentPatch: { spec: object }; children: object[] }>(
    resourcePath(revisions, 'default'),
  ))
    claims.push(...items.map(({ parentPatch, children }) => ({ ...parentPatch.spec, children })))
  const of = (...names: string[]) => [{ apiGroup: 'ctl.example.com', kind: 'Kitten', names }]
  expect(claims).toHaveLength(2)
  expect(claims).toContainEqual({ fur: 'black', children: of('tom') })
  expect(claims).toContainEqual({ fur: 'white', children: of('kit', 'mog') })
  expect(await furs()).toEqual({ tom: 'black', kit: 'white', mog: 'white' })
  await isReady('tom', 'True')
  await untilFurs('black', 'black', 'black')
  await until(async () => (await updated()).startsWith('latest ControllerRevision: litters.ctl.example.com-'))
})

it('a changed webhook counts at once; other children count when they are installed, and nothing happens before', async () => {
  await create('korat', 1)
  await untilNames('korat', ['korat-0'])
  const path = resourcePath(CONTROLLERS, undefined, 'catset-controller')
  const { hooks } = controllerSpec()
  const moved = { ...hooks, sync: { webhook: { url: `${hook.url}/moved` } } }
  await world.kube.patch(path, { spec: { hooks: moved } }, 'merge')
  const asked = () => hook.received.filter(({ url, body }) => url === '/moved' && body.includes('"korat"'))
  await until(() => asked().length > 0)
  await world.kube.patch(path, { metadata: { annotations: { image: 'registry.example.com/cats:2' } } }, 'merge')
  await until(() => asked().some(({ body }) => body.includes('cats:2')), { what: 'another image runs all parents' })
  const childResources = [{ ...CONFIG_MAPS, updateStrategy: { method: 'Recreate' } }]
  await world.kube.patch(path, { spec: { childResources } }, 'merge')
  await untilTold('catset-controller', 'ControllerChanged')
  await untilTold('korat', 'ControllerChanged')
  expect(failureOf(await catsOf('korat'))).toBeUndefined()
  await installed()
  await until(async () => failureOf(await catsOf('korat')) === undefined)
  await edit('korat', { replicas: 2 })
  await untilNames('korat', ['korat-0', 'korat-1'])
})

it('a controller that is not installed says so, and one with what is not offered keeps only itself from being installed', async () => {
  await created('another', {
    ...controllerSpec(),
    parentResource: { ...CATSETS, labelSelector: { matchLabels: { a: 'b' } } },
    hooks: { sync: controllerSpec().hooks.sync },
  })
  await untilTold('another', 'NotInstalled')
  await created('beyond', { ...controllerSpec(), endpointConfigs: [] })
  await untilTold('beyond', 'NotOffered')
  const refused = await command(['install', '--adapter', 'metacontroller'], world.env)
  expect(refused.code).not.toBe(0)
  expect(refused.stderr).toContain('CompositeController beyond has what is not offered: spec.endpointConfigs')
  await world.kube.get(resourcePath(RECONCILERS, undefined, 'composite-another'))
  await world.kube.delete(resourcePath(CONTROLLERS, undefined, 'beyond'), {})
})

it('one controller that is gone is uninstalled alone, as install says', async () => {
  await world.kube.delete(resourcePath(CONTROLLERS, undefined, 'another'), {})
  const uninstall = 'fairlead uninstall --adapter metacontroller --reconciler composite-another'
  expect(await installed()).toContain(uninstall)
  const { code, stderr } = await command([...uninstall.split(' ').slice(1), '--release-finalizers'], world.env)
  expect({ code, stderr }).toMatchObject({ code: 0 })
  for (const [ref, name] of [
    [RECONCILERS, 'composite-another'],
    [ROLES, 'fairlead-composite-another'],
  ] as const)
    await expect(world.kube.get(resourcePath(ref, undefined, name))).rejects.toSatisfy(isNotFound)
  await world.kube.get(resourcePath(RECONCILERS, undefined, 'composite-catset-controller'))
})

it('uninstall takes back what was installed for controllers, also for one that is gone', async () => {
  await world.kube.delete(resourcePath(CONTROLLERS, undefined, 'catset-controller'), {})
  const removed = await command(['uninstall', '--adapter', 'metacontroller', '--release-finalizers'], world.env)
  expect({ code: removed.code, stderr: removed.stderr }).toMatchObject({ code: 0 })
  for (const [ref, name] of [
    [RECONCILERS, 'composite-catset-controller'],
    [ROLES, 'fairlead-composite-catset-controller'],
    [ROLES, 'fairlead-composite-catset-controller-watch'],
  ] as const)
    await expect(world.kube.get(resourcePath(ref, undefined, name))).rejects.toSatisfy(isNotFound)
  expect(await namesOf('korat')).toEqual(['korat-0', 'korat-1'])
  expect((await catsOf('korat')).metadata.finalizers ?? []).toEqual([])
})
