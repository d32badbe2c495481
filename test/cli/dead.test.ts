import { afterAll, beforeAll, expect, it } from 'vitest'
import { type DeadLetters, deadKey, openDeadLetters } from '#events'
import { replay } from '#inspect'
import type { Nats } from '#lab'
import { type DeadLsOptions, describeLetter, listDead } from '../../cli/commands/dead.ts'
import { FN, freshPrefix, openTestQueue, statesOf } from '../queue/support.ts'
import { command } from '../support/command.ts'
import { startTestNats } from '../support/servers.ts'
import { silent as log } from '../support/silent.ts'

let nats: Nats & AsyncDisposable
beforeAll(async () => {
  nats = await startTestNats()
})
afterAll(() => nats[Symbol.asyncDispose]())

const now = new Date()
const LS: DeadLsOptions = { output: 'table', limit: 100 }

/** A stream with two messages in it, and DEAD with three letters: of a message, of a binary one, of a key. */
async function opened() {
  const prefix = freshPrefix()
  const test = await openTestQueue(nats.url, prefix)
  const { js, queue } = test
  const dead = await openDeadLetters(js, { prefix, cluster: 'c', log })
  const subject = `${prefix}.k8s.x`
  const stream = `${prefix}_EVENTS`
  await js.admin.streams.add({ name: stream, subjects: [`${prefix}.k8s.>`], max_msgs_per_subject: 1 })
  const found = { stream, subject, sequence: 4, storedAt: now, headers: { 'Nats-TTL': '1s', kind: 'x' } }
  await dead.put({ ...found, reason: 'no-cloudevent', detail: 'nothing', data: Buffer.from('{"a":\n"\u001b[2J"}') })
  await dead.put({ ...found, sequence: 5, reason: 'invalid-data', detail: 'bad', data: Buffer.from([0xff, 0]) })
  const key = { reconciler: FN, key: 'ns.a', lane: 'high', since: now, stream: queue.stream }
  await dead.put(deadKey({ ...key, reason: 'unknown-reconciler', detail: 'gone' }))
  return { ...test, prefix, dead, stream, subject }
}

const queueStream = ({ queue }: { queue: { stream: string } }) => queue.stream
const idsOf = async (dead: DeadLetters) =>
  (JSON.parse(await listDead(dead, { ...LS, output: 'json' }, now)) as { id: number }[]).map(({ id }) => id)

it('dead ls selects by reconciler and reason, and shows the latest ones', async () => {
  await using test = await opened()
  const table = await listDead(test.dead, LS, now)
  expect(table.split('\n')[0]).toMatch(/^ID +AGE +RECONCILER +REASON +STREAM +SUBJECT +DETAIL$/)
  expect(table.split('\n')).toHaveLength(4)
  expect(await listDead(test.dead, { ...LS, reconciler: FN }, now)).toContain('unknown-reconciler')
  expect(await listDead(test.dead, { ...LS, reason: 'too-large' }, now)).toBe('Nothing is dead.')
  expect(await listDead(test.dead, { ...LS, limit: 1 }, now)).toContain('… and 2 older ones')
})

it('dead show prints headers and body without harm to the terminal', async () => {
  await using test = await opened()
  const text = describeLetter((await test.dead.get(1))!, 'text', now)
  expect(text).toMatch(/Reason: +no-cloudevent \(400\)\n/)
  expect(text).toMatch(/Header: +kind: x\n/)
  expect(text).toContain('Body (13 bytes):\n{"a":\n"·[2J"}')
  expect(describeLetter((await test.dead.get(2))!, 'text', now)).toContain('not text: the first 512 in hex):\nff00')
  expect(JSON.parse(describeLetter((await test.dead.get(2))!, 'json', now))).toMatchObject({ bodyBase64: '/wA=' })
  expect(describeLetter((await test.dead.get(3))!, 'text', now)).not.toContain('Body')
})

it('dead replay puts back what has its place free, and takes it from the dead', async () => {
  await using test = await opened()
  const again = async (id: number) => replay((await test.dead.get(id))!, test)
  expect(await again(1)).toEqual({ done: true, text: `1 ${test.subject}: published to ${test.stream} as 1` })
  expect(await test.js.bySequence(test.stream, 1)).toMatchObject({ headers: { kind: 'x' } })
  expect(await again(2)).toEqual({ done: false, text: `2 ${test.subject}: left, a newer message stands there` })
  expect(await again(3)).toMatchObject({ done: true, text: `3 work.${FN}.high.ns.a: queued` })
  expect(await statesOf(test.queue)).toEqual(['ns.a queued'])
  expect(await idsOf(test.dead)).toEqual([2])
})

it.each(['$JS.API.STREAM.DELETE.VICTIM', 'PREFIX.work.f.high.a', 'PREFIX.k8s.x 0\r\n\r\nPUB victim 0\r\n'])(
  'dead replay puts nothing elsewhere than into EVENTS, whatever a letter says: %j',
  async (subject) => {
    await using test = await opened()
    const { js, dead, stream } = test
    await js.admin.streams.add({ name: 'VICTIM', subjects: ['victim'] })
    const { messages } = (await js.admin.streams.info(queueStream(test))).state
    const forged = { stream, subject: subject.replace('PREFIX', test.prefix), sequence: 9, storedAt: now, headers: {} }
    await dead.put({ ...forged, subject: stream, reason: 'invalid-data', detail: 'x', data: new Uint8Array() })
    const letter = { ...(await dead.get(4))!, ...forged }
    expect(await replay(letter, test)).toMatchObject({
      done: false,
      text: expect.stringContaining('no place in EVENTS'),
    })
    expect((await js.admin.streams.info('VICTIM')).state.messages).toBe(0)
    expect((await js.admin.streams.info(queueStream(test))).state.messages).toBe(messages)
    await js.admin.streams.delete('VICTIM')
  },
)

it('dead replay leaves a key whose reconciler is not back', async () => {
  await using test = await opened()
  const letter = (await test.dead.get(3))!
  const other = { ...letter, reconciler: 'gone' }
  expect(await replay(other, test)).toMatchObject({ done: false, text: expect.stringContaining('no queue') })
})

it('the commands show, replay and exit as they should', async () => {
  await using test = await opened()
  const dead = (...args: string[]) =>
    command(['dead', ...args], { NATS_URL: nats.url, FAIRLEAD_PREFIX: test.prefix, LOG_LEVEL: 'silent' })
  expect(JSON.parse((await dead('ls', '-o', 'json')).stdout)).toMatchObject([
    { code: 400 },
    { bodyBase64: '/wA=' },
    { reconciler: FN, code: 404 },
  ])
  expect(await dead('show', '99')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('there is no dead letter 99'),
  })
  expect(await dead('replay')).toMatchObject({ code: 2, stderr: expect.stringContaining('--all') })
  const all = await dead('replay', '--all')
  expect(all).toMatchObject({ code: 1 })
  expect(all.stdout.trim().split('\n')).toHaveLength(3)
  expect(await idsOf(test.dead)).toEqual([2])
})
