import { HTTP, CloudEvent as NpmEvent } from 'cloudevents'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type CloudEvent, fromHttp, type PoisonEventError, toHttp } from '#events'

const bytes = (text: string) => new TextEncoder().encode(text)
const text = (body: Uint8Array) => new TextDecoder().decode(body)
const required = { 'ce-specversion': '1.0', 'ce-id': '1', 'ce-source': '/s', 'ce-type': 't' }
const minimal = { specversion: '1.0', id: '1', source: '/s', type: 't' }

const binary = (headers: Record<string, string>, body = '') =>
  fromHttp({ headers: { ...required, ...headers }, body: bytes(body) })
const structured = (event: object | string, contentType = 'application/cloudevents+json') =>
  fromHttp({
    headers: { 'Content-Type': contentType },
    body: bytes(typeof event === 'string' ? event : JSON.stringify(event)),
  })
const reasonOf = (read: () => unknown) => {
  try {
    return read()
  } catch (error) {
    return (error as PoisonEventError).reason
  }
}

describe('where the npm package is wrong', () => {
  it.each([
    'application/cloudevents+json; charset=UTF-8',
    'application/cloudevents+json;charset=utf-8',
    'Application/CloudEvents+JSON',
    ' application/cloudevents+json ; charset="utf-8"',
  ])('%j is structured mode', (contentType) => {
    expect(structured({ ...minimal, data: 1 }, contentType)).toEqual({ ...minimal, data: 1 })
  })

  it.each([
    'application/json; charset=UTF-8',
    'application/json;charset="UTF-8"',
    'application/merge-patch+json',
    'Application/JSON',
    'text/json',
  ])('a body of type %s is JSON', (type) =>
    expect(binary({ 'content-type': type }, '{"a":1}')).toEqual({ ...minimal, datacontenttype: type, data: { a: 1 } }),
  )

  it.each([
    ['123', 123],
    [' {"a":1} ', { a: 1 }],
    ['false', false],
    ['0', 0],
    ['""', ''],
    ['null', null],
    ['"x"', 'x'],
  ])('the JSON body %j is %j', (body, data) =>
    expect(binary({ 'content-type': 'application/json' }, body).data).toEqual(data),
  )

  it.each([false, 0, '', null, [], 'x'])('structured data %j stays', (data) => {
    expect(structured({ ...minimal, data })).toEqual({ ...minimal, data })
  })

  it('a structured event without a type is refused', () => {
    expect(reasonOf(() => structured({ specversion: '1.0', id: '1', source: '/s' }))).toBe('invalid-attribute')
  })

  it.each(['garbage', '2026-13-01T00:00:00Z', '2026-01-01', '2026-01-01 00:00:00Z'])(
    'the time %j is refused',
    (time) => {
      expect(reasonOf(() => binary({ 'ce-time': time }))).toBe('invalid-attribute')
    },
  )

  it('nanoseconds and offsets of a time stay', () => {
    expect(binary({ 'ce-time': '2026-01-01T00:00:00.123456789+02:00' })['time']).toBe(
      '2026-01-01T00:00:00.123456789+02:00',
    )
  })

  it('header values are percent-encoded, and decoded once', () => {
    const event = { ...minimal, subject: 'Euro € 😀', extra: 'a b "q" %41' }
    const { headers } = toHttp(event)
    expect(headers['ce-subject']).toBe('Euro%20%E2%82%AC%20%F0%9F%98%80')
    expect(headers['ce-extra']).toBe('a%20b%20%22q%22%20%2541')
    expect(fromHttp({ headers, body: bytes('') })).toEqual(event)
    expect(binary({ 'ce-subject': '%e2%82%ac%41' }).subject).toBe('€A')
    expect(binary({ 'ce-subject': '"a \\"b\\" %20"' }).subject).toBe('a "b"  ')
  })

  it('an overlong or broken percent-encoding is refused', () => {
    expect(reasonOf(() => binary({ 'ce-subject': '%C0%A0' }))).toBe('invalid-attribute')
    expect(reasonOf(() => binary({ 'ce-subject': 'a%FF' }))).toBe('invalid-attribute')
    expect(binary({ 'ce-subject': '100%' }).subject).toBe('100%')
  })

  it('data_base64 is bytes, or JSON where the content type says so', () => {
    expect(structured({ ...minimal, data_base64: 'AQID' }).data).toEqual(Buffer.from([1, 2, 3]))
    expect(structured({ ...minimal, datacontenttype: 'application/json', data_base64: 'eyJhIjoxfQ==' }).data).toEqual({
      a: 1,
    })
    expect(reasonOf(() => structured({ ...minimal, data_base64: 'a?' }))).toBe('invalid-data')
    expect(reasonOf(() => structured({ ...minimal, data_base64: 'AQID', data: 1 }))).toBe('invalid-data')
  })

  it('another specversion is refused', () => {
    expect(reasonOf(() => structured({ ...minimal, specversion: '9.0' }))).toBe('unsupported-version')
    expect(reasonOf(() => binary({ 'ce-specversion': '0.3' }))).toBe('unsupported-version')
  })

  it.each([
    ['extension', { a: 1 }],
    ['extension', [1]],
    ['extension', 1.5],
    ['extension', ''],
    ['exTension', 'x'],
    ['ex-tension', 'x'],
    ['subject', 1],
    ['id', ''],
    ['source', 'not a uri'],
    ['subject', 'a\nb'],
  ])('the attribute %s = %j is refused, when read and when written', (name, value) => {
    expect(reasonOf(() => structured({ ...minimal, [name]: value }))).toBe('invalid-attribute')
    expect(reasonOf(() => toHttp({ ...minimal, [name]: value }))).toBe('invalid-attribute')
  })

  it('the global JSON stays as it is', () => {
    const before = globalThis.JSON
    structured({ ...minimal, data: { a: 12345678901234567890n.toString() } })
    expect(globalThis.JSON).toBe(before)
  })
})

describe('the HTTP binding', () => {
  it('writes datacontenttype as the content type alone', () => {
    const { headers, body } = toHttp({ ...minimal, datacontenttype: 'text/plain', data: 'hi' })
    expect(headers).toEqual({ ...required, 'content-type': 'text/plain' })
    expect(text(body)).toBe('hi')
  })

  it('writes structured mode as the specification spells it', () => {
    const { headers, body } = toHttp({ ...minimal, data: { a: 1 } }, 'structured')
    expect(headers).toEqual({ 'content-type': 'application/cloudevents+json; charset=UTF-8' })
    expect(JSON.parse(text(body))).toEqual({ ...minimal, data: { a: 1 } })
  })

  it('reads header names in any case, and lists as Node gives them', () => {
    const headers = { 'CE-SpecVersion': '1.0', 'Ce-Id': ['1'], 'ce-SOURCE': '/s', 'CE-TYPE': 't', 'ce-x': undefined }
    expect(fromHttp({ headers, body: bytes('') })).toEqual(minimal)
  })

  it.each([
    ['text/plain; charset=iso-8859-1', [0xe9], 'é'],
    ['text/plain', [0xc3, 0xa9], 'é'],
    ['application/octet-stream', [1, 2], Buffer.from([1, 2])],
  ])('reads a body of type %s', (contentType, body, data) => {
    expect(fromHttp({ headers: { ...required, 'content-type': contentType }, body: Buffer.from(body) }).data).toEqual(
      data,
    )
  })

  it.each([
    ['no-cloudevent', () => fromHttp({ headers: { 'content-type': 'application/json' }, body: bytes('{}') })],
    ['no-cloudevent', () => structured('[]')],
    ['unsupported-mode', () => structured('[]', 'application/cloudevents-batch+json')],
    ['unsupported-mode', () => structured('', 'application/cloudevents+avro')],
    ['invalid-data', () => structured('{')],
    ['invalid-data', () => binary({ 'content-type': 'application/json' }, '{')],
    [
      'invalid-data',
      () => fromHttp({ headers: { ...required, 'content-type': 'text/plain' }, body: Buffer.from([0xff]) }),
    ],
    ['invalid-data', () => binary({ 'content-type': 'text/plain; charset=nonsense' }, 'x')],
    ['invalid-attribute', () => binary({ 'ce-data': 'x' })],
    ['too-large', () => fromHttp({ headers: required, body: bytes('12345') }, { maxBytes: 4 })],
    ['too-large', () => toHttp({ ...minimal, data: '12345' }, 'structured', { maxBytes: 64 })],
  ])('says %s of what it cannot take', (reason, read) => expect(reasonOf(read)).toBe(reason))
})

// fast-check's own URLs take seconds to set up.
const source = fc
  .array(fc.constantFrom('a', 'Z', '0', '-', '.', '_', '~', '%20', '%C3%BC', '/', ':', '@', '?', '=', '&', ';', ','))
  .map((parts) => `https://example.com/${parts.join('')}`)
const value = fc.string({ unit: 'grapheme', minLength: 1 }).filter((text) => !/\p{Cc}/u.test(text))
const anyEvent = fc
  .record(
    {
      specversion: fc.constant('1.0'),
      id: value,
      source,
      type: value,
      subject: value,
      extension: value,
      datacontenttype: fc.constant('application/json'),
      data: fc.jsonValue({ noUnicodeString: false }),
    },
    { requiredKeys: ['specversion', 'id', 'source', 'type', 'datacontenttype', 'data'] },
  )
  // A body is JSON text: it has no -0.
  .map((event) => ({ ...event, data: JSON.parse(JSON.stringify(event.data)) as unknown })) as fc.Arbitrary<CloudEvent>

describe('any event', () => {
  it.each(['binary', 'structured'] as const)('comes back as it was in %s mode', (mode) => {
    fc.assert(
      fc.property(anyEvent, (event) => {
        expect(fromHttp(toHttp(event, mode))).toEqual(event)
      }),
    )
  })
})

describe('beside the npm package', () => {
  const event: CloudEvent = {
    specversion: '1.0',
    id: 'u:1:added',
    source: 'https://c/api/v1/pods',
    type: 'dev.fairlead.resource.added',
    subject: '/api/v1/namespaces/x/pods/y',
    time: '2026-01-02T03:04:05.678Z',
    datacontenttype: 'application/json',
    partitionkey: '/pods/x/y',
    data: { a: [1, 'é', null] },
  }

  it.each(['binary', 'structured'] as const)('the package reads what we write in %s mode', (mode) => {
    const { headers, body } = toHttp(event, mode)
    // Its table of content types knows no parameters.
    const contentType = headers['content-type']?.split(';')[0] ?? ''
    const read = HTTP.toEvent({
      headers: { ...headers, 'content-type': contentType },
      body: text(body),
    }) as NpmEvent<unknown>
    expect({ ...read.toJSON() }).toEqual(event)
    expect(read.validate()).toBe(true)
  })

  it.each(['binary', 'structured'] as const)('we read what the package writes in %s mode', (mode) => {
    const { headers, body } = HTTP[mode](new NpmEvent(event))
    expect(fromHttp({ headers, body: bytes(body as string) })).toEqual(event)
  })

  it('we write an event that the package made', () => {
    const { headers, body } = toHttp(
      new NpmEvent({ ...event, data: undefined, data_base64: 'AQID', datacontenttype: 'application/x' }),
    )
    expect(headers).toMatchObject({ 'ce-id': event.id, 'content-type': 'application/x' })
    expect([...body]).toEqual([1, 2, 3])
  })
})
