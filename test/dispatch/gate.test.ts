import { setImmediate as turn } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { ApiConnectionError, ApiError } from '#kube'
import { ApiServerAwayError, type Caller, DROPPED, Gate, Outage, PRIORITY } from '../../dispatch/gate.ts'

const of = (kind: Caller['kind'], reconciler = 'at'): Caller => ({ reconciler, kind })
const KINDS = [PRIORITY.create, PRIORITY.delete, PRIORITY.status, 'read', 'event'] as const

/** What a gate for one request begins, in order, when all of this waits for it: `[name, caller, count]`. */
async function order(...waiting: [name: string, caller: Caller, count: number][]): Promise<string[]> {
  const gate = new Gate(1)
  const log: string[] = []
  const first = request(log, 'first')
  const all = [gate.run(of(PRIORITY.create), first.send)]
  for (const [name, caller, count] of waiting)
    for (let index = 0; index < count; index++) all.push(gate.run(caller, async () => void log.push(name)) as never)
  first.end()
  await Promise.all(all)
  return log.slice(1)
}

/** A request that lasts until the test ends it. */
function request(log: string[], name: string) {
  const { promise, resolve } = Promise.withResolvers<void>()
  const send = async () => {
    log.push(name)
    await promise
    return name
  }
  return { send, end: resolve }
}

it('never has more requests in flight than its limit', async () => {
  const gate = new Gate(3)
  let most = 0
  const send = async () => {
    most = Math.max(most, gate.inFlight)
    await turn()
  }
  await Promise.all(Array.from({ length: 50 }, (_, index) => gate.run(of(KINDS[index % 5]!), send)))
  expect(most).toBe(3)
  expect(gate.inFlight).toBe(0)
})

it('lets creates go before deletes before status writes, each in the order of arrival', async () => {
  const log = await order(
    ['event', of('event'), 1],
    ['status', of(PRIORITY.status), 2],
    ['delete', of(PRIORITY.delete), 1],
    ['create', of(PRIORITY.create), 1],
  )
  expect(log).toEqual(['create', 'delete', 'status', 'status', 'event'])
})

it('gives Events one of eight requests while writes and reads wait without end', async () => {
  const log = await order(['write', of(PRIORITY.create), 400], ['read', of('read'), 300], ['event', of('event'), 50])
  for (let from = 0; from < 400; from += 8)
    expect(log.slice(from, from + 8).toSorted()).toEqual([
      'event',
      'read',
      'read',
      'read',
      'write',
      'write',
      'write',
      'write',
    ])
})

it('does not let 10,000 reads of one run go before a write', async () => {
  const log = await order(['read', of('read'), 10_000], ['write', of(PRIORITY.status), 5])
  expect(log.lastIndexOf('write')).toBeLessThan(10)
})

it('leaves to others the turns that a kind of request does not need', async () => {
  expect(await order(['event', of('event'), 20])).toHaveLength(20)
  const log = await order(['read', of('read'), 70], ['event', of('event'), 10])
  for (let from = 0; from < 80; from += 8) expect(log.slice(from, from + 8)).toContain('event')
})

it('serves reconcilers in turn, whatever the priority of what they send', async () => {
  const log = await order(
    ['loud', of(PRIORITY.create, 'loud'), 1000],
    ['quiet', of(PRIORITY.status, 'quiet'), 3],
    ['third', of(PRIORITY.delete, 'third'), 3],
  )
  expect(log.slice(0, 9)).toEqual(Array.from({ length: 3 }, () => ['loud', 'quiet', 'third']).flat())
})

it('drops a request that is not wanted any more at once, without a place in flight', async () => {
  const gate = new Gate(1)
  const log: string[] = []
  const first = request(log, 'first')
  const change = new AbortController()
  const running = gate.run(of(PRIORITY.create), first.send)
  const overtaken = gate.run(of(PRIORITY.status), request(log, 'overtaken').send, { unwanted: change.signal })
  const next = request(log, 'next')
  next.end()
  const after = gate.run(of('event'), next.send)
  change.abort()
  expect(await overtaken).toBe(DROPPED)
  expect(await gate.run(of(PRIORITY.status), request(log, 'too late').send, { unwanted: change.signal })).toBe(DROPPED)
  first.end()
  await Promise.all([running, after])
  expect(log).toEqual(['first', 'next'])
})

it('lets a waiting request leave the line when it is aborted, and keeps its place for others', async () => {
  const gate = new Gate(1)
  const log: string[] = []
  const first = request(log, 'first')
  const running = gate.run(of(PRIORITY.create), first.send)
  const abort = new AbortController()
  const waiting = gate.run(of(PRIORITY.create), request(log, 'never').send, { signal: abort.signal })
  abort.abort(new Error('the lease is lost'))
  await expect(waiting).rejects.toThrow('the lease is lost')
  expect(gate.waiting).toBe(0)
  first.end()
  await running
  expect(log).toEqual(['first'])
})

it('goes on after a request that fails', async () => {
  const gate = new Gate(1)
  await expect(gate.run(of(PRIORITY.create), () => Promise.reject(new Error('refused')))).rejects.toThrow('refused')
  expect(await gate.run(of(PRIORITY.create), () => Promise.resolve('well'))).toBe('well')
})

it('lets requests go again after a while if the API server answers, but never reports that it is ready', async () => {
  const get = () => Promise.reject(new ApiError('GET /readyz', { apiVersion: 'v1', kind: 'Status', code: 503 }))
  const gate = new Gate(1, new Outage({ get }, () => 0, 500))
  const broken = new ApiConnectionError('reset', { server: 'api:6443', mayHaveTakenEffect: false })
  await expect(gate.run(of('read'), () => Promise.reject(broken))).rejects.toThrow(ApiServerAwayError)
  await expect(gate.run(of('read'), async () => 'early')).rejects.toThrow(ApiServerAwayError)
  const { signal } = new AbortController()
  await expect(gate.run(of('read'), async () => 'sent', { signal })).resolves.toBe('sent')
})
