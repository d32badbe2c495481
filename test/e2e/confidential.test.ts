import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createOrphanedKeySweeper } from '#bridge'
import type { KubeObject } from '#contracts'
import { openDeadLetters } from '#events'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import type { JetStream } from '#nats'
import { openQueue } from '#queue'
import { RECONCILERS } from '#spec'
import { borrowCluster } from '../support/borrowed.ts'
import { type FairleadProcess, startFairlead } from '../support/fairlead.ts'
import { connectTo, storedIn } from '../support/jetstream.ts'
import { silent } from '../support/silent.ts'
import { digest, reversed } from './vault.ts'
import { until } from './world.ts'

const MODULE = fileURLToPath(new URL('./vault.ts', import.meta.url))
const VAULTS = { group: 'test.fairlead.dev', version: 'v1', resource: 'vaults' }
const SECRETS = { group: '', version: 'v1', resource: 'secrets' }
const CONFIG_MAPS = { group: '', version: 'v1', resource: 'configmaps' }
const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }
/** Contents of a Secret in invalid events that another client has published. */
const BROKEN = `broken-${crypto.randomUUID()}`
const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration'

let cluster: Awaited<ReturnType<typeof borrowCluster>>
let kube: KubeClient
let js: JetStream
let up: FairleadProcess
/** Everything that anybody has published on this NATS server, requests and answers too, subjects and headers included. */
const published: string[] = []
const values = new Map<string, string>()

const value = (name: string): string => {
  const made = values.get(name) ?? `${name}-${crypto.randomUUID()}`
  values.set(name, made)
  return made
}
const base64 = (text: string) => Buffer.from(text).toString('base64')

beforeAll(async () => {
  cluster = await borrowCluster({ nats: true })
  const env = {
    KUBECONFIG: cluster.kubeconfig,
    NATS_URL: cluster.nats?.url ?? '',
    FAIRLEAD_REFERENCE_ONLY: 'configmaps,vaults.test.fairlead.dev',
  }
  kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  js = await connectTo(env.NATS_URL, 'listener')
  js.nc.subscribe('>', {
    callback: (_, { subject, headers, data }) => {
      published.push(`${subject}\n${JSON.stringify([...(headers ?? [])])}\n${Buffer.from(data).toString('latin1')}`)
    },
  })
  await js.flush()
  up = startFairlead(['up', '--install', '-f', MODULE], env)
  await up.logged(({ msg }) => msg === 'reconciler served')
})
afterAll(async () => {
  await up?.[Symbol.asyncDispose]()
  await js?.close()
  await kube?.close()
  await cluster?.[Symbol.asyncDispose]()
})

const create = (name: string, act: string, password = value(name)): Promise<KubeObject> =>
  kube.create(resourcePath(VAULTS, 'default'), {
    apiVersion: 'test.fairlead.dev/v1',
    kind: 'Vault',
    metadata: { name, namespace: 'default', annotations: { [LAST_APPLIED]: `{"password":"${password}"}` } },
    spec: { act, password },
  })

const statusOf = async (name: string) =>
  ((await kube.get(resourcePath(VAULTS, 'default', name))).status ?? {}) as {
    seen?: string[]
    observedGeneration?: number
    conditions?: { type: string; reason: string; message: string }[]
  }
const hasSeen = (name: string, ...texts: string[]) =>
  until(async () => {
    const { seen = [] } = await statusOf(name)
    return texts.every((text) => seen.includes(digest(text)))
  })
const hasFailed = (name: string) => up.logged(({ msg, key }) => msg === 'run failed' && key === `default/${name}`)
const ownedBy = (owner: KubeObject, name: string, data: Record<string, string>) => ({
  metadata: {
    name,
    namespace: 'default',
    annotations: { [LAST_APPLIED]: JSON.stringify({ data }), 'tool.example.com/original': JSON.stringify({ data }) },
    ownerReferences: [
      {
        apiVersion: 'test.fairlead.dev/v1',
        kind: 'Vault',
        name: owner.metadata.name,
        uid: owner.metadata.uid,
        controller: true,
      },
    ],
  },
})

it('gives a function the values of what it owns, though only references travel', async () => {
  await create('kept', 'keep')
  await hasSeen('kept', value('kept'))
  const { seen = [] } = await statusOf('kept')
  expect(seen.filter((one) => one === digest(value('kept')))).toHaveLength(3)
  await kube.patch(resourcePath(VAULTS, 'default', 'kept'), { spec: { act: 'look' } }, 'merge')
  await until(async () => (await statusOf('kept')).observedGeneration === 2)
  await kube.patch(resourcePath(SECRETS, 'default', 'kept'), { data: { password: base64(value('changed')) } }, 'merge')
  await hasSeen('kept', value('changed'))
})

it('gives it what it created before objects were marked, over the size limit too', async () => {
  const owner = await create('looks', 'look')
  const options = { fieldManager: 'fairlead-vault' }
  const large = value('large').padEnd(600_000, '.')
  const data = { large: base64(large) }
  await kube.create(resourcePath(SECRETS, 'default'), { ...ownedBy(owner, 'large', {}), data }, options)
  const copy = { copy: value('foreign-map') }
  await kube.create(resourcePath(CONFIG_MAPS, 'default'), { ...ownedBy(owner, 'copy', copy), data: copy }, options)
  await hasSeen('looks', large, value('foreign-map'))
})

it('sets a key of a Secret of others, tells of a conflict over it, and gives it back', async () => {
  const theirs = resourcePath(SECRETS, 'default', 'theirs')
  const dataOf = async () => (await kube.get<KubeObject & { data?: Record<string, string> }>(theirs)).data
  const made = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'theirs' }, data: { own: base64(value('own')) } }
  await kube.apply(theirs, made, { fieldManager: 'them' })
  await create('lent', 'lend')
  await until(async () => (await dataOf())?.['key'] === base64(value('lent')))
  await hasSeen('lent', value('lent'))
  await kube.patch(theirs, { data: { key: base64(value('taken')) } }, 'merge', { fieldManager: 'thief' })
  await hasFailed('lent')
  const { conditions } = await statusOf('lent')
  expect(conditions).toMatchObject([
    { reason: 'FieldConflict', message: expect.stringMatching(/\.data\.key: conflict with "thief"/) },
  ])
  await kube.patch(theirs, { data: { key: null } }, 'merge', { fieldManager: 'thief' })
  await until(async () => (await dataOf())?.['key'] === base64(value('lent')))
  await kube.delete(resourcePath(VAULTS, 'default', 'lent'))
  await until(async () => (await dataOf())?.['key'] === undefined)
  expect(await dataOf()).toEqual({ own: base64(value('own')) })
})

it('tells of failures without the values that were in them', async () => {
  await create('throws', 'throw')
  await create('refuses', 'refuse')
  values.set('mistypes', String(Math.trunc(1e12 + Math.random() * 1e12)))
  await create('mistypes', 'mistype')
  await create('misplaces', 'misplace')
  await create('undeclares', 'undeclare')
  values.set('made', reversed(value('undeclares')))
  // A word of the Reconciler, its resource and the path of its function.
  await create('vault', 'throw', 'vault')
  for (const name of ['throws', 'refuses', 'mistypes', 'misplaces', 'undeclares', 'vault']) await hasFailed(name)
  await until(async () => ((await statusOf('refuses')).conditions ?? []).length > 0)
  const { conditions = [] } = await statusOf('refuses')
  expect(conditions).toMatchObject([
    { type: 'Reconciled', reason: 'WeakPassword', message: '[confidential] is too short' },
    { type: 'Ready', reason: 'WeakPassword', message: 'terminal error: [confidential] is too short' },
  ])
  expect((await hasFailed('throws'))['err']).toMatchObject({
    message: 'cannot log in with [confidential]: [confidential] was refused',
  })
  expect((await hasFailed('vault'))['err']).toMatchObject({
    message: 'cannot log in with [confidential]: [confidential] was refused',
    stack: expect.stringContaining(`${MODULE}:`),
  })
})

it('keeps nothing in DEAD of a broken event of a Secret', async () => {
  const headers = { 'ce-specversion': '1.0', 'ce-id': '1', 'ce-source': '/', 'ce-type': 'x' }
  const broken = [
    { reason: 'invalid-attribute', headers: { ...headers, 'ce-time': BROKEN }, data: '{}' },
    {
      reason: 'invalid-data',
      headers: { ...headers, 'content-type': 'application/json' },
      data: `{"data":${BROKEN}`,
    },
  ]
  for (const { reason, headers, data } of broken)
    await js.publish(`k8s._.v1.secrets.default.vaults~kept.${reason}`, data, headers)
  await kube.patch(resourcePath(VAULTS, 'default', 'kept'), { spec: { act: 'keep' } }, 'merge')
  for (const { reason } of broken) {
    const subject = `k8s._.v1.secrets.default.vaults~kept.${reason}`
    await until(async () => published.some((one) => one.startsWith(`dead._.${reason}.${subject}\n`)))
    await until(async () => (await js.lastOf('EVENTS', subject)) === undefined)
  }
})

it('has let no value into any stream, message or log, nor into an Event, after all that and its end', async () => {
  for (const name of ['kept', 'looks']) await kube.delete(resourcePath(VAULTS, 'default', name))
  for (const name of ['kept', 'large']) await kube.delete(resourcePath(SECRETS, 'default', name))
  const deletions = ['vaults.default._.kept', 'secrets.default.vaults~kept.kept', 'secrets.default.vaults~looks.large']
  await until(async () =>
    deletions.every((subject) => published.some((one) => one.includes(subject) && one.includes('resource.deleted'))),
  )
  up.kill('SIGTERM')
  await up.exited
  await kube.delete(resourcePath(RECONCILERS, undefined, 'vault'))
  const placed = /Error at test\/e2e\/vault\.ts:\d+:\d+: cannot log in with \[confidential\]/
  expect((await deadLettered()).filter((detail) => placed.test(detail))).toHaveLength(2)
  const told: string[] = []
  for await (const { items } of kube.list(resourcePath(EVENTS))) told.push(...items.map((item) => JSON.stringify(item)))
  const kept = [...(await storedIn(js)), ...up.logs.map((line) => JSON.stringify(line)), ...told]
  const everywhere = [...published, ...kept]
  expect(everywhere.length).toBeGreaterThan(100)
  expect(values.size).toBeGreaterThan(6)
  const forms = [...values.values()].flatMap((text) => [text, base64(text), base64(text).slice(0, 20)])
  expect(everywhere.filter((one) => forms.some((form) => one.includes(form)))).toEqual([])
  const since = [...kept, ...published.filter((one) => one.startsWith('dead.'))]
  expect(since.filter((one) => one.includes(BROKEN) || one.includes(base64(BROKEN)))).toEqual([])
})

/** Returns the letters in DEAD about keys without a Reconciler. */
async function deadLettered(): Promise<string[]> {
  const queue = await openQueue(js, { log: silent })
  const dead = await openDeadLetters(js, { cluster: 'test', log: silent })
  const stop = new AbortController()
  const deadLetter = dead.put.bind(dead)
  const sweeper = createOrphanedKeySweeper({ kube, queue, deadLetter, log: silent, absentMs: 0, everyMs: 50 })
  const sweeping = sweeper.run(stop.signal, 0)
  await until(async () => (await dead.count())['unknown-reconciler'] >= 4)
  stop.abort()
  await sweeping
  return (await Array.fromAsync(dead.list())).map(({ detail }) => detail)
}
