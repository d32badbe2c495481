import { describe, expect, it } from 'vitest'
import { KeyedSerial, Serial, Wake } from '#primitives'

const FOREVER = Number.POSITIVE_INFINITY

describe('a loop that waits for work', () => {
  it('wakes at a poke, and at one that came while it worked', async () => {
    const wake = new Wake()
    const waiting = wake.next(FOREVER)
    expect(wake.isAwaited).toBe(true)
    wake.poke()
    await waiting
    wake.poke()
    wake.poke()
    await wake.next(FOREVER)
    expect(wake.isAwaited).toBe(false)
  })
  it('wakes after the time, and when its signal is aborted', async () => {
    await new Wake().next(1)
    const stop = new AbortController()
    const waiting = new Wake().next(FOREVER, stop.signal)
    stop.abort()
    await waiting
  })
  it('does not take the poke of the loop after it when its signal is aborted', async () => {
    const wake = new Wake()
    const after = wake.next(FOREVER)
    await wake.next(FOREVER, AbortSignal.abort())
    wake.poke()
    await after
  })
})

describe('tasks one after the other', () => {
  const failing = () => Promise.reject(new Error('failed'))
  it('keep their order, whichever of them fails', async () => {
    const tasks = new Serial()
    const done: number[] = []
    await expect(tasks.run(failing)).rejects.toThrow('failed')
    void tasks.run(() => Promise.resolve().then(() => done.push(1)))
    void tasks.run(() => done.push(2))
    await tasks.idle()
    expect(done).toEqual([1, 2])
  })
  it('wait only for tasks of their key', async () => {
    const tasks = new KeyedSerial()
    const first = Promise.withResolvers<void>()
    const done: string[] = []
    const held = tasks.run('a', () => first.promise)
    const next = tasks.run('a', () => Promise.resolve(done.push('a')))
    await tasks.run('b', () => Promise.resolve(done.push('b')))
    first.resolve()
    await Promise.all([held, next])
    expect(done).toEqual(['b', 'a'])
  })
  it('do not overtake when one is given up before it begins', async () => {
    const tasks = new KeyedSerial()
    const first = Promise.withResolvers<void>()
    const done: string[] = []
    const held = tasks.run('a', () => first.promise.then(() => done.push('first')))
    const given = tasks.run('a', () => Promise.resolve(done.push('given up')), AbortSignal.abort(new Error('too late')))
    await expect(given).rejects.toThrow('too late')
    const last = tasks.run('a', () => Promise.resolve(done.push('last')))
    first.resolve()
    await Promise.all([held, last])
    expect(done).toEqual(['first', 'last'])
  })
})
