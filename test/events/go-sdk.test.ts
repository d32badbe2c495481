import { spawn } from 'node:child_process'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type CloudEvent, fromNats, toNats } from '#events'
import type { JetStream } from '#nats'
import { cloudEventsProgram } from '../support/go-program.ts'
import { connectTo } from '../support/jetstream.ts'
import { startTestNats } from '../support/servers.ts'
import { object, openStore, PODS } from './objects.ts'

let nats: Awaited<ReturnType<typeof startTestNats>>
let js: JetStream
let program: string

beforeAll(async () => {
  ;[nats, program] = await Promise.all([startTestNats(), cloudEventsProgram()])
  js = await connectTo(nats.url)
  await js.admin.streams.add({ name: 'CHANNEL', subjects: ['channel.>'] })
})
afterAll(async () => {
  await js?.close()
  await nats?.[Symbol.asyncDispose]()
})

async function run(args: string[], input = ''): Promise<string[]> {
  const child = spawn(program, [args[0] ?? '', nats.url, ...args.slice(1)], { stdio: ['pipe', 'pipe', 'pipe'] })
  // A program that reads nothing may have ended before a write.
  if (input !== '') child.stdin.write(input)
  child.stdin.end()
  const [out, error] = await Promise.all([text(child.stdout), text(child.stderr)])
  expect(error).toBe('')
  return out.trim() === '' ? [] : out.trim().split('\n')
}

const event: CloudEvent = {
  specversion: '1.0',
  id: 'u-1:5:modified',
  source: 'https://c/api/v1/pods',
  type: 'dev.fairlead.resource.modified',
  subject: '/api/v1/namespaces/x/pods/y',
  time: '2026-01-02T03:04:05.678Z',
  datacontenttype: 'application/json',
  partitionkey: '/pods/x/y',
  sequence: '00000000000000000005',
  data: { kind: 'Pod', metadata: { name: 'y', labels: { 'a/b': 'é "%"' } } },
}

describe('the CloudEvents SDK for Go, as Knative’s JetStream channel uses it', () => {
  it.each(['binary', 'structured'])('sends events in %s mode that are read here', async (mode) => {
    const subject = `channel.from-go.${mode}`
    // Its message id is the event's own: the stream takes each event once.
    const id = `${event.id} ${mode}`
    await run(['send', subject, mode], `${JSON.stringify({ ...event, id })}\n`)
    const message = await js.lastOf('CHANNEL', subject)
    expect(message?.headers['ce-id']).toBe(mode === 'binary' ? id : undefined)
    const { time, ...rest } = fromNats(message!)
    const { time: sent, ...expected } = event
    expect(rest).toEqual({ ...expected, id })
    expect(Date.parse(String(time))).toBe(Date.parse(String(sent)))
  })

  it.each(['binary', 'structured'] as const)('reads what is written here in %s mode', async (mode) => {
    const { headers, data } = toNats(event, mode)
    await js.publish(`channel.to-go.${mode}`, data, headers)
    const [line = ''] = await run(['receive', `channel.to-go.${mode}`, '1'])
    expect(JSON.parse(line)).toEqual(event)
  })

  it('reads EVENTS itself, references and deletions included', async () => {
    await using store = await openStore(nats.url)
    await store.put(PODS, 'added', object('p', 1))
    await store.put(PODS, 'deleted', object('gone', 2))
    await store.put({ group: '', version: 'v1', resource: 'secrets' }, 'added', object('s', 3, { kind: 'Secret' }))
    const seen = (await run(['receive', 'k8s.>', '3'])).map((line) => JSON.parse(line) as Record<string, unknown>)
    expect(seen.map(({ type, name, dataref }) => [type, name, dataref])).toEqual([
      ['dev.fairlead.resource.added', 'p', undefined],
      ['dev.fairlead.resource.deleted', 'gone', '/api/v1/namespaces/ns/pods/gone'],
      ['dev.fairlead.resource.added', 's', '/api/v1/namespaces/ns/secrets/s'],
    ])
  })
})
