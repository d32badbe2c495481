import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type DeadLetter, type DeadLetters, type DeadMessage, deadKey, fromNats, openDeadLetters } from '#events'
import type { JetStream } from '#nats'
import { connectTo } from '../support/jetstream.ts'
import { type ShippedNats, startShippedNats } from '../support/shipped-users.ts'
import { silent as log } from '../support/silent.ts'
import { ATS, collected, object, openStore, ownedBy, PODS, SECRETS, until } from './objects.ts'

/** A bridge reads EVENTS and buries letters, with the shipped permissions; the admin connection has all permissions. */
let nats: ShippedNats
let admin: JetStream
let bridge: JetStream
const js = () => admin
const bridgeUrl = () => nats.as(nats.url, 'fairlead-bridge')
let next = 0

beforeAll(async () => {
  nats = await startShippedNats(Array.from({ length: 40 }, (_, index) => `dead${index}`))
  admin = await connectTo(nats.url, 'admin')
  bridge = await connectTo(bridgeUrl())
})
afterAll(async () => {
  await admin?.close()
  await bridge?.close()
  await nats?.[Symbol.asyncDispose]()
})

const openDead = (prefix: string, of = admin): Promise<DeadLetters> =>
  openDeadLetters(of, { prefix, cluster: 'c1', log })

/** EVENTS, and the dead letters that it buries in. */
async function opened() {
  const prefix = `dead${next++}`
  const dead = await openDead(prefix)
  const writer = await openDead(prefix, bridge)
  const store = await openStore(bridgeUrl(), { prefix, deadLetter: (message) => writer.put(message) })
  const letters = () => collected(dead.list())
  const put = (subject: string, data: string, headers: Record<string, string> = {}) =>
    js().publish(`${prefix}.${subject}`, data, headers)
  return { prefix, dead, store, letters, put, [Symbol.asyncDispose]: () => store[Symbol.asyncDispose]() }
}

const message = (fields: Partial<DeadMessage> = {}): DeadMessage => ({
  reason: 'invalid-data',
  detail: 'not\u0000JSON: é',
  stream: 'EVENTS',
  subject: 'k8s.a.b.c.d._.e',
  sequence: 7,
  storedAt: new Date('2026-01-01T00:00:00Z'),
  headers: { 'content-type': 'application/json', 'Nats-TTL': '5s', odd: 'a "b"\u00e9' },
  data: Buffer.from([0xff, 1, 2]),
  ...fields,
})

/** Invalid messages and the reason for their rejection, keyed by subject. */
const POISON: Record<string, [string, string, Record<string, string>]> = {
  'no-cloudevent': ['k8s._.v1.pods.ns._.garbage', 'hello', {}],
  'unsupported-version': ['k8s._.v1.pods.ns._.old', '{}', { 'ce-specversion': '0.3' }],
  'invalid-data': ['cursor._.v1.pods._', '42', {}],
}

describe('what cannot be read in EVENTS', () => {
  it('goes to DEAD by its reason, and keeps nobody from what comes after it', async () => {
    await using test = await opened()
    for (const [subject, data, headers] of Object.values(POISON)) await test.put(subject, data, headers)
    await test.put('k8s._.v1.pods.ns.%zz._', '{"specversion":"1.0","id":"1","source":"/","type":"x"}')
    await test.store.put(PODS, 'added', object('good', 2))
    const stop = new AbortController()
    const seen: string[] = []
    for await (const { key } of test.store.follow({ ref: PODS }, stop.signal, () => stop.abort())) seen.push(key.name)
    expect(seen).toEqual(['good'])
    expect(await test.store.cursor(PODS)).toBeUndefined()
    expect((await test.letters()).map(({ reason, subject, stream }) => [reason, subject, stream])).toEqual([
      ['no-cloudevent', `${test.prefix}.k8s._.v1.pods.ns._.garbage`, `${test.prefix}_EVENTS`],
      ['unsupported-version', `${test.prefix}.k8s._.v1.pods.ns._.old`, `${test.prefix}_EVENTS`],
      ['no-cloudevent', `${test.prefix}.k8s._.v1.pods.ns.%zz._`, `${test.prefix}_EVENTS`],
      ['invalid-data', `${test.prefix}.cursor._.v1.pods._`, `${test.prefix}_EVENTS`],
    ])
    expect(await js().count(test.store.stream, `${test.prefix}.k8s.>`)).toMatchObject({ count: 1 })
    expect(await test.dead.count()).toMatchObject({ 'no-cloudevent': 2, 'unsupported-version': 1, 'too-large': 0 })
  })

  it('goes there also when somebody has deleted DEAD, to be rid of all letters', async () => {
    await using test = await opened()
    await js().admin.streams.delete(test.dead.stream)
    await test.put('k8s._.v1.pods.ns._.garbage', 'hello')
    expect(await collected(test.store.identities(PODS))).toEqual([])
    expect(await test.letters()).toMatchObject([{ reason: 'no-cloudevent' }])
  })

  it('goes there also from a subject that has no room for anything before it', async () => {
    await using test = await opened()
    const subject = `k8s._.v1.pods.ns._.${'x'.repeat(4010)}`
    await test.put(subject, 'hello')
    expect(await collected(test.store.identities(PODS))).toEqual([])
    expect(await test.letters()).toMatchObject([{ reason: 'no-cloudevent', subject: `${test.prefix}.${subject}` }])
  })

  it('is no reason for a run to fail: a child that is garbage is not there', async () => {
    await using test = await opened()
    await test.store.put(ATS, 'added', object('a', 1))
    await test.store.put(PODS, 'added', object('a-1', 2), ownedBy('a'))
    await test.put('k8s._.v1.pods.ns.ats~a.a-2', '{"not":', {
      'ce-specversion': '1.0',
      'ce-type': 'dev.fairlead.resource.added',
    })
    const observed = await test.store.observe({ primary: { ref: ATS, namespace: 'ns', name: 'a' }, owned: [PODS] })
    expect(observed.owned[0]?.map(({ key }) => key.name)).toEqual(['a-1'])
    expect(await test.letters()).toMatchObject([{ reason: 'invalid-attribute', bytes: 7 }])
  })

  it('stays in EVENTS until DEAD has confirmed it', async () => {
    const prefix = `dead${next++}`
    const asked: DeadMessage[] = []
    const confirmed = Promise.withResolvers<void>()
    const deadLetter = (found: DeadMessage) => {
      asked.push(found)
      return confirmed.promise
    }
    await using store = await openStore(bridgeUrl(), { prefix, deadLetter })
    await js().publish(`${prefix}.k8s._.v1.pods.ns._.x`, 'garbage', { kept: 'yes' })
    const observed = store.observe({ primary: { ref: PODS, namespace: 'ns', name: 'x' }, related: [{ ref: PODS }] })
    const identities = collected(store.identities(PODS))
    await until(async () => asked.length > 0)
    expect(asked[0]).toMatchObject({ headers: { kept: 'yes' }, data: Buffer.from('garbage') })
    expect((await js().count(store.stream, `${prefix}.k8s.>`)).count).toBe(1)
    confirmed.resolve()
    await Promise.all([observed, identities])
    expect((await js().count(store.stream, `${prefix}.k8s.>`)).count).toBe(0)
  })

  it('leaves no body in DEAD that may not be in EVENTS', async () => {
    await using test = await opened()
    await test.put('k8s._.v1.secrets.ns._.s', 'password')
    await collected(test.store.identities(SECRETS))
    const [letter] = await test.letters()
    expect(letter).toMatchObject({ reason: 'no-cloudevent', data: Buffer.alloc(0) })
  })
})

describe('what somebody else has put into DEAD', () => {
  it.each<[string, Record<string, string>, string?]>([
    ['headers that are no JSON', { 'Fairlead-Headers': '{' }],
    ['headers that are none', { 'Fairlead-Headers': 'null' }],
    ['a header that is no text', { 'Fairlead-Headers': '{"a":1}' }],
    ['no time', { 'ce-time': 'soon' }],
    ['a detail that is no text', { 'ce-knativeerrordata': '%FF' }],
    ['a reason that is none', {}, 'constructor'],
  ])('with %s keeps nobody from the letters', async (_, broken, reason = 'invalid-data') => {
    await using test = await opened()
    const headers = { 'ce-type': 'dev.fairlead.dead', 'ce-id': 'EVENTS:1', ...broken }
    await js().publish(`${test.prefix}.dead._.${reason}.x`, '', headers)
    await test.dead.put(message())
    expect((await test.letters()).map(({ id }) => id)).toEqual([2])
    expect(await test.dead.get(1)).toBeUndefined()
  })
})

describe('what can never be stored in EVENTS', () => {
  const endless = object('x'.repeat(20_000), 3, { spec: 'secret' })

  it('for its name goes to DEAD, which says so', async () => {
    await using test = await opened()
    const odd = object('a\u0007b\nc', 3, { uid: 'u', spec: 'secret' })
    expect(await test.store.put(PODS, 'added', odd)).toMatchObject({ outcome: 'deadLettered' })
    expect(await test.letters()).toMatchObject([
      {
        reason: 'invalid-attribute',
        data: Buffer.alloc(0),
        detail: expect.stringContaining('name is "a\\u0007b\\nc"'),
      },
    ])
  })

  it('goes to DEAD without its body, and is no failure', async () => {
    await using test = await opened()
    expect(await test.store.put(PODS, 'added', endless)).toMatchObject({ outcome: 'deadLettered', formerOwners: [] })
    const [letter, ...more] = await test.letters()
    expect(more).toEqual([])
    expect(letter).toMatchObject({ reason: 'too-large', data: Buffer.alloc(0), headers: {}, sequence: 0 })
    expect(letter?.subject).toMatch(/^dead\d+\.k8s\._\.v1\.pods\.ns\._\.x{32}=[0-9a-f]{64}$/)
    expect(letter?.detail).toContain(`uid ${endless.metadata.uid}`.slice(0, 900))
    expect(letter?.bytes).toBeGreaterThan(65_535)
    expect(await collected(test.store.identities(PODS))).toEqual([])
  })

  it('keeps no other from being stored, whether or not anybody buries it', async () => {
    await using store = await openStore(bridgeUrl(), { prefix: `dead${next++}` })
    await Promise.all([store.put(PODS, 'added', endless), store.put(PODS, 'added', object('good', 4))])
    expect((await collected(store.identities(PODS))).map(({ key }) => key.name)).toEqual(['good'])
  })
})

describe('a dead letter', () => {
  const stored = async (dead: DeadLetters): Promise<DeadLetter | undefined> => (await collected(dead.list()))[0]

  it('comes back as it went, and is a CloudEvent with the names of Knative', async () => {
    const prefix = `dead${next++}`
    const dead = await openDead(prefix)
    await dead.put(message({ reconciler: 'at.example.com' }))
    const letter = await stored(dead)
    expect(letter).toMatchObject({ ...message(), reconciler: 'at.example.com', detail: 'not JSON: é', bytes: 3 })
    const raw = await js().bySequence(dead.stream, letter?.id ?? 0)
    expect(raw?.subject).toBe(`${prefix}.dead.at_example_com.invalid-data.k8s.a.b.c.d._.e`)
    expect(fromNats(raw!)).toMatchObject({
      type: 'dev.fairlead.dead',
      source: 'https://c1/streams/EVENTS',
      subject: 'k8s.a.b.c.d._.e',
      knativeerrordest: 'https://c1/reconcilers/at.example.com',
      knativeerrorcode: '400',
      knativeerrordata: 'not JSON: é',
    })
  })

  it('is one, however many processes find the message', async () => {
    const dead = await openDead(`dead${next++}`)
    await Promise.all([dead.put(message()), dead.put(message()), dead.put(message({ sequence: 8 }))])
    expect(await collected(dead.list())).toHaveLength(2)
  })

  it('is cut where the whole would be refused', async () => {
    const dead = await openDead(`dead${next++}`)
    const data = Buffer.alloc(js().nc.info!.max_payload, 'x')
    await dead.put(message({ reason: 'too-large', data }))
    const letter = await stored(dead)
    expect(letter?.bytes).toBe(data.length)
    expect(letter?.data.length).toBeLessThan(data.length)
    expect(letter?.data.length).toBeGreaterThan(data.length - 4096)
  })

  it('tells a key from a message', async () => {
    const dead = await openDead(`dead${next++}`)
    const key = { reconciler: 'a.b', key: 'ns.name', lane: 'low', since: new Date(0), stream: 'WORK' }
    await dead.put(deadKey({ ...key, reason: 'unknown-reconciler', detail: 'gone' }))
    expect(await stored(dead)).toMatchObject({ reconciler: 'a.b', subject: 'work.a_b.low.ns.name', bytes: 0 })
    await dead.remove((await stored(dead))?.id ?? 0)
    expect(await collected(dead.list())).toEqual([])
  })
})
