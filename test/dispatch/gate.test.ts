import { setImmediate as turn } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { DROPPED, Gate, PRIORITY } from '../../dispatch/gate.ts'

/** A request that lasts until it is told to end. */
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
  await Promise.all(Array.from({ length: 50 }, (_, index) => gate.run((index % 4) as 0, send)))
  expect(most).toBe(3)
  expect(gate.inFlight).toBe(0)
})

it('lets creates go before deletes before status writes before Events, each in the order of arrival', async () => {
  const gate = new Gate(1)
  const log: string[] = []
  const first = request(log, 'first')
  const all = [gate.run(PRIORITY.create, first.send)]
  for (const [priority, name] of [
    [PRIORITY.event, 'event'],
    [PRIORITY.status, 'status 1'],
    [PRIORITY.status, 'status 2'],
    [PRIORITY.delete, 'delete'],
    [PRIORITY.create, 'create'],
  ] as const) {
    const later = request(log, name)
    later.end()
    all.push(gate.run(priority, later.send))
  }
  first.end()
  await Promise.all(all)
  expect(log).toEqual(['first', 'create', 'delete', 'status 1', 'status 2', 'event'])
})

it('drops a request that is not wanted any more at once, without a place in flight', async () => {
  const gate = new Gate(1)
  const log: string[] = []
  const first = request(log, 'first')
  const change = new AbortController()
  const running = gate.run(PRIORITY.create, first.send)
  const overtaken = gate.run(PRIORITY.status, request(log, 'overtaken').send, { unwanted: change.signal })
  const next = request(log, 'next')
  next.end()
  const after = gate.run(PRIORITY.event, next.send)
  change.abort()
  expect(await overtaken).toBe(DROPPED)
  expect(await gate.run(PRIORITY.status, request(log, 'too late').send, { unwanted: change.signal })).toBe(DROPPED)
  first.end()
  await Promise.all([running, after])
  expect(log).toEqual(['first', 'next'])
})

it('lets a waiting request leave the line when it is aborted, and keeps its place for others', async () => {
  const gate = new Gate(1)
  const log: string[] = []
  const first = request(log, 'first')
  const running = gate.run(PRIORITY.create, first.send)
  const abort = new AbortController()
  const waiting = gate.run(PRIORITY.create, request(log, 'never').send, { signal: abort.signal })
  abort.abort(new Error('the lease is lost'))
  await expect(waiting).rejects.toThrow('the lease is lost')
  expect(gate.waiting).toBe(0)
  first.end()
  await running
  expect(log).toEqual(['first'])
})

it('goes on after a request that fails', async () => {
  const gate = new Gate(1)
  await expect(gate.run(PRIORITY.create, () => Promise.reject(new Error('refused')))).rejects.toThrow('refused')
  expect(await gate.run(PRIORITY.create, () => Promise.resolve('well'))).toBe('well')
})
