import { emitterFor, HTTP as SDK_HTTP } from 'cloudevents'
import { CloudEvent, changes, HTTP, NATS, natsTransport } from 'fairlead/events'
import * as fc from 'fast-check'
import { connect, type NatsConnection } from 'nats'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { objectEvent } from '#events'
import { startTestNats } from '../support/servers.ts'
import { object, openStore, PODS, SECRETS } from './objects.ts'

const name = fc.stringMatching(/^[a-z0-9]([a-z0-9.:-]{0,40}[a-z0-9])?$/)
const events = fc
  .record({
    name: fc.oneof(name, fc.string({ minLength: 1, unit: 'grapheme' })).filter((text) => !/\p{Cc}/u.test(text)),
    namespace: fc.option(name, { nil: undefined }),
    version: fc.nat(),
    spec: fc.jsonValue(),
    verb: fc.constantFrom('added', 'modified', 'deleted', 'moved'),
    now: fc.date({ noInvalidDate: true, min: new Date('2000-01-01'), max: new Date('2100-01-01') }),
  })
  .map(({ name: called, version, namespace, spec, verb, now }) => {
    const kept = JSON.parse(JSON.stringify(spec)) as unknown
    return objectEvent({
      cluster: 'c1',
      ref: PODS,
      verb,
      object: object(called, version, { namespace, spec: kept }),
      now,
    })
  })

it('every event of an object is valid by the official schema, and returns from both bindings as it was', () => {
  fc.assert(
    fc.property(
      events,
      fc.constantFrom(NATS, HTTP),
      fc.constantFrom('binary', 'structured'),
      (event, binding, mode) => {
        const valid = new CloudEvent<unknown>(event)
        const message = binding[mode](valid)
        const read = binding.toEvent(message)
        expect(binding.isEvent(message)).toBe(true)
        expect(read).toBeInstanceOf(CloudEvent)
        expect(JSON.parse(JSON.stringify(read))).toEqual(JSON.parse(JSON.stringify(event)))
      },
    ),
  )
})

it.each([false, 0, '', null, Buffer.from([0, 255])])(
  'keeps %j as data, and takes what frameworks have parsed',
  (data) => {
    const datacontenttype = data instanceof Uint8Array ? 'application/octet-stream' : 'application/json'
    const event = new CloudEvent<unknown>({ source: '/s', type: 't', datacontenttype, data })
    for (const binding of [NATS, HTTP])
      for (const mode of ['binary', 'structured'] as const)
        expect((binding.toEvent(binding[mode](event)) as CloudEvent<unknown>).data).toEqual(data)
    const { headers, body } = HTTP.structured(event)
    const parsed: unknown = JSON.parse(Buffer.from(body as Uint8Array).toString())
    expect(HTTP.toEvent({ headers, body: parsed })).toMatchObject({ id: event.id, data })
  },
)

it('is read by the official binding, and tells what is no event', () => {
  const event = new CloudEvent({ source: '/s', type: 't', data: { a: 1 } })
  const { headers, body } = HTTP.binary(event)
  expect(SDK_HTTP.toEvent({ headers, body: Buffer.from(body as Uint8Array).toString() })).toMatchObject({
    id: event.id,
  })
  expect([NATS, HTTP].map((binding) => binding.isEvent({ headers: {}, body: 'x' }))).toEqual([false, false])
})

describe('on a real server', () => {
  let nats: Awaited<ReturnType<typeof startTestNats>>
  let connection: NatsConnection
  beforeAll(async () => {
    nats = await startTestNats()
    connection = await connect({ servers: nats.url })
  })
  afterAll(async () => {
    await connection?.close()
    await nats?.[Symbol.asyncDispose]()
  })

  it.each(['binary', 'structured'] as const)('an emitter sends what a subscriber reads in %s mode', async (mode) => {
    const subscription = connection.subscribe('orders', { max: 1 })
    const emit = emitterFor(natsTransport(connection, 'orders'), { binding: NATS, mode })
    const event = new CloudEvent({
      source: '/s',
      type: 't',
      subject: 'ä %',
      datacontenttype: 'application/json',
      data: { order: 7 },
    })
    await emit(event)
    for await (const { headers, data } of subscription) {
      const texts = Object.fromEntries((headers?.keys() ?? []).map((key) => [key, headers?.get(key)]))
      expect(NATS.toEvent({ headers: texts, body: data })).toMatchObject(event.toJSON())
    }
  })

  it('changes are the last state of the selected objects, then each change, until the signal', async () => {
    const prefix = 'changes'
    await using store = await openStore(nats.url, { prefix })
    await store.put(PODS, 'added', object('a', 1))
    await store.put(PODS, 'added', object('b', 2, { namespace: 'other' }))
    await store.put(SECRETS, 'added', object('s', 3, { kind: 'Secret' }))
    await store.put(PODS, 'modified', object('a', 4))
    const end = new AbortController()
    const seen: unknown[] = []
    for await (const event of changes(connection, { kinds: [PODS], namespace: 'ns', signal: end.signal, prefix })) {
      expect(event).toBeInstanceOf(CloudEvent)
      seen.push([event.type, event.data?.metadata.name, event.data?.metadata.resourceVersion])
      if (seen.length === 1) await store.put(PODS, 'deleted', object('a', 5))
      else end.abort()
    }
    expect(seen).toEqual([
      ['dev.fairlead.resource.modified', 'a', '4'],
      ['dev.fairlead.resource.deleted', 'a', '5'],
    ])
  })
})
