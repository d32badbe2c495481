import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { type Invoke, placeOf, type RunInput, type RunLog } from '#contracts'
import { RunTimeoutError } from '#reconcile'
import { heapWithin, isolation } from '../../cli/process/isolation.ts'

const MODULE = fileURLToPath(new URL('./naughty.ts', import.meta.url))

const notApart: Invoke = () => Promise.reject(new Error('run beside the others'))
const isolated = () => isolation([MODULE], 100)('naughty', notApart)
const apart = isolated()
const lines: string[] = []
const pids: number[] = []
const line = (fields: object, message: string) => {
  lines.push(message)
  if ('pid' in fields) pids.push(fields.pid as number)
}
const log: RunLog = { debug: line, info: line, warn: line, error: line }

function doing(
  does: string,
  signal = new AbortController().signal,
  invoke = apart,
  suspect = true,
  more: object = {},
  name = 'a',
) {
  const object = {
    apiVersion: 'test.fairlead.dev/v1',
    kind: 'Naughty',
    metadata: { name, namespace: 'default', uid: '1' },
    spec: { does },
  }
  const input: RunInput = { object, owned: {}, related: {}, attempt: 2, now: '2030-01-01T00:00:00Z', finalizing: false }
  return invoke(input, { signal, log, suspect, ...more })
}

it('a function in a process of its own gives the outcome that it gives elsewhere, and its log', async () => {
  expect(await doing('nothing')).toEqual({ status: { phase: 'DONE' } })
  expect(lines).toEqual(['begun', 'done'])
})

it('an error keeps the place where the function has thrown it', async () => {
  const error: unknown = await doing('refuse').catch((thrown: unknown) => thrown)
  const lines = readFileSync(MODULE, 'utf8').split('\n')
  const line = lines.findIndex((text) => text.includes('throw new TerminalError(')) + 1
  expect(placeOf(error)).toMatch(new RegExp(String.raw`^TerminalError at test/process/naughty\.ts:${line}:\d+$`))
})

it('the next call is made in the same process; where that ends, by whatever, in a new one', async () => {
  const tell = () => doing('tell its process')
  const first = await tell()
  expect(await tell()).toEqual(first)
  expect(await doing('exit where it is not the first')).toEqual({ status: { phase: 'DONE' } })
  expect(await tell()).not.toEqual(first)
})

it('what a call has left behind cannot be the next one’s end: that has a process of its own', async () => {
  const tell = () => doing('tell its process')
  const before = await tell()
  expect(await doing('leave a loop')).toEqual({ status: { phase: 'DONE' } })
  expect(await tell()).not.toEqual(before)
})

it('the next call is made in the same process where the call before it has closed all that it opened', async () => {
  const tell = () => doing('tell its process')
  const before = await tell()
  for (const _ of Array(3)) expect(await doing('close a connection')).toEqual({ status: { phase: 'DONE' } })
  expect(await tell()).toEqual(before)
})

it('a process that has received the configuration of a function makes no other call', async () => {
  const withConfig = () =>
    doing('tell its process', new AbortController().signal, apart, true, { config: { token: 'of one function' } })
  const before = await withConfig()
  expect(await doing('tell its process')).not.toEqual(before)
})

it('the configuration of a function reaches its call, and leaves that process in no answer', async () => {
  const file = fileURLToPath(new URL('../e2e/config-function.ts', import.meta.url))
  const object = { apiVersion: 'test.fairlead.dev/v1', kind: 'Keyed', metadata: { name: 'a' }, spec: { act: 'return' } }
  const input = { object, owned: {}, related: {}, attempt: 2, now: '2030-01-01T00:00:00Z', finalizing: false }
  const config = { token: 'token-of-one-function', url: 'http://127.0.0.1', cloud: 'identity-of-one-function' }
  const context = { signal: new AbortController().signal, log, suspect: true, config }
  await expect(isolation([file], 100)('keyed', notApart)({ ...input, ask: 'read' }, context)).rejects.toMatchObject({
    reason: 'SecretReturned',
    message: expect.not.stringContaining(config.token),
  })
})

it('a call whose signal has been given is not made', async () => {
  await expect(doing('loop', AbortSignal.abort(new Error('too late')))).rejects.toThrow('too late')
})

it.each([
  [0, 512],
  [2 ** 30, 128],
  [2 ** 40, 512],
])('of %i bytes for all, the heap of one may have %i MiB', (bytes, heapMb) => expect(heapWithin(bytes)).toBe(heapMb))

it.each([
  ['exit', { message: 'the function ended its process: exit code 0' }],
  ['fill the heap', { message: expect.stringMatching(/SIGABRT|memory/) }],
  ['leave a rejection', { message: 'from a promise' }],
  ['refuse', { name: 'TerminalError', message: 'never', reason: 'Refused' }],
  ['put off', { name: 'RetryAfterError', message: 'later', afterSeconds: 7 }],
])('what it does wrong is an error of the call: %s', async (does, error) => {
  await expect(doing(does)).rejects.toMatchObject(error)
})

it('a call ends by its signal only when its process is gone', async () => {
  pids.length = 0
  const abort = new AbortController()
  const call = doing('loop', abort.signal)
  while (pids.length === 0) await new Promise(setImmediate)
  abort.abort(new Error('the function did not finish'))
  await expect(call).rejects.toThrow('the function did not finish')
  expect(() => process.kill(pids[0] ?? 0, 0)).toThrow('ESRCH')
})

const DID_NOT = 'the function did not finish'
const ENDED = 'the function ended its process: exit code 0'
const BESIDE = 'run beside the others'

/** How calls at the same time end: by their answer, or by an error. */
const endsOf = async (calls: readonly Promise<unknown>[]): Promise<string[]> =>
  (await Promise.allSettled(calls)).map((call) =>
    call.status === 'rejected' ? (call.reason as Error).message : 'DONE',
  )

it('where some are suspected, none runs beside the others while they come back: the next one may loop', async () => {
  const invoke = isolated()
  const calls = Array.from({ length: 7 }, () => doing('nothing', undefined, invoke))
  expect(await endsOf([...calls, doing('exit', undefined, invoke)])).toEqual([...Array(7).fill('DONE'), ENDED])
})

it('none runs beside the others while none has come back, whether it is suspected or not', async () => {
  const invoke = isolated()
  const [first, ...others] = Array.from({ length: 4 }, () => doing('exit', undefined, invoke))
  await expect(first).rejects.toThrow(ENDED)
  expect(await endsOf(others)).not.toContain(BESIDE)
  expect(await doing('nothing', undefined, invoke, false)).toEqual({ status: { phase: 'DONE' } })
  await expect(doing('nothing', undefined, invoke, false)).rejects.toThrow(BESIDE)
})

it('one for which there is no process shows nothing: no other runs beside the others for it', async () => {
  const invoke = isolated()
  const { execPath } = process
  process.execPath = '/none'
  const call = doing('nothing', undefined, invoke)
  process.execPath = execPath
  const next = doing('exit', undefined, invoke)
  const third = doing('exit', undefined, invoke)
  await expect(call).rejects.toThrow('ENOENT')
  expect(await endsOf([next, third])).toEqual([ENDED, ENDED])
})

it('an object whose call has not come back is a suspect, until one has', async () => {
  const invoke = isolated()
  await expect(doing('nothing', undefined, invoke, false)).rejects.toThrow(BESIDE)
  await expect(doing('exit', undefined, invoke)).rejects.toThrow(ENDED)
  await expect(doing('exit', undefined, invoke, false)).rejects.toThrow(ENDED)
  expect(await doing('nothing', undefined, invoke, false)).toEqual({ status: { phase: 'DONE' } })
  await expect(doing('nothing', undefined, invoke, false)).rejects.toThrow(BESIDE)
})

it('one that has come back beside the others shows that those which are not suspected may run there', async () => {
  const invoke = isolated()
  await expect(doing('nothing', undefined, invoke, false, {}, 'other')).rejects.toThrow(BESIDE)
  await expect(doing('exit', undefined, invoke)).rejects.toThrow(ENDED)
  await expect(doing('nothing', undefined, invoke, false, {}, 'other')).rejects.toThrow(BESIDE)
  await expect(doing('exit', undefined, invoke)).rejects.toThrow(ENDED)
})

it('functions that never come back take neither the last place nor the shared process, whatever their number', async () => {
  const one = isolation([MODULE], 100)
  const good = one('naughty', () => Promise.resolve('beside'))
  expect(await doing('nothing', undefined, good, false)).toBe('beside')
  const abort = new AbortController()
  pids.length = 0
  const bad = Array.from({ length: 5 }, () => doing('hang', abort.signal, one('naughty', notApart)))
  while (pids.length < 3) await new Promise(setImmediate)
  expect(await doing('nothing', undefined, good)).toEqual({ status: { phase: 'DONE' } })
  abort.abort(new Error(DID_NOT))
  expect(await endsOf(bad)).not.toContain(BESIDE)
})

it('an effect is performed in a process of its own, so that it is not performed again when another call has ended it', async () => {
  const module = fileURLToPath(new URL('./reaching.ts', import.meta.url))
  const reach = isolation([module], 100)('reaching', notApart)
  const object = {
    apiVersion: 'test.fairlead.dev/v1',
    kind: 'Naughty',
    metadata: { name: 'a', uid: '1' },
    spec: { does: 'nothing' },
  }
  const run = { object, owned: {}, related: {}, attempt: 2, now: '2030-01-01T00:00:00Z', finalizing: false }
  const context = { signal: new AbortController().signal, log, suspect: true }
  const read = () => reach({ ...run, ask: 'read' }, context)
  const first = await read()
  const [kind, pid] = (await reach({ ...run, ask: 'perform', effect: { kind: 'add' } }, context)) as [string, number]
  expect([kind, pid === first]).toEqual(['add', false])
  expect(await read()).toBe(first)
})

it.each([
  ['loop', "if (deed === 'loop') for (;;);"],
  ['hang', undefined],
])('a call whose time is over tells where it blocks its process, if it does: %s', async (does, code) => {
  pids.length = 0
  const abort = new AbortController()
  const call = doing(does, abort.signal)
  while (pids.length === 0) await new Promise(setImmediate)
  // It blocks 51 ms after its first line.
  await new Promise((resolve) => setTimeout(resolve, 300))
  const error = new RunTimeoutError(DID_NOT)
  abort.abort(error)
  await expect(call).rejects.toBe(error)
  const lines = readFileSync(MODULE, 'utf8').split('\n')
  const line = lines.findIndex((text) => code !== undefined && text.includes(code)) + 1
  const place = code === undefined ? undefined : `Blocked at test/process/naughty.ts:${line}`
  expect(placeOf(error)?.replace(/:\d+$/, '')).toBe(place)
})
