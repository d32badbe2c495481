/**
 * The laws of controller-runtime's internal/controller, with the names of its tests, for a dispatcher on a real queue and
 * a real API server. The last three are the ones that upstream names and has never written. What has no counterpart here
 * (leader election and its warm-up, Result.Priority) and what differs is in docs/decisions/0011-conformance.md.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Outcome, RetryAfterError, type RunContext, TerminalError } from '#contracts'
import { keyOf } from '#events'
import { resourcePath } from '#kube'
import { PODS, startFixture, until, WIDGETS } from '../../dispatch/fixture.ts'
import { gate } from '../support.ts'

type Fixture = Awaited<ReturnType<typeof startFixture>>
let fixture: Fixture
let scene: Awaited<ReturnType<Fixture['scene']>>
beforeAll(async () => {
  fixture = await startFixture()
  scene = await fixture.scene('laws', { spec: { timeoutSeconds: 1 } })
})
afterAll(async () => {
  await scene?.stop()
  await fixture?.[Symbol.asyncDispose]()
})

const resultsOf = (name: string) =>
  scene.stepsOf(name).flatMap((step) => (step.step === 'finished' ? [step.result] : []))
const attemptsOf = (name: string) =>
  scene.stepsOf(name).flatMap((step) => (step.step === 'started' ? [step.attempt] : []))
const entryOf = async (name: string) => {
  const entries = []
  for await (const entry of scene.queue.list({ reconciler: scene.name })) entries.push(entry)
  return entries.find(({ key }) => key === keyOf(scene.name, name))
}
const hangs = (signal: AbortSignal) =>
  new Promise<Outcome>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)))

describe('a call', () => {
  it('is made for a key that is enqueued (should call Reconciler if an item is enqueued)', async () => {
    let calls = 0
    await scene.widget('called', () => {
      calls++
      return {}
    })
    expect([(await scene.ended('called')).result, calls]).toEqual(['success', 1])
  })

  it('that panics is an error of that run, and others go on (should recover panic if RecoverPanic is true by default)', async () => {
    let calls = 0
    await scene.widget('panics', () => {
      // oxlint-disable-next-line typescript/only-throw-error -- functions do
      if (calls++ === 0) throw undefined
      return {}
    })
    await scene.widget('calm', () => ({}))
    expect((await scene.ended('calm')).result).toBe('success')
    await until(() => resultsOf('panics').length === 2)
    expect(resultsOf('panics')).toEqual(['error', 'success'])
  })

  it('is ended at the time-out, once for each that hangs (should time out if ReconciliationTimeout is set, reconcile_timeouts)', async () => {
    const reasons: unknown[] = []
    const hang = (_: unknown, { signal }: RunContext) => {
      signal.addEventListener('abort', () => reasons.push((signal.reason as Error).name))
      return hangs(signal)
    }
    await Promise.all(['hangs-1', 'hangs-2'].map((name) => scene.widget(name, hang)))
    for (const name of ['hangs-1', 'hangs-2']) {
      expect(await scene.ended(name)).toMatchObject({ result: 'error', message: expect.stringContaining('within 1 s') })
      scene.behave(name, () => ({}))
    }
    expect(reasons).toEqual(['RunTimeoutError', 'RunTimeoutError'])
  })

  it('that ends in time or gives up by itself has not timed out (reconcile_timeouts: user cancels, completes)', async () => {
    const signals: AbortSignal[] = []
    await scene.widget('in-time', (_, { signal }) => {
      signals.push(signal)
      return {}
    })
    await scene.widget('gives-up', (_, { signal }) => {
      signals.push(signal)
      throw new Error('the database said no')
    })
    expect(await scene.ended('in-time')).toMatchObject({ result: 'success' })
    expect(await scene.ended('gives-up')).toMatchObject({ result: 'error', message: 'the database said no' })
    scene.behave('gives-up', () => ({}))
    expect(signals.map(({ aborted }) => aborted)).toEqual([false, false])
  })

  it('is aborted when its dispatcher stops, which is no time-out (reconcile_timeouts: parent cancelled)', async () => {
    const stopping = await fixture.scene('stopping', { spec: { timeoutSeconds: 60 }, graceMs: 0 })
    const began = gate()
    let reason: unknown
    await stopping.widget('a', (_, { signal }) => {
      signal.addEventListener('abort', () => (reason = signal.reason))
      began.open()
      return hangs(signal)
    })
    await began.opened
    await stopping.stop()
    expect(reason).toMatchObject({ name: 'LeaseLostError' })
  })
})

describe('an end', () => {
  it('in an error makes another run, and other keys go on meanwhile (should requeue a Request if there is an error and continue processing items)', async () => {
    let calls = 0
    await scene.widget('fails', () => {
      if (calls++ === 0) throw new Error('once')
      return {}
    })
    await scene.widget('next', () => ({}))
    expect((await scene.ended('next')).result).toBe('success')
    await until(() => resultsOf('fails').length === 2)
    expect(resultsOf('fails')).toEqual(['error', 'success'])
  })

  it('in a terminal error makes none (should not requeue a Request if there is a terminal error)', async () => {
    await scene.widget('terminal', () => {
      throw new TerminalError('never')
    })
    expect((await scene.ended('terminal')).result).toBe('terminal')
    expect(await entryOf('terminal')).toMatchObject({ state: 'parked', error: 'never' })
  })

  it('resets the backoff only if it is no error (should not reset backoff until there’s a non-error result)', async () => {
    const ends: (() => Outcome)[] = [
      () => {
        throw new Error('one')
      },
      () => {
        throw new RetryAfterError('two', { afterSeconds: 0.01 })
      },
      () => {
        throw new Error('three')
      },
      () => ({ requeueAfterSeconds: 0.01 }),
      () => ({}),
    ]
    // Called again within a run, after each write.
    await scene.widget('backs-off', () => ends[attemptsOf('backs-off').length - 1]!())
    await until(() => resultsOf('backs-off').length === 5)
    expect(attemptsOf('backs-off')).toEqual([0, 1, 2, 3, 0])
    expect(resultsOf('backs-off')).toEqual(['error', 'error', 'error', 'requeue_after', 'success'])
  })

  it('with a time to run again is not rate-limited (should requeue a Request after a duration without rate limitting)', async () => {
    let calls = 0
    await scene.widget('again', () => (++calls < 4 ? { requeueAfterSeconds: 0.01 } : {}))
    await until(() => resultsOf('again').length === 4)
    expect(attemptsOf('again')).toEqual([0, 0, 0, 0])
  })

  it('in an error says nothing else: what it would have applied and when it would have run again is not heard (should perform error behavior if error is not nil, regardless of RequeueAfter)', async () => {
    await scene.widget('both', async () => {
      await Promise.reject(new Error('after all'))
      return { status: { phase: 'DONE' }, requeueAfterSeconds: 3600 }
    })
    expect((await scene.ended('both')).result).toBe('error')
    expect(await entryOf('both')).not.toMatchObject({ reason: 'Requeue' })
    scene.behave('both', () => ({}))
  })

  it('in an error keeps the lane, and a timer is as urgent as a change (should retain the priority when there was an error, RequeueAfter)', async () => {
    await scene.widget('low', () => ({}))
    await scene.ended('low')
    scene.behave('low', () => {
      throw new RetryAfterError('later', { afterSeconds: 3600 })
    })
    await scene.queue.enqueue(scene.name, keyOf(scene.name, 'low'), { lane: 'low' })
    await until(async () => (await entryOf('low'))?.state === 'waiting')
    expect(await entryOf('low')).toMatchObject({ lane: 'low', reason: 'Error' })
    scene.behave('low', () => ({ requeueAfterSeconds: 3600 }))
    await scene.queue.enqueue(scene.name, keyOf(scene.name, 'low'), { lane: 'low' })
    await until(async () => (await entryOf('low'))?.lane === 'high')
    expect(await entryOf('low')).toMatchObject({ state: 'waiting', reason: 'Requeue' })
  })
})

describe('a timer', () => {
  it('goes with its object: the run that the deletion makes finds nothing, and nothing is left', async () => {
    const widget = await scene.widget('deleted', () => ({ requeueAfterSeconds: 3600 }))
    await until(async () => (await entryOf('deleted'))?.state === 'waiting')
    await fixture.events.put(WIDGETS, 'deleted', {
      ...widget,
      metadata: { ...widget.metadata, resourceVersion: `${Number(widget.metadata.resourceVersion) + 1}` },
    })
    await scene.enqueue('deleted')
    await until(async () => (await entryOf('deleted')) === undefined)
  })

  it('of an object that is created again under its name is its own', async () => {
    const first = await scene.widget('again-created', () => ({ requeueAfterSeconds: 3600 }))
    await until(async () => (await entryOf('again-created'))?.state === 'waiting')
    await fixture.kube.delete(resourcePath(WIDGETS, scene.name, 'again-created'))
    const uids: (string | undefined)[] = []
    const second = await scene.widget('again-created', ({ object }) => {
      uids.push(object?.metadata.uid)
      return {}
    })
    await until(async () => (await entryOf('again-created')) === undefined)
    expect(uids).toContain(second.metadata.uid)
    expect(first.metadata.generation).toBe(second.metadata.generation)
  })

  it('is set for the instant, whatever the offset it is written with', async () => {
    const due = new Date(Math.ceil(Date.now() / 60_000) * 60_000 + 7_200_000)
    const inIndia = `${new Date(due.getTime() + 5.5 * 3_600_000).toISOString().slice(0, 19)}+05:30`
    await scene.widget('india', () => ({ requeueAt: inIndia }))
    await until(async () => (await entryOf('india'))?.state === 'waiting')
    const entry = await entryOf('india')
    const at = entry?.state === 'waiting' ? entry.until.getTime() : 0
    expect(Math.abs(at - due.getTime())).toBeLessThan(50)
  })
})

describe('a start', () => {
  it('a second dispatcher is one more to share the keys: still one run per key (should error when it is started twice)', async () => {
    const one = await fixture.scene('twice')
    let most = 0
    let running = 0
    const behaviour = async () => {
      most = Math.max(most, ++running)
      await new Promise((resolve) => setTimeout(resolve, 20))
      running--
      return {}
    }
    await one.widget('a', behaviour)
    const stop = new AbortController()
    const ended = one.dispatcher.run(stop.signal, 1000)
    for (let run = 0; run < 5; run++) await one.run('a')
    expect(most).toBe(1)
    stop.abort()
    await Promise.all([ended, one.stop()])
  })

  it('waits for everything that it reads (should not call Reconcile until all event handlers have processed initial objects; pending upstream: should wait for informers to be synced before processing items)', async () => {
    const services = { group: '', version: 'v1', resource: 'services' }
    const unsynced = await fixture.scene('waits', {
      spec: { owns: [PODS, { ...PODS, resource: 'services', kind: 'Service' }] },
      waitFor: false,
    })
    let calls = 0
    await unsynced.widget('a', () => {
      calls++
      return {}
    })
    await until(async () => (await unsynced.queue.depth('waits')).queued === 1)
    expect([calls, unsynced.dispatcher.serving()]).toEqual([0, []])
    const cursor = { resourceVersion: '2', at: '2030-01-01T00:00:00Z', covers: [unsynced.coverage()] }
    await fixture.events.setCursor(services, undefined, cursor)
    await until(() => calls === 1)
    await unsynced.stop()
  })

  it.each([1, 3])(
    'has %i runs at once if the Reconciler says so, and not one more (pending upstream: should create a new go routine for MaxConcurrentReconciles)',
    async (concurrency) => {
      const limited = await fixture.scene(`at-once-${concurrency}`, { spec: { concurrency } })
      const goesOn = gate()
      let running = 0
      let most = 0
      const names = ['a', 'b', 'c', 'd', 'e']
      for (const name of names)
        await limited.widget(name, async () => {
          most = Math.max(most, ++running)
          await goesOn.opened
          running--
          return {}
        })
      await until(() => running === concurrency)
      expect(await limited.queue.depth(limited.name)).toMatchObject({ queued: 5 - concurrency, running: concurrency })
      goesOn.open()
      for (const name of names) await limited.ended(name)
      expect(most).toBe(concurrency)
      await limited.stop()
    },
  )

  it('ends when its queue is gone (pending upstream: should return if the queue is shutdown)', async () => {
    const ending = await fixture.scene('ending', { graceMs: 60_000 })
    await ending.widget('a', () => ({}))
    await ending.ended('a')
    await ending.stop()
    expect(ending.dispatcher.serving()).toEqual([])
    await ending.enqueue('a')
    expect(await ending.queue.depth('ending')).toMatchObject({ queued: 1 })
  })
})
