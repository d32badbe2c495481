import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { KubeObject } from '#contracts'
import {
  createKubeClient,
  endsInitialEvents,
  isAlreadyExists,
  isConflict,
  isExpired,
  isForbidden,
  isInvalid,
  isNotFound,
  type KubeClient,
  loadInCluster,
  loadKubeConfig,
  type RequestReport,
  resourcePath,
} from '#kube'
import { borrowCluster } from '../support/borrowed.ts'
import { compactEtcd } from './etcd.ts'

const CONFIG_MAPS = { group: '', version: 'v1', resource: 'configmaps' }
const REVISIONS = { group: 'apps', version: 'v1', resource: 'controllerrevisions' }
const NAMESPACES = { group: '', version: 'v1', resource: 'namespaces' }

let cluster: Awaited<ReturnType<typeof borrowCluster>>
let kube: KubeClient
const reports: RequestReport[] = []

beforeAll(async () => {
  cluster = await borrowCluster()
  const access = await loadKubeConfig({ paths: [cluster.kubeconfig] })
  kube = createKubeClient({ ...access, userAgent: 'test', onRequest: (report) => reports.push(report) })
})
afterAll(async () => {
  await kube?.close()
  await cluster?.[Symbol.asyncDispose]()
})

/** A namespace for one test. */
async function newNamespace(name: string): Promise<string> {
  await kube.create(resourcePath(NAMESPACES), { apiVersion: 'v1', kind: 'Namespace', metadata: { name } })
  return name
}
const configMap = (name: string, data: object = {}, metadata: object = {}) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, ...metadata },
  data,
})
const errorOf = async (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => 'no error',
    (error) => error,
  )
const versionOf = (object: KubeObject): string => object.metadata.resourceVersion ?? ''

describe('apply', () => {
  let namespace: string

  it('stores each character that a creation stores', async () => {
    const all = Array.from({ length: 0x1_0000 }, (_, code) => code).filter((code) => code !== 0)
    const odd = [0x85, 0x2028, 0x2029, 0xfeff, 0x0a, 0x0d].map((code) => ` ${String.fromCharCode(code)} x`).join('|')
    const data = {
      all: String.fromCharCode(...all.filter((code) => code < 0xd800 || code > 0xdfff)),
      odd,
      half: '\ud800 x',
    }
    const created = await kube.create(resourcePath(CONFIG_MAPS, namespace), configMap('created', data))
    const path = resourcePath(CONFIG_MAPS, namespace, 'applied')
    const applied = await kube.apply(path, configMap('applied', data), { fieldManager: 'test', force: true })
    expect((applied as { data?: object }).data).toEqual((created as { data?: object }).data)
  })

  it('stores each key, however long; half of a surrogate pair as the API server reads it in JSON', async () => {
    const long = 'k'.repeat(2000)
    const keys = (half: string) => ({
      [long]: { [long]: 1 },
      [`${half}x`]: [{ [half]: null }],
      '? ': '',
      '<<': { a: 1 },
    })
    const object = { apiVersion: 'apps/v1', kind: 'ControllerRevision', metadata: { name: 'keys' }, revision: 1 }
    const path = resourcePath(REVISIONS, namespace, 'keys')
    const applied = await kube.apply(path, { ...object, data: keys('\ud800') }, { fieldManager: 'test' })
    expect((applied as { data?: object }).data).toEqual(keys('\ufffd'))
  })

  beforeAll(async () => {
    namespace = await newNamespace('apply')
  })
  const path = (name: string) => resourcePath(CONFIG_MAPS, namespace, name)
  const mine = { fieldManager: 'mine', force: true }

  it('creates, changes, and leaves the resourceVersion alone where nothing changes', async () => {
    const created = await kube.apply(path('a'), configMap('a', { x: '1' }), mine)
    const same = await kube.apply(path('a'), configMap('a', { x: '1' }), mine)
    const changed = await kube.apply(path('a'), configMap('a', { x: '2' }), mine)
    expect(versionOf(same)).toBe(versionOf(created))
    expect(versionOf(changed)).not.toBe(versionOf(created))
    expect(await kube.get(path('a'))).toMatchObject({ data: { x: '2' } })
  })

  it('is a conflict with another manager unless forced', async () => {
    await kube.apply(path('b'), configMap('b', { x: '1' }), mine)
    const theirs = configMap('b', { x: '2' })
    expect(isConflict(await errorOf(kube.apply(path('b'), theirs, { fieldManager: 'theirs' })))).toBe(true)
    await kube.apply(path('b'), theirs, { fieldManager: 'theirs', force: true })
  })

  it('does not bring back an object by the uid that it had', async () => {
    const created = await kube.apply(path('c'), configMap('c'), mine)
    await kube.delete(path('c'))
    const again = configMap('c', {}, { uid: created.metadata.uid })
    expect(isConflict(await errorOf(kube.apply(path('c'), again, mine)))).toBe(true)
    expect(isNotFound(await errorOf(kube.get(path('c'))))).toBe(true)
  })

  it('refuses a field that the schema does not have', async () => {
    const wrong = { ...configMap('d'), nonsense: 1 }
    expect(String(await errorOf(kube.apply(path('d'), wrong, mine)))).toContain('field not declared in schema')
  })

  it('only tries when asked for a dry run', async () => {
    expect(await kube.apply(path('e'), configMap('e'), { ...mine, dryRun: true })).toMatchObject({ kind: 'ConfigMap' })
    expect(isNotFound(await errorOf(kube.get(path('e'))))).toBe(true)
  })

  it('writes a status, and never creates an object by it', async () => {
    const conditions = [{ type: 'Fine', status: 'True', lastTransitionTime: null }]
    const status = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace }, status: { conditions } }
    const applied = await kube.applyStatus(resourcePath(NAMESPACES, undefined, namespace), status, mine)
    expect(applied.status).toMatchObject({ conditions: [{ type: 'Fine' }] })
    const missing = { ...status, metadata: { name: 'missing' } }
    const error = await errorOf(kube.applyStatus(resourcePath(NAMESPACES, undefined, 'missing'), missing, mine))
    expect(isNotFound(error)).toBe(true)
  })
})

describe('writes', () => {
  let namespace: string
  beforeAll(async () => {
    namespace = await newNamespace('writes')
  })
  const all = () => resourcePath(CONFIG_MAPS, namespace)
  const path = (name: string) => resourcePath(CONFIG_MAPS, namespace, name)

  it('tell a taken name from a conflict', async () => {
    await kube.create(all(), configMap('a'))
    const error = await errorOf(kube.create(all(), configMap('a')))
    expect([isAlreadyExists(error), isConflict(error)]).toEqual([true, false])
  })

  it('are refused when the object has moved on', async () => {
    const created = await kube.create(all(), configMap('b'))
    const replaced = await kube.replace(path('b'), { ...created, data: { x: '1' } })
    const late = await errorOf(kube.replace(path('b'), { ...created, data: { x: '2' } }))
    expect([isConflict(late), isAlreadyExists(late)]).toEqual([true, false])
    await kube.replace(path('b'), { ...replaced, data: { x: '3' } })
  })

  it('patch by merge, by operations and strategically', async () => {
    await kube.create(all(), configMap('c', { x: '1', y: '1' }))
    await kube.patch(path('c'), { data: { x: null } }, 'merge')
    await kube.patch(path('c'), [{ op: 'add', path: '/data/z', value: '1' }], 'json')
    expect(await kube.patch(path('c'), { data: { y: '2' } }, 'strategic')).toMatchObject({ data: { y: '2', z: '1' } })
  })

  it('delete nothing when the uid or the version is another', async () => {
    const created = await kube.create(all(), configMap('d'))
    expect(isConflict(await errorOf(kube.delete(path('d'), { uid: 'another' })))).toBe(true)
    expect(isConflict(await errorOf(kube.delete(path('d'), { resourceVersion: '1' })))).toBe(true)
    await kube.delete(path('d'), { uid: created.metadata.uid, dryRun: true })
    await kube.get(path('d'))
    await kube.delete(path('d'), { uid: created.metadata.uid, resourceVersion: versionOf(created) })
    expect(isNotFound(await errorOf(kube.delete(path('d'))))).toBe(true)
  })

  it('are invalid with the fields that are wrong', async () => {
    const error = await errorOf(kube.create(all(), configMap('Wrong_Name')))
    expect(isInvalid(error)).toBe(true)
    expect(error).toMatchObject({ details: { causes: [{ field: 'metadata.name' }] } })
  })

  it('are forbidden as an account that may not', async () => {
    const headers = { 'impersonate-user': 'nobody' }
    expect(isForbidden(await errorOf(kube.create(all(), configMap('e'), { headers })))).toBe(true)
  })
})

describe('a list', () => {
  it('gives each object once, with its kind, in pages of one snapshot', async () => {
    const namespace = await newNamespace('pages')
    const all = resourcePath(CONFIG_MAPS, namespace)
    const names = Array.from({ length: 23 }, (_, i) => `c${String(i).padStart(2, '0')}`)
    await Promise.all(names.map((name) => kube.create(all, configMap(name))))
    const pages = []
    for await (const page of kube.list(all, { limit: 5 })) {
      if (pages.length === 0) await kube.create(all, configMap('d-later'))
      pages.push(page)
    }
    expect(pages.flatMap(({ items }) => items.map((item) => item.metadata.name))).toEqual(names)
    expect(pages.map(({ remaining }) => remaining)).toEqual([18, 13, 8, 3, undefined])
    expect(new Set(pages.map(({ resourceVersion }) => resourceVersion)).size).toBe(1)
    expect(pages[0]?.items[0]).toMatchObject({ apiVersion: 'v1', kind: 'ConfigMap' })
  })

  it('is refused for a resource that does not exist', async () => {
    const nothing = resourcePath({ group: 'no.such', version: 'v1', resource: 'things' })
    expect(isNotFound(await errorOf(kube.list(nothing).next()))).toBe(true)
  })
})

describe('a watch', () => {
  it('goes on from a version without gap or repeat', async () => {
    const all = resourcePath(CONFIG_MAPS, await newNamespace('gapless'))
    const page = (await kube.list(all).next()).value
    let from = page?.resourceVersion
    const names = Array.from({ length: 30 }, (_, i) => `c${i}`)
    const writing = (async () => {
      for (const name of names) await kube.create(all, configMap(name))
    })()
    const seen: string[] = []
    while (seen.length < names.length) {
      // Leaves after each three events and comes back with the last version, as after a break.
      for await (const { type, object } of kube.watch(all, { resourceVersion: from })) {
        from = object.metadata.resourceVersion
        if (type === 'ADDED') seen.push(object.metadata.name)
        if (seen.length % 3 === 0) break
      }
    }
    await writing
    expect(seen).toEqual(names)
  })

  it('tells of changes and deletions, and ends when its time is over', async () => {
    const namespace = await newNamespace('kinds')
    const all = resourcePath(CONFIG_MAPS, namespace)
    const one = resourcePath(CONFIG_MAPS, namespace, 'a')
    const options = { labelSelector: 'x=y', allowBookmarks: false }
    const events = kube.watch(all, options)
    const next = async () => (await events.next()).value?.type
    const first = next()
    const labels = { x: 'y' }
    await kube.create(all, configMap('a', {}, { labels }))
    expect(await first).toBe('ADDED')
    await kube.patch(one, { data: { z: '1' } }, 'merge')
    expect(await next()).toBe('MODIFIED')
    await kube.delete(one)
    expect(await next()).toBe('DELETED')
    await events.return()
    const short = kube.watch(all, { ...options, timeoutSeconds: 1 })
    expect(await short.next()).toEqual({ done: true, value: undefined })
  })

  it('is expired when the history from its version on is gone, and so is a list between two pages', async () => {
    const namespace = await newNamespace('expired')
    // Events are the one kind that a kube-apiserver reads from etcd each time, not from its cache (Kubernetes 1.36).
    const all = resourcePath({ group: '', version: 'v1', resource: 'events' }, namespace)
    for (const name of ['a', 'b']) {
      await kube.create(all, { apiVersion: 'v1', kind: 'Event', metadata: { name }, involvedObject: { namespace } })
    }
    const [pages, mixed] = [kube.list(all, { limit: 1 }), kube.list(all, { limit: 1, mayMix: true })]
    for (const one of [pages, mixed]) await one.next()
    await kube.create(all, { apiVersion: 'v1', kind: 'Event', metadata: { name: 'c' }, involvedObject: { namespace } })
    await newNamespace('expired-since')
    await compactEtcd(cluster.dir)
    expect(isExpired(await errorOf(pages.next()))).toBe(true)
    const left = (await Array.fromAsync(mixed)).flatMap(({ items }) => items)
    expect(left.map(({ metadata }) => metadata.name)).toEqual(['b', 'c'])
    expect(isExpired(await errorOf(kube.watch(all, { resourceVersion: '1' }).next()))).toBe(true)
  })

  it('can begin with the present objects and says when they are complete', async () => {
    const all = resourcePath(CONFIG_MAPS, await newNamespace('initial'))
    await kube.create(all, configMap('a'))
    const seen: string[] = []
    for await (const event of kube.watch(all, { sendInitialEvents: true })) {
      if (endsInitialEvents(event)) break
      seen.push(event.object.metadata.resourceVersion ?? '')
    }
    expect(seen).toHaveLength(1)
  })

  it('breaks with the server, and both it and requests come back with it', async () => {
    const all = resourcePath(CONFIG_MAPS, await newNamespace('restart'))
    const created = await kube.create(all, configMap('a'))
    const events = kube.watch(all, { resourceVersion: versionOf(created) })
    const broken = errorOf(events.next())
    await vi.waitFor(() => expect(reports.at(-1)).toMatchObject({ method: 'GET', path: all, code: '200' }), {
      timeout: 60_000,
    })
    await cluster.restart('kube-apiserver')
    expect(await broken).toMatchObject({ name: 'ApiConnectionError', server: kube.host })
    await kube.create(all, configMap('b'))
    // Not from the version of `a`: the cache of the API server may begin after it.
    const names: string[] = []
    for await (const event of kube.watch(all, { sendInitialEvents: true })) {
      if (endsInitialEvents(event)) break
      if (event.type === 'ADDED') names.push(event.object.metadata.name)
    }
    expect(names).toEqual(expect.arrayContaining(['a', 'b']))
  })
})

describe('a service account in a pod', () => {
  it('goes on with the new token when the old one in its file is no longer accepted', async () => {
    const namespace = await newNamespace('pod')
    const account = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'app' } }
    const serviceAccounts = { group: '', version: 'v1', resource: 'serviceaccounts' }
    await kube.create(resourcePath(serviceAccounts, namespace), account)
    const issued = await kube.create<{ status: { token: string } }>(
      resourcePath(serviceAccounts, namespace, 'app', 'token'),
      { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: { expirationSeconds: 600 } },
    )
    const { directory, host, port } = await mountedAccount({ namespace, token: 'expired' })

    const access = await loadInCluster({ host, port, directory, now: () => 0 })
    await writeFile(join(directory, 'token'), `${issued.status.token}\n`)
    await using pod = createKubeClient({ ...access, userAgent: 'pod' })
    const review = await pod.create('/apis/authentication.k8s.io/v1/selfsubjectreviews', {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'SelfSubjectReview',
    })
    expect(review.status).toMatchObject({ userInfo: { username: 'system:serviceaccount:pod:app' } })
    expect(access.namespace).toBe(namespace)
    const secrets = resourcePath({ group: '', version: 'v1', resource: 'secrets' }, namespace)
    expect(String(await errorOf(pod.list(secrets).next()))).toContain(
      'User "system:serviceaccount:pod:app" cannot list',
    )
  })

  /** What a kubelet puts into every container. */
  async function mountedAccount(content: { namespace: string; token: string }) {
    const directory = join(cluster.dir, 'serviceaccount')
    const { ca = '' } = await loadKubeConfig({ paths: [cluster.kubeconfig] })
    await mkdir(directory, { recursive: true })
    await Promise.all(
      Object.entries({ 'ca.crt': ca, ...content }).map(([name, text]) => writeFile(join(directory, name), text)),
    )
    const { hostname: host, port } = new URL(cluster.apiServer)
    return { directory, host, port }
  }
})
