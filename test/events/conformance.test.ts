import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type CloudEvent, fromHttp, fromNats, toHttp, toNats } from '#events'
import { startTestNats } from '../support/servers.ts'

/*
 * What the features of github.com/cloudevents/conformance ask of the HTTP binding, byte for byte over a socket to a
 * real HTTP server, and the same of the NATS binding, byte for byte to a real nats-server. (Their second feature file
 * is about Kafka, whose scenarios are these.)
 */

const attributes = {
  specversion: '1.0',
  type: 'com.example.someevent',
  time: '2018-04-05T03:56:24Z',
  id: '1234-1234-1234',
  source: '/mycontext/subcontext',
}
const data = { message: 'Hello World!' }
const inBody = JSON.stringify({ ...attributes, datacontenttype: 'application/json', data }, null, 4)
const asJson = (contentType = 'application/json') => ({ ...attributes, datacontenttype: contentType, data })
const headersOf = (prefix: string) => Object.entries(attributes).map(([name, value]) => `${prefix}${name}: ${value}`)

/** Spellings of one content type: the two of the features, and others that the specifications allow. */
const JSON_TYPES = [
  'application/json',
  'application/json; charset=utf-8',
  'application/json;charset="UTF-8"',
  'application/vnd.x+json',
]
const STRUCTURED_TYPES = [
  'application/cloudevents+json',
  'application/cloudevents+json; charset=utf-8',
  'application/cloudevents+json; charset=UTF-8',
  'Application/CloudEvents+JSON;charset=utf-8',
]

describe('HTTP protocol binding', () => {
  const server = createServer()
  let port: number

  beforeAll(async () => {
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    port = (server.address() as AddressInfo).port
  })
  afterAll(() => server.close())

  /** The event that a server reads from exactly these lines. */
  async function received(lines: string[], body: string): Promise<CloudEvent> {
    const socket = connect(port, '127.0.0.1')
    const request = once(server, 'request') as Promise<[IncomingMessage]>
    const head = [
      'POST /someresource HTTP/1.1',
      'Host: example.com',
      ...lines,
      `Content-Length: ${Buffer.byteLength(body)}`,
    ]
    socket.write(`${head.join('\r\n')}\r\n\r\n${body}`)
    const [message] = await request
    const chunks: Buffer[] = []
    for await (const chunk of message) chunks.push(chunk as Buffer)
    socket.destroy()
    return fromHttp({ headers: message.headers, body: Buffer.concat(chunks) })
  }

  it.each(JSON_TYPES)('binary mode, content type %s', async (contentType) => {
    const event = await received([...headersOf('ce-'), `Content-Type: ${contentType}`], JSON.stringify(data, null, 4))
    expect(event).toEqual(asJson(contentType))
  })

  it('binary mode, header names in any case', async () => {
    const shouted = headersOf('CE-').map((line) => line.replace(/^[^:]+/, (name) => name.toUpperCase()))
    expect(await received([...shouted, 'CONTENT-TYPE: application/json'], JSON.stringify(data))).toEqual(asJson())
  })

  it.each(STRUCTURED_TYPES)('structured mode, content type %s', async (contentType) => {
    expect(await received([`Content-Type: ${contentType}`], inBody)).toEqual(asJson())
  })

  it.each(['binary', 'structured'] as const)('what is written in %s mode is read as it was', async (mode) => {
    const { headers, body } = toHttp(asJson(), mode)
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`)
    expect(await received(lines, Buffer.from(body).toString())).toEqual(asJson())
  })
})

describe('NATS protocol binding', () => {
  let nats: Awaited<ReturnType<typeof startTestNats>>
  let subjects = 0

  beforeAll(async () => {
    nats = await startTestNats()
  })
  afterAll(() => nats?.[Symbol.asyncDispose]())

  /** The event that a subscriber reads from exactly these header lines; none at all: a message without headers. */
  async function received(lines: string[], body: string): Promise<CloudEvent> {
    const { host } = new URL(nats.url)
    const [hostname = '', port = ''] = host.split(':')
    const socket = connect(Number(port), hostname)
    const subject = `conformance.${subjects++}`
    const head = lines.length === 0 ? '' : `NATS/1.0\r\n${lines.join('\r\n')}\r\n\r\n`
    const size = Buffer.byteLength(head)
    const total = size + Buffer.byteLength(body)
    const put = size === 0 ? `PUB ${subject} ${total}` : `HPUB ${subject} ${size} ${total}`
    socket.write(`CONNECT {"verbose":false,"headers":true}\r\nSUB ${subject} 1\r\n${put}\r\n${head}${body}\r\n`)
    let said = ''
    for await (const chunk of socket) {
      said += String(chunk)
      const message = messageIn(said)
      if (message) return fromNats(message)
    }
    throw new Error(`no message came back: ${said}`)
  }

  it.each(JSON_TYPES)('binary mode, datacontenttype %s', async (contentType) => {
    const lines = [...headersOf('ce-'), `ce-datacontenttype: ${contentType.replaceAll(/[ "]/g, encodeURIComponent)}`]
    expect(await received(lines, JSON.stringify(data, null, 4))).toEqual(asJson(contentType))
  })

  it.each(JSON_TYPES)(
    'binary mode, content-type %s alone, as Kafka’s binding and the SDK for Go have it',
    async (contentType) => {
      expect(await received([...headersOf('ce-'), `content-type: ${contentType}`], JSON.stringify(data))).toEqual(
        asJson(contentType),
      )
    },
  )

  it('binary mode, header names in any case', async () => {
    const shouted = headersOf('ce-').map((line) => line.replace(/^[^:]+/, (name) => name.toUpperCase()))
    expect(await received([...shouted, 'Content-Type: application/json'], JSON.stringify(data))).toEqual(asJson())
  })

  it.each(STRUCTURED_TYPES)('structured mode, content type %s', async (contentType) => {
    expect(await received([`Content-Type: ${contentType}`], inBody)).toEqual(asJson())
  })

  it('structured mode, without any header, as from servers before 2.2', async () => {
    expect(await received([], inBody)).toEqual(asJson())
  })

  it.each(['binary', 'structured'] as const)('what is written in %s mode is read as it was', async (mode) => {
    const { headers, data: body } = toNats(asJson(), mode)
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`)
    expect(await received(lines, Buffer.from(body).toString())).toEqual(asJson())
  })
})

/** Returns the first complete MSG or HMSG in the output of a nats-server. */
function messageIn(said: string): { headers: Record<string, string>; data: Uint8Array } | undefined {
  const plain = /^MSG \S+ \S+ (\d+)\r\n/m.exec(said)
  const withHeaders = /^HMSG \S+ \S+ (\d+) (\d+)\r\n/m.exec(said)
  const found = withHeaders ?? plain
  if (!found) return undefined
  const headerBytes = withHeaders ? Number(withHeaders[1]) : 0
  const rest = Buffer.from(said.slice(found.index + found[0].length))
  const total = Number(found.at(-1))
  if (rest.length < total) return undefined
  const lines = rest
    .subarray(0, headerBytes)
    .toString()
    .split('\r\n')
    .slice(1)
    .filter((line) => line !== '')
  const headers = lines.map(
    (line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()] as const,
  )
  return { headers: Object.fromEntries(headers), data: rest.subarray(headerBytes, total) }
}
