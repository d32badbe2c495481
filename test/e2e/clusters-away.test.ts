import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { createKubeClient, isUnauthorized, loadKubeConfig } from '#kube'
import { fairlead } from '../support/fairlead.ts'
import { type LossyProxy, startLossyProxy } from '../support/lossy-proxy.ts'
import { until } from '../support/wait.ts'
import {
  age,
  down,
  grant,
  itemPath,
  replaceStore,
  revoke,
  seed,
  setFull,
  snapshot,
  watchesOf,
} from './clusters-faults.ts'
import { type Listed, type Served, type Site, startSites } from './clusters-world.ts'

const KEYS = 2000
const FEW = 20
const EDITS = 3
/** Less than a request to a frozen API server waits: 30 s. */
const UNDISTURBED_MS = 20_000
/** The timers of keys are due when the test says so. */
const NEVER = { size: 0, everySeconds: 1_000_000 }

const named = (count: number) => Array.from({ length: count }, (_, index) => `key-${index}`)

let sites: Awaited<ReturnType<typeof startSites<'a' | 'b' | 'c'>>>
let a: Site, b: Site, c: Site
let up: Served
/** In front of a and c. */
let proxies: { a: LossyProxy; c: LossyProxy }
let listed: Listed[]
let size = 0

const kubeconfigOf = (name: 'a' | 'c') => join(sites.dir, name)

beforeAll(async () => {
  sites = await startSites(['a', 'b', 'c'])
  ;[a, b, c] = [sites.site('a'), sites.site('b'), sites.site('c')]
  proxies = { a: await startLossyProxy(a.cluster.apiServer), c: await startLossyProxy(c.cluster.apiServer) }
  await grant(a, 'first', { to: kubeconfigOf('a'), server: proxies.a.url })
  await grant(c, 'first', { to: kubeconfigOf('c'), server: proxies.c.url })
  listed = [
    { name: 'a', kubeconfig: kubeconfigOf('a') },
    { name: 'b', kubeconfig: b.cluster.kubeconfig },
    { name: 'c', kubeconfig: kubeconfigOf('c') },
  ]
  await sites.list(listed)
  up = await sites.up()
  await Promise.all(listed.map(({ name }) => up.entered(name, 'Up')))
  await Promise.all([seed(a, named(KEYS), NEVER), seed(c, named(FEW), NEVER), b.create('edited', { size })])
  await Promise.all([ran('a', KEYS, 0), ran('c', FEW, 0)])
})
afterAll(async () => {
  await up?.[Symbol.asyncDispose]()
  await Promise.all(Object.values(proxies ?? {}).map((proxy) => proxy[Symbol.asyncDispose]()))
  await sites?.[Symbol.asyncDispose]()
})
afterEach(() => {
  proxies.a.delay(0)
  proxies.c.hang(false)
})

describe('b is served as before, no run begins in a cluster that is away until it is back, and then each of its keys runs', () => {
  it('when one is frozen with 2,000 due keys, and another hangs behind a proxy that keeps connections open', async () => {
    a.signal('SIGSTOP')
    proxies.c.hang(true)
    const from = { a: await makeDue('a'), c: await makeDue('c') }
    await expectFollowed(b)
    await Promise.all([entered('a', 'Away', from.a), entered('c', 'Away', from.c)])
    await expectFollowed(b)
    a.signal('SIGCONT')
    proxies.c.hang(false)
    await Promise.all([ran('a', KEYS, from.a), ran('c', FEW, from.c)])
    expectLaws()
  })

  it('when etcd of one has no space, which is no state of the cluster, and the credential of another is revoked', async () => {
    await setFull(a, true)
    await revoke(c, 'first')
    const from = { a: await makeDue('a', named(FEW)), c: await makeDue('c') }
    const { key } = await up.process.logged(
      ({ cluster, result, message }) => cluster === 'a' && result === 'error' && FULL.test(String(message)),
    )
    expect((await entered('c', 'Refused', from.c))['because']).toContain('does not accept the credentials')
    // The API server accepts a token from its memory for some seconds, in which the keys may have run.
    from.c = await makeDue('c')
    await expectFollowed(b)
    await until(async () => /^cluster a: Up since \S+: .*space exceeded/m.test((await up.get('/readyz')).text))
    await up.process.logged(({ cluster, because }) => cluster === 'a' && FULL.test(String(because)))
    const explained = () => cli('--cluster', 'a', 'explain', `item/${key?.split('/')[1]}`)
    await until(async () => FULL.test((await explained()).stdout))
    const failures = await cli('--cluster', 'a', 'queue', 'ls', 'item', '-o', 'json')
    expect(failures.stdout, 'no failure is counted').not.toMatch(/"attempt": [1-9]/)

    await setFull(a, false)
    await grant(c, 'second', { to: kubeconfigOf('c'), server: proxies.c.url })
    await Promise.all([ran('a', FEW, from.a), ran('c', FEW, from.c), entered('c', 'Up', from.c)])
    expectLaws()
  })

  it('when one is slow, which its state says; a new token opens no watch again, and a new address is used', async () => {
    proxies.a.delay(SLOW_MS)
    const from = { a: await makeDue('a', named(2 * FEW)), c: up.process.logs.length }
    // It has just come back: until then its watch may not be open.
    await expectFollowed(c, 'key-0')
    const watches = await watchesOf(c)
    await using second = createKubeClient({
      ...(await loadKubeConfig({ paths: [kubeconfigOf('c')] })),
      userAgent: 'test',
    })
    await grant(c, 'third', { to: kubeconfigOf('c'), server: proxies.c.url })
    await revoke(c, 'second')
    const isRefused = () => second.get(itemPath('key-0')).then(() => false, isUnauthorized)
    await until(async () => {
      await expectFollowed(c, 'key-0')
      return isRefused()
    })
    await expectFollowed(c, 'key-0')
    expect(await watchesOf(c)).toBe(watches)
    expect(states('c', from.c)).toEqual([])

    await grant(c, 'fourth', { to: kubeconfigOf('c'), server: c.cluster.apiServer })
    await entered('c', 'Up', from.c)
    proxies.c.hang(true)
    await expectFollowed(c, 'key-0')
    expect(keysOf('c', 'started', from.c)).toEqual(new Set(['default/key-0']))
    proxies.c.hang(false)

    await until(async () => /^cluster a: Up since \S+: the API server is slow/m.test((await up.get('/readyz')).text))
    await expectFollowed(b)
    proxies.a.delay(0)
    await ran('a', 2 * FEW, from.a)
    expect(states('a', from.a)).toEqual([])
    expectLaws()
  })

  it('when one is restored from an older store: what it has is run, and nothing is deleted; a copy of it is never served', async () => {
    const older = join(sites.dir, 'older')
    await down(a, () => snapshot(a, older))
    await until(() => states('a').at(-1) === 'Up')
    await a.create('later', NEVER)
    await a.kube.delete(itemPath('key-1'))
    for (const name of ['key-0', 'later']) await expectFollowed(a, name)
    await age(a, 500)
    const before = up.process.logs.length
    const maps = new Set(await a.maps())

    const others = listed.filter(({ name }) => name !== 'c')
    await sites.list(others)
    const own = await down(c, () => replaceStore(c, older))
    await down(a, async () => {
      await entered('a', 'Away', before)
      await sites.list([...others, { name: 'copy', kubeconfig: c.cluster.kubeconfig }])
      expect((await entered('copy', 'Refused', before))['because']).toContain('in cluster a')
      await expectFollowed(b)
      await replaceStore(a, older)
    })
    await ran('a', 2, before, ['key-0', 'key-1'])
    await expectFollowed(a, 'key-1')
    expect(states('copy')).toEqual(['Refused'])
    // Until its Item is known to be gone, the ConfigMap of `later` is made again. The garbage collector of Kubernetes deletes it.
    const later = new Set(['later'])
    expect(new Set(await a.maps()).union(later)).toEqual(maps.union(later))
    expectLaws()
    await down(c, () => replaceStore(c, own))
  })
})

const FULL = /cannot write, because its store is full.*space exceeded/
/** Each way. */
const SLOW_MS = 1000

const cli = (...args: string[]) => fairlead(['--clusters', sites.file, ...args], { NATS_URL: sites.nats.url })

/** Makes keys of the cluster due, whether it answers or not; left out: all. Returns the position in the log of before. */
async function makeDue(cluster: string, keys?: readonly string[]): Promise<number> {
  const from = up.process.logs.length
  const which = keys === undefined ? ['--all', '--state', 'waiting'] : keys.map((key) => `default/${key}`)
  const { code, stderr } = await cli('--cluster', cluster, 'queue', 'retry', 'item', ...which)
  expect({ code, stderr }).toMatchObject({ code: 0 })
  return from
}

/** Edits an Item again and again: its status follows each time, as if there were no other cluster. */
async function expectFollowed(site: Site, name = 'edited'): Promise<void> {
  for (let edit = 0; edit < EDITS; edit++) expect(await site.edit(name, ++size)).toBeLessThan(UNDISTURBED_MS)
}

/** The states that the cluster has had since then. */
const states = (cluster: string, from = 0) => changes(cluster, from).map(({ state }) => state)

const changes = (cluster: string, from: number) =>
  up.process.logs.slice(from).filter((line) => line.msg === 'cluster' && line['cluster'] === cluster)

const entered = (cluster: string, state: string, from: number) =>
  until(
    () => {
      const [found] = changes(cluster, from).filter((line) => line['state'] === state)
      if (found === undefined) throw new Error(`${cluster} is ${JSON.stringify(states(cluster))}, not ${state}`)
      return found
    },
    { what: `${cluster} is ${state}` },
  )

/** The keys of the cluster that have come so far since then. */
const keysOf = (cluster: string, step: string, from: number) =>
  new Set(
    up.process.logs
      .slice(from)
      .flatMap((line) => (line['cluster'] === cluster && line.msg === 'run' && line.step === step ? [line.key] : [])),
  )

/** Until so many keys of the cluster, or these, have run without an error since then. */
const ran = (cluster: string, count: number, from: number, names: readonly string[] = []) =>
  until(
    () => {
      const keys = new Set(
        up.process.logs
          .slice(from)
          .flatMap((line) => (line['cluster'] === cluster && line['result'] === 'requeue_after' ? [line.key] : [])),
      )
      return keys.size >= count && names.every((name) => keys.has(`default/${name}`))
    },
    { what: `${count} keys of ${cluster} have run` },
  )

function expectLaws(): void {
  for (const { name } of listed) {
    let state: unknown = 'Up'
    const early: unknown[] = []
    for (const line of up.process.logs) {
      if (line['cluster'] !== name) continue
      if (line.msg === 'cluster') state = line['state']
      if (line.step === 'started' && state !== 'Up') early.push(line)
    }
    expect(early).toEqual([])
    expect(up.doubled(name)).toEqual([])
  }
}
