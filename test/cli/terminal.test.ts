import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { assert, property, string } from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { type EventStore, openEventStore } from '#events'
import type { Nats } from '#lab'
import type { JetStream } from '#nats'
import { table } from '#process/exit'
import { describe as described, harmless } from '../../cli/process/exit.ts'
import { errorFields, textLine } from '../../cli/process/logging.ts'
import { command } from '../support/command.ts'
import { connectTo } from '../support/jetstream.ts'
import { startTestNats } from '../support/servers.ts'
import { silent } from '../support/silent.ts'

const PODS = { group: '', version: 'v1', resource: 'pods' }
/** Erases the screen, sets the clipboard, contains a one-byte escape, reverses the text and begins a line. */
const HOSTILE = '\u001b[2J\u001b]52;c;eA==\u0007\u009b2J\u202e\r\nforged'
// oxlint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/

let nats: Nats & AsyncDisposable
let js: JetStream
let events: EventStore
beforeAll(async () => {
  nats = await startTestNats()
  js = await connectTo(nats.url)
  events = await openEventStore(js, { cluster: 'test', log: silent })
  await events.setCursor(PODS, undefined, { resourceVersion: '1', at: '' })
})
afterAll(async () => {
  await js?.close()
  await nats?.[Symbol.asyncDispose]()
})

describe('what other people have written', () => {
  it('in an object, does nothing to a terminal, and is one line', async () => {
    // The API server takes such an owner of whoever may write a ConfigMap.
    const pod: KubeObject = {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: {
        name: 'a',
        uid: 'u',
        resourceVersion: '1',
        ownerReferences: [{ apiVersion: 'v1', kind: HOSTILE, name: HOSTILE, uid: 'o', controller: true }],
      },
      status: { phase: HOSTILE },
    }
    await events.put(PODS, 'added', pod)
    const get = async (format: string) =>
      (await command(['events', 'get', '-o', format], { NATS_URL: nats.url, LOG_LEVEL: 'silent' })).stdout
    const text = await get('text')
    expect(text).not.toMatch(CONTROL)
    expect(text.trim().split('\n')).toHaveLength(1)
    const json = await get('json')
    expect(json).not.toMatch(CONTROL)
    expect((JSON.parse(json) as { object: KubeObject }).object).toEqual(pod)
  })

  it('has no more of a line of the log than people read', () => {
    const long = 'x'.repeat(1_000_000)
    const error = Object.assign(new Error(long, { cause: new Error(long) }), { reason: long, code: 422 })
    const shown = errorFields(error)
    expect(JSON.stringify(shown).length).toBeLessThan(100_000)
    expect(shown).toMatchObject({ type: 'Error', code: 422 })
    expect(errorFields(new TypeError('short'))).toMatchObject({ type: 'TypeError', message: 'short' })
    expect(errorFields('thrown')).toBe('thrown')
  })

  it('stays in its cell of a table', () => {
    expect(table(['A', 'B'], [[HOSTILE, 'b']]).split('\n')).toHaveLength(2)
  })

  it('does nothing to a terminal as an error', () => {
    const error = new Error(HOSTILE, { cause: new Error(HOSTILE) })
    for (const debug of [false, true]) expect(described(error, debug)).not.toMatch(CONTROL)
  })

  it('is the same in JSON', () => {
    assert(
      property(string({ unit: 'binary' }), (text) => {
        expect(harmless(text)).not.toMatch(CONTROL)
        expect(JSON.parse(harmless(JSON.stringify(text)))).toBe(text)
      }),
    )
  })

  it('does nothing to a terminal where a log shows its texts as they are', () => {
    const fields = { level: 'warn', time: '2026-01-02T03:04:05.678Z', key: HOSTILE, msg: `run ${HOSTILE} failed` }
    const line = textLine(JSON.stringify({ ...fields, err: { stack: `Error: ${HOSTILE}\n    at x` } }), {
      colors: false,
    })
    expect(line).not.toMatch(CONTROL)
    expect(line).toMatch(/^\[\d\d:\d\d:05\.678\] WARN: run .* failed \{"key":/)
    expect(line.split('\n')).toHaveLength(5)
  })
})

it.each<[string, Record<string, string>, boolean]>([
  ['with FAIRLEAD_DEBUG', { FAIRLEAD_DEBUG: '1' }, true],
  ['and none by the level of the log', { LOG_LEVEL: 'debug' }, false],
])('a process that ends by an error prints its stack %s', async (_, env, hasStack) => {
  const script = "(await import('#process/exit')).dieBecause(process.env)(new Error('the end'))"
  const ending = promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], { env })
  const { stderr, code } = (await ending.catch((error: unknown) => error)) as { stderr: string; code: number }
  expect(code).toBe(1)
  expect(stderr.trim().split('\n').length > 1).toBe(hasStack)
  expect(stderr).toMatch(/^fairlead: .*the end$/m)
})
