import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type EventsView, viewEvents } from '#events'
import { connectJetStream, type JetStream } from '#nats'
import { startTestNats } from '../support/servers.ts'
import { silent } from '../support/silent.ts'
import { collected, object, openStore, PODS } from './objects.ts'

const DOCS = readFileSync(new URL('../../docs/events.md', import.meta.url), 'utf8')
/** The permissions that docs/events.md lists for users with read access. */
const LOOK = /^ {4}publish: {3}(\[[^\]]*\])\s+subscribe: (\[[^\]]*\])/m.exec(DOCS)!.slice(1)
const ONE_NAMESPACE = /`subscribe: (\["k8s[^\]]*\])`/.exec(DOCS)![1]!

let nats: Awaited<ReturnType<typeof startTestNats>>
let store: Awaited<ReturnType<typeof openStore>>

beforeAll(async () => {
  const [publish, subscribe] = LOOK.map((list) => JSON.parse(list) as string[])
  nats = await startTestNats({
    authorization: {
      users: [
        { user: 'fairlead', password: 'p:/@ss%' },
        { user: 'look', password: 'x', permissions: { publish, subscribe } },
        { user: 'shop', password: 'x', permissions: { publish: [], subscribe: JSON.parse(ONE_NAMESPACE) } },
      ],
    },
  })
  store = await openStore(as('fairlead', 'p:/@ss%'))
  await store.setCursor(PODS, undefined, { resourceVersion: '1', at: '' })
  await store.put(PODS, 'added', object('a', 1, { namespace: 'shop' }))
})
afterAll(async () => {
  await store?.js.close()
  await nats?.[Symbol.asyncDispose]()
})

const as = (user: string, password: string) =>
  nats.url.replace('://', `://${encodeURIComponent(user)}:${encodeURIComponent(password)}@`)
const connected = (user: string, timeoutMs = 60_000): Promise<JetStream> =>
  connectJetStream({ servers: as(user, 'x'), name: 'test', timeoutMs, inboxPrefix: '_INBOX.events' })

describe('a user with the permissions of docs/events.md', () => {
  it('sees what is watched, what is stored, and every change', async () => {
    await using js = await connected('look')
    const view: EventsView = viewEvents(js, { log: silent })
    expect(await view.resources()).toEqual([PODS])
    expect((await collected(view.stored([{}]))).map(({ key }) => key.name)).toEqual(['a'])
    const end = new AbortController()
    const from = await view.end()
    const following = view.follow([{ ref: PODS }], from, end.signal)
    const next = following[Symbol.asyncIterator]().next()
    await store.put(PODS, 'added', object('b', 2, { namespace: 'other' }))
    expect((await next).value?.key.name).toBe('b')
    end.abort()
  })

  it('can publish nothing there', async () => {
    await using js = await connected('look', 500)
    await expect(js.publish('k8s._.v1.pods.shop._.a', 'x', {})).rejects.toThrow(/no answer|permission|unknown/i)
    expect(
      (await store.observe({ primary: { ref: PODS, namespace: 'shop', name: 'a' } })).primary?.resourceVersion,
    ).toBe('1')
  })

  it('is not told what others are answered', async () => {
    await using js = await connected('look')
    const heard: string[] = []
    for (const subject of ['_INBOX.>', '_INBOX.*.*', '_INBOX.events.>'])
      js.nc.subscribe(subject, { callback: (error, message) => void (error ?? heard.push(message.subject)) })
    await js.nc.flush()
    await store.observe({ primary: { ref: PODS, namespace: 'shop', name: 'a' } })
    await js.nc.flush()
    expect(heard.filter((subject) => !subject.startsWith('_INBOX.events.'))).toEqual([])
  })

  it('for one namespace, is told of that one alone', async () => {
    await using js = await connected('shop')
    const subscription = js.nc.subscribe('k8s.*.*.*.shop.*.*', { max: 1 })
    await js.nc.flush()
    await store.put(PODS, 'added', object('x', 3, { namespace: 'other' }))
    await store.put(PODS, 'added', object('y', 4, { namespace: 'shop' }))
    for await (const { subject } of subscription) expect(subject).toBe('k8s._.v1.pods.shop._.y')
    await expect(viewEvents(js, { log: silent }).resources()).rejects.toThrow(/permission/i)
  })
})

it('takes a password as it is where it has a percent sign that escapes nothing', async () => {
  const refused = connectJetStream({ servers: nats.url.replace('://', '://look:50%@'), name: 'test' })
  await expect(refused).rejects.toThrow(/Authorization Violation/)
})

it.each([
  'look:p_a_s_s@127.0.0.1:1',
  'p_a_s_s@127.0.0.1:1',
  'nats://look:p_a@s_s@127.0.0.1:1',
  'nats://127.0.0.1:1,look:p_a_s_s@127.0.0.1:1',
])('does not show a password where nobody answers: %s', async (servers) => {
  await expect(connectJetStream({ servers, name: 'test' })).rejects.toThrow(
    /^cannot connect to NATS at (?:nats:\/\/)?…@127\.0\.0\.1:1: /,
  )
})

it('refuses a wrong password without showing it', async () => {
  const refused = connectJetStream({ servers: as('look', 'wrong-password'), name: 'test' })
  await expect(refused).rejects.toThrow(
    /cannot connect to NATS at nats:\/\/…@127\.0\.0\.1:\d+: Authorization Violation/,
  )
})
