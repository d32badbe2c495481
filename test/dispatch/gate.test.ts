import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { ApiConnectionError, ApiError } from '#kube'
import { ApiServerAwayError, type Caller, DROPPED, Gate, Outage, PRIORITY } from '../../dispatch/gate.ts'
import { until } from '../support/wait.ts'

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

describe('an outage of the API server', () => {
  const READY = undefined
  const answer = (code: number, message: string) =>
    new ApiError('PATCH /x', { apiVersion: 'v1', kind: 'Status', code, message })
  const broken = (wasSent: boolean) => new ApiConnectionError('PATCH /x: broken', { server: 'api:6443', wasSent })
  const UNREADY = answer(500, '[+]ping ok\n[-]poststarthook/rbac failed: reason withheld')
  const WITHOUT_ETCD = answer(500, '[+]ping ok\n[-]etcd failed: reason withheld')
  const GONE = broken(false)

  /** A gate, and what its looks for the API server find. */
  function gateAt(found: Error | undefined, notReadyMs?: number) {
    const at = { found, looks: 0 }
    const get = async () => {
      at.looks++
      if (at.found !== undefined) throw at.found
      return {} as never
    }
    const outage = new Outage({ get, host: 'api:6443' }, () => 0, notReadyMs)
    return { at, outage, gate: new Gate(1, outage) }
  }
  const failureOf = (gate: Gate, error: Error) =>
    gate.run(of('read'), () => Promise.reject(error)).catch((failure: unknown) => failure)

  it.each([
    ['the connection is refused', broken(false), GONE, 'PATCH /x: broken'],
    ['the answer breaks off', broken(true), GONE, 'PATCH /x: broken'],
    ['it starts, and has not read who may do what', answer(403, 'not yet'), UNREADY, 'PATCH /x: not yet (403)'],
    ['it starts, and does not know the token', answer(401, 'who?'), UNREADY, 'PATCH /x: who? (401)'],
    ['it does not accept the credential', answer(401, 'who?'), answer(401, 'who?'), 'PATCH /x: who? (401)'],
    ['it starts, and does not serve all', answer(503, 'try again'), UNREADY, 'PATCH /x: try again (503)'],
    ['it has lost etcd', answer(500, 'etcdserver: timed out'), WITHOUT_ETCD, 'PATCH /x: etcdserver: timed out (500)'],
    ['of two API servers, one refuses connections', broken(false), READY, 'PATCH /x: broken'],
  ])('is why a request fails: %s', async (_, error, found, message) => {
    const failure = await failureOf(gateAt(found).gate, error)
    expect(failure).toBeInstanceOf(ApiServerAwayError)
    expect(failure).toMatchObject({ message: `the API server is away: ${message}`, cause: error })
  })

  it('ends with the dispatcher: nobody looks for the API server of a cluster that was removed', async () => {
    const { gate, at, outage } = gateAt(GONE)
    await failureOf(gate, broken(false))
    expect(outage.isPresent).toBe(true)
    outage.end()
    await turn()
    expect([outage.isPresent, at.looks]).toEqual([false, 1])
  })

  it.each([
    ['it breaks off, and the API server answers others', broken(true), READY, 1],
    ['the API server is ready, and fails it', answer(500, 'panic'), READY, 1],
    ['the API server is ready, and refuses it', answer(403, 'RBAC'), READY, 1],
    ['the API server is overloaded', answer(429, 'later'), GONE, 0],
    ['the object is not valid', answer(422, 'spec'), GONE, 0],
    ['the object has changed', answer(409, 'version'), GONE, 0],
    ['the object is gone', answer(404, 'gone'), GONE, 0],
  ])('is not why a request fails: %s', async (_, error, found, looks) => {
    const { gate, at } = gateAt(found)
    expect(await failureOf(gate, error)).toBe(error)
    expect(at.looks).toBe(looks)
  })

  it('begins with no refused connection to one of two API servers: the next request is sent at once', async () => {
    const { gate } = gateAt(READY)
    await failureOf(gate, broken(false))
    await expect(gate.run(of('read'), async () => 'sent')).resolves.toBe('sent')
  })

  it('tells a request that waits nothing of the one that has failed', async () => {
    const { gate } = gateAt(WITHOUT_ETCD)
    await failureOf(gate, answer(500, 'secret'))
    await expect(gate.run(of('read'), async () => 'sent')).rejects.toThrow(
      'the API server is away: api:6443 is not ready (etcd)',
    )
  })

  it('is that etcd has no space: requests wait, and the error of one is not told to another, until something is written', async () => {
    const { gate, at, outage } = gateAt(READY)
    const failure = await failureOf(gate, answer(500, 'etcdserver: mvcc: database space exceeded'))
    expect(failure).toMatchObject({
      name: 'ApiServerAwayError',
      message:
        'the API server cannot write, because its store is full: PATCH /x: etcdserver: mvcc: database space exceeded (500)',
    })
    const why =
      'the API server cannot write, because its store is full: api:6443 has no space left (etcdserver: mvcc: database space exceeded)'
    expect(gate.trouble).toBe(why)
    await expect(gate.run(of('read'), async () => 'sent')).rejects.toThrow(why)
    outage.wrote()
    await expect(gate.run(of('read'), async () => 'sent')).resolves.toBe('sent')
    expect([gate.trouble, at.looks]).toEqual([undefined, 0])
  })

  it('ends after a while if the API server answers, but never reports that it is ready; its errors then stay as they are', async () => {
    const { gate, at } = gateAt(UNREADY, 500)
    expect(await failureOf(gate, broken(true))).toBeInstanceOf(ApiServerAwayError)
    await expect(gate.run(of('read'), async () => 'early')).rejects.toThrow(ApiServerAwayError)
    const { signal } = new AbortController()
    await expect(gate.run(of('read'), async () => 'sent', { signal })).resolves.toBe('sent')
    const error = answer(500, 'the plugin does not answer')
    expect(await failureOf(gate, error)).toBe(error)
    at.found = READY
    await failureOf(gate, error)
    at.found = UNREADY
    expect(await failureOf(gate, error), 'it was ready in between').toBeInstanceOf(ApiServerAwayError)
  })

  it('lasts as long as the API server is without etcd', async () => {
    const { gate, at } = gateAt(WITHOUT_ETCD, 0)
    await failureOf(gate, answer(500, 'etcd'))
    const { signal } = new AbortController()
    const waiting = gate.run(of('read'), async () => at.found, { signal })
    await until(() => at.looks > 2)
    at.found = READY
    expect(await waiting, 'sent when it was ready').toBe(READY)
  })
})
