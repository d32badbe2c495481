import { CloudEvent as NpmEvent } from 'cloudevents'
import { describe, expect, it } from 'vitest'
import { type CloudEvent, fromNats, objectEvent, type PoisonEventError, toNats } from '#events'

const bytes = (text: string) => new TextEncoder().encode(text)
const text = (body: Uint8Array) => new TextDecoder().decode(body)
const minimal = { specversion: '1.0', id: '1', source: '/s', type: 't' }
const required = { 'ce-specversion': '1.0', 'ce-id': '1', 'ce-source': '/s', 'ce-type': 't' }
const pod = objectEvent({
  cluster: 'c1',
  ref: { group: '', version: 'v1', resource: 'pods' },
  verb: 'added',
  object: { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'é %', namespace: 'x', uid: 'u', resourceVersion: '9' } },
  now: new Date(0),
})

describe('writing to NATS', () => {
  it('puts every attribute in a lower-case ce- header, datacontenttype too, and data alone in the payload', () => {
    const { headers, data } = toNats(pod)
    expect(headers).toEqual({
      'ce-specversion': '1.0',
      'ce-id': 'u:9:added',
      'ce-source': 'https://c1/api/v1/pods',
      'ce-type': 'dev.fairlead.resource.added',
      'ce-subject': '/api/v1/namespaces/x/pods/%25C3%25A9%2520%2525',
      'ce-time': '1970-01-01T00:00:00.000Z',
      'ce-datacontenttype': 'application/json',
      'content-type': 'application/json',
      'ce-apiversion': 'v1',
      'ce-kind': 'Pod',
      'ce-name': '%C3%A9%20%25',
      'ce-namespace': 'x',
      'ce-objectuid': 'u',
      'ce-resourceversion': '9',
      'ce-partitionkey': '/pods/x/%C3%A9%20%25',
      'ce-sequence': '00000000000000000009',
    })
    expect(JSON.parse(text(data))).toEqual(pod.data)
  })

  it.each(['binary', 'structured'] as const)('comes back as it was in %s mode', (mode) => {
    expect(fromNats(toNats(pod, mode))).toEqual(pod)
  })

  it('gives the npm package a structured event that it takes as valid', () => {
    const { headers, data } = toNats(pod, 'structured')
    expect(headers['content-type']).toMatch(/^application\/cloudevents\+json/)
    const event = new NpmEvent(JSON.parse(text(data)) as CloudEvent)
    expect({ ...event.toJSON() }).toEqual(pod)
  })
})

describe('reading from NATS', () => {
  const json = JSON.stringify({ ...minimal, data: { a: 1 } })
  const event = { ...minimal, data: { a: 1 } }

  it.each([
    [
      'a content type application/cloudevents, in any case and with parameters',
      { 'Content-Type': 'APPLICATION/CloudEvents+json; charset=utf-8' },
    ],
    [
      'that content type beside ce- headers',
      { ...required, 'ce-id': 'other', 'content-type': 'application/cloudevents+json' },
    ],
    ['a JSON body with specversion and no headers, as from servers before 2.2', {}],
    ['a JSON body with specversion and another content type', { 'content-type': 'application/json' }],
  ])('takes as structured: %s', (_, headers) => {
    expect(fromNats({ headers, data: bytes(json) })).toEqual(event)
  })

  it.each([
    ['ce-datacontenttype', { ...required, 'ce-datacontenttype': 'application/json' }],
    ['content-type, as the Go SDK writes', { ...required, 'content-type': 'application/json' }],
    [
      'names in any case',
      { 'CE-Specversion': '1.0', 'Ce-ID': '1', 'CE-SOURCE': '/s', 'Ce-Type': 't', 'Content-Type': 'application/json' },
    ],
  ])('takes as binary: ce-specversion, with %s', (_, headers) => {
    const read = fromNats({ headers, data: bytes('{"a":1}') })
    expect(read).toEqual({ ...event, datacontenttype: 'application/json' })
  })

  it('reads a content type that is percent-encoded as all ce- headers are', () => {
    const headers = { ...required, 'ce-datacontenttype': 'application/json;%20charset=%22UTF-8%22' }
    const read = fromNats({ headers, data: bytes('{"a":1}') })
    expect(read).toEqual({ ...event, datacontenttype: 'application/json; charset="UTF-8"' })
  })

  it('leaves headers of NATS itself alone', () => {
    const headers = { ...required, 'Nats-Msg-Id': 'x', 'Nats-Subject': 'k8s.x', traceparent: 'y' }
    expect(fromNats({ headers, data: bytes('') })).toEqual(minimal)
  })

  it.each([
    ['no-cloudevent', {}, ''],
    ['no-cloudevent', {}, 'hello'],
    ['no-cloudevent', {}, '{"a":1}'],
    ['no-cloudevent', { 'content-type': 'application/json' }, '[1]'],
    ['no-cloudevent', { 'content-type': 'application/cloudevents+json' }, '"x"'],
    ['invalid-data', { 'content-type': 'application/cloudevents+json' }, 'x'],
    ['invalid-data', { ...required, 'ce-datacontenttype': 'application/json' }, 'x'],
    ['unsupported-mode', { 'content-type': 'application/cloudevents+protobuf' }, 'x'],
    ['unsupported-version', { ...required, 'ce-specversion': '2.0' }, ''],
    ['invalid-attribute', { 'ce-specversion': '1.0' }, ''],
    ['invalid-attribute', { ...required, 'ce-subject': '%FF' }, ''],
  ])('says %s of poison: %j %j', (reason, headers, body) => {
    const read = () => fromNats({ headers, data: bytes(body) })
    expect(read).toThrow(expect.objectContaining({ name: 'PoisonEventError', reason }) as PoisonEventError)
  })
})
