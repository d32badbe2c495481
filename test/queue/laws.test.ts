import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it, vi } from 'vitest'
import { type Finish, type Lease, LeaseLostError, type QueueObserver } from '#queue'
import type { Io } from '../../streams/queue/record.ts'
import { seededRandom } from '../support/random.ts'
import {
  DONE,
  entriesOf,
  FN,
  freshPrefix,
  gate,
  HeldRuns,
  inMs,
  inOneHour,
  keysNamed,
  longerThanAnyLoop,
  PATIENT,
  pausedWork,
  SHORT,
  statesOf,
  type TestQueue,
  until,
  useTestNats,
  World,
} from './support.ts'

const random = seededRandom('lengths of runs of laws.test.ts')
const { nats, open } = useTestNats()

describe('law 1: after ENQUEUE returned, a run that starts later completes', () => {
  it('for every key of a burst', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(test.queue, undefined, 64)
    const keys = Array.from({ length: 300 }, (_, i) => `n.k${i}`)
    await Promise.all(keys.map((key) => world.change(test.queue, key, Number(key.slice(3)) % 3 ? 'high' : 'low')))
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await worker.drain(1000)
  })

  it('for a change that comes the moment a run has begun', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(test.queue, async ({ key, lane }) => {
      if ((world.versions.get(key) ?? 0) < 20) await world.change(test.queue, key, lane === 'high' ? 'low' : 'high')
      return DONE
    })
    for (let i = 0; i < 10; i++) await world.change(test.queue, `n.k${i}`)
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    expect([...world.versions.values()]).toEqual(Array.from({ length: 10 }, () => 20))
    await worker.drain(1000)
  })
})

describe('law 2: never two owners of a key inside their leases', () => {
  it('with workers of two processes, both lanes, and runs that end in any way', async () => {
    const prefix = freshPrefix()
    await using a = await open(prefix, SHORT)
    await using b = await open(prefix, SHORT)
    const world = new World()
    let isOver = false
    const work = async (): Promise<Finish> => {
      await sleep(random() * 4)
      const die = random()
      if (isOver || die < 0.6) return DONE
      if (die < 0.75) return { kind: 'requeue', at: inMs(random() * 50) }
      if (die < 0.9) return { kind: 'error', message: 'dice', retryAt: inMs(random() * 50) }
      if (die < 0.95) return { kind: 'terminal', message: 'dice' }
      throw new Error('dice')
    }
    const workers = [1, 3, 8].map((slots, index) => world.serve((index % 2 ? a : b).queue, work, slots))
    const keys = keysNamed('k', 12)
    const hammer = async ({ queue }: TestQueue) => {
      for (let i = 0; i < 250; i++)
        await world.change(queue, keys[Math.floor(random() * keys.length)]!, random() < 0.7 ? 'high' : 'low')
    }
    await Promise.all([a, b].map(hammer))
    isOver = true
    for (const key of keys) await world.change(a.queue, key)
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await until(async () => expect(await statesOf(a.queue)).toEqual([]))
    expect(world.overlaps).toEqual([])
    await Promise.all(workers.map((worker) => worker.drain(1000)))
  })

  it('a run that outlives its lease is fenced: it may write nothing, and its key runs again', async () => {
    const prefix = freshPrefix()
    let renewing = true
    const resumes = gate()
    await using stalled = await open(prefix, {
      ...SHORT,
      onIo: (io) => {
        const isStored = io.do === 'publish' && io.message.role === 'record' && io.message.record.state === 'running'
        const isRenewal = world.leases.length > 0 && isStored
        return isRenewal && !renewing ? resumes.opened : undefined
      },
    })
    await using other = await open(prefix, SHORT)
    const world = new World()
    const isTaken = gate()
    const finished: string[] = []
    stalled.queue.serve({
      reconciler: FN,
      slots: 2,
      handler: async (lease) => {
        world.leases.push(lease)
        renewing = false
        isTaken.open()
        await resumes.opened
        expect(() => lease.hold()).toThrow(LeaseLostError)
        expect(lease.signal.aborted).toBe(true)
        return DONE
      },
      onFinished: (_, result) => finished.push(result),
    })
    await world.change(stalled.queue, 'n.a')
    await isTaken.opened
    const worker = world.serve(other.queue)
    await until(() => expect(world.dealtWith.get('n.a')).toBe(1))
    resumes.open()
    await until(() => expect(finished).toEqual(['fenced']))
    await until(() => expect(world.runsOf('n.a')).toBe(2))
    expect(world.overlaps).toEqual([])
    await worker.drain(1000)
  })

  it('a long run keeps its key by renewing the lease', async () => {
    const prefix = freshPrefix()
    const renewals: Io[] = []
    const onIo = (io: Io) => {
      if (io.do === 'publish' && io.message.role === 'record') renewals.push(io)
    }
    await using a = await open(prefix, { onIo })
    await using b = await open(prefix, { onIo })
    const world = new World()
    const long = pausedWork()
    const workers = [a, b].map(({ queue }) => world.serve(queue, long.work))
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    try {
      await world.change(a.queue, 'n.a')
      await long.began
      await until(async () => {
        await vi.advanceTimersByTimeAsync(PATIENT.leaseMs / 3)
        expect(renewals.length).toBeGreaterThan(3)
      })
    } finally {
      vi.useRealTimers()
    }
    long.letGo()
    await until(async () => expect(await statesOf(a.queue)).toEqual([]))
    expect(world.starts).toEqual(['n.a'])
    await Promise.all(workers.map((worker) => worker.drain(1000)))
  })
})

describe('law 3: a run that becomes dirty is followed by another run', () => {
  it.each(['high', 'low'] as const)('exactly one, however often it became dirty (lane %s)', async (lane) => {
    await using test = await open()
    const world = new World()
    const paused = pausedWork({ kind: 'requeue', at: inOneHour() })
    const worker = world.serve(test.queue, paused.work)
    await world.change(test.queue, 'n.a')
    await paused.began
    for (let i = 0; i < 5; i++) {
      await world.change(test.queue, 'n.a', lane)
      await until(async () =>
        expect(await entriesOf(test.queue)).toMatchObject([
          { state: 'running', dirty: true },
          ...(lane === 'low' ? [{}] : []),
        ]),
      )
    }
    paused.letGo()
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.a waiting']))
    expect(world.starts).toEqual(['n.a', 'n.a'])
    expect(world.dealtWith).toEqual(world.versions)
    await worker.drain(1000)
  })

  it('and holds up none of the keys behind it', async () => {
    const prefix = freshPrefix()
    await using a = await open(prefix)
    await using b = await open(prefix)
    const world = new World()
    const paused = pausedWork()
    const busy = world.serve(a.queue, paused.work, 1)
    await world.change(a.queue, 'n.a')
    await paused.began
    for (const key of ['n.a', 'n.b', 'n.c']) await world.change(a.queue, key)
    const free = world.serve(b.queue, undefined, 1)
    await until(() => expect(world.starts).toEqual(['n.a', 'n.b', 'n.c']))
    paused.letGo()
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    expect(world.overlaps).toEqual([])
    await Promise.all([busy, free].map((worker) => worker.drain(1000)))
  })
})

describe('law 4: a waiting timer is never lost', () => {
  it('fires on time, not before, and says so', async () => {
    await using test = await open()
    const world = new World()
    const at = new Date(Date.now() + 700)
    const firedAt: number[] = []
    const worker = world.serve(test.queue, ({ fired }) => {
      if (fired) firedAt.push(Date.now())
      return fired ? DONE : { kind: 'requeue', at }
    })
    await world.change(test.queue, 'n.a')
    await until(() => expect(firedAt).toHaveLength(1))
    expect(firedAt[0]).toBeGreaterThanOrEqual(at.getTime() - 20)
    expect(world.starts).toEqual(['n.a', 'n.a'])
    await worker.drain(1000)
  })

  it('survives the server being killed and all workers being gone, as failed and parked keys do', async () => {
    await using test = await open(undefined, SHORT)
    const before = new World().serve(test.queue, ({ key }) => {
      if (key === 'n.parked') return { kind: 'terminal', message: 'bad' }
      if (key === 'n.failed') return { kind: 'error', message: 'no', retryAt: inMs(600) }
      return { kind: 'requeue', at: key === 'n.later' ? inOneHour() : inMs(600) }
    })
    const due = [...keysNamed('k', 20), 'n.failed']
    await Promise.all([...due, 'n.later', 'n.parked'].map((key) => test.queue.enqueue(FN, key)))
    await until(async () => expect(await test.queue.depth(FN)).toMatchObject({ queued: 0, running: 0, parked: 1 }))
    await before.drain(1000)
    await nats().restart()
    const world = new World()
    const worker = world.serve(test.queue)
    await until(() => expect(new Set(world.starts)).toEqual(new Set(due)))
    expect(world.leases.filter(({ fired }) => fired).length).toBeGreaterThanOrEqual(due.length)
    expect(world.leases.find(({ key }) => key === 'n.failed')?.attempt).toBeGreaterThanOrEqual(1)
    await until(async () => expect((await statesOf(test.queue)).sort()).toEqual(['n.later waiting', 'n.parked parked']))
    await worker.drain(1000)
  })

  it('a change wins over the timer: the key runs at once, and the run arms its own', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(test.queue, () => ({ kind: 'requeue', at: inOneHour() }))
    await world.change(test.queue, 'n.a')
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.a waiting']))
    await world.change(test.queue, 'n.a')
    await until(() => expect(world.dealtWith.get('n.a')).toBe(2))
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.a waiting']))
    expect(world.leases.map(({ fired }) => fired)).toEqual([false, false])
    await worker.drain(1000)
  })
})

describe('law 5: a waiting key keeps its place', () => {
  it('however often it is enqueued, and whoever does it', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    await using other = await open(prefix)
    const world = new World()
    for (const key of ['n.a', 'n.b', 'n.c']) {
      const results = await Promise.all([test, other].map(({ queue }) => world.change(queue, key)))
      expect(results.sort()).toEqual(['coalesced', 'queued'])
    }
    expect(await world.change(test.queue, 'n.a')).toBe('coalesced')
    expect((await test.queue.depth(FN)).queued).toBe(3)
    const worker = world.serve(test.queue, undefined, 1)
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(world.starts).toEqual(['n.a', 'n.b', 'n.c'])
    await worker.drain(1000)
  })

  it('a dirty release moves it to the tail, once per run', async () => {
    const prefix = freshPrefix()
    await using a = await open(prefix)
    await using b = await open(prefix)
    const world = new World()
    const paused = pausedWork()
    const first = world.serve(a.queue, paused.work, 1)
    await world.change(a.queue, 'n.a')
    await paused.began
    await world.change(a.queue, 'n.a')
    const marker = world.serve(b.queue, undefined, 1)
    await until(async () => expect(await entriesOf(a.queue)).toMatchObject([{ state: 'running', dirty: true }]))
    await marker.drain(1000)
    for (const key of ['n.b', 'n.c']) await world.change(a.queue, key)
    paused.letGo()
    await until(async () => expect(await statesOf(a.queue)).toEqual([]))
    expect(world.starts).toEqual(['n.a', 'n.b', 'n.c', 'n.a'])
    await first.drain(1000)
  })
})

it('law 6: nothing is polled and nothing is given back in a loop while keys run and wait', async () => {
  await using test = await open()
  const world = new World()
  const goesOn = gate()
  const worker = world.serve(test.queue, async ({ key }) => {
    if (key === 'n.parked') return { kind: 'terminal', message: 'bad' }
    if (key === 'n.waits') return { kind: 'requeue', at: inOneHour() }
    await goesOn.opened
    return DONE
  })
  for (const key of ['n.runs', 'n.parked', 'n.waits']) await world.change(test.queue, key)
  await until(async () => expect(await test.queue.depth(FN)).toEqual({ queued: 0, running: 1, waiting: 1, parked: 1 }))
  await world.change(test.queue, 'n.runs')
  await until(async () =>
    expect(await entriesOf(test.queue)).toMatchObject([{}, {}, { state: 'running', dirty: true }]),
  )
  const sent = test.js.nc.stats().outMsgs
  await longerThanAnyLoop()
  expect(test.js.nc.stats().outMsgs - sent).toBe(0)
  goesOn.open()
  await worker.drain(1000)
})

it('law 7: an idle key leaves nothing behind', async () => {
  const prefix = freshPrefix()
  await using test = await open(prefix)
  const world = new World()
  const worker = world.serve(test.queue)
  for (let i = 0; i < 20; i++) await world.change(test.queue, `n.k${i}`, i % 2 ? 'low' : 'high')
  await until(() => expect(world.dealtWith).toEqual(world.versions))
  await worker.drain(1000)
  const { state } = await test.js.admin.streams.info(`${prefix}_WORK`, { subjects_filter: '>' })
  expect(Object.keys(state.subjects ?? {})).toEqual([expect.stringMatching(/^t\d+\.done\.f\./)])
  expect(await test.queue.depth(FN)).toEqual({ queued: 0, running: 0, waiting: 0, parked: 0 })
})

describe('how runs end', () => {
  it('errors are counted and retried later each time; a success starts anew', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(test.queue, ({ attempt }) => {
      if (attempt < 3) return { kind: 'error', message: `failure ${attempt}`, retryAt: new Date(Date.now() + 50) }
      return { kind: 'requeue', at: inOneHour() }
    })
    await world.change(test.queue, 'n.a')
    await until(async () => expect(await entriesOf(test.queue)).toMatchObject([{ state: 'waiting', attempt: 0 }]))
    expect(world.leases.map(({ attempt }) => attempt)).toEqual([0, 1, 2, 3])
    await worker.drain(1000)
  })

  it('an error of any length is stored, for a key as long as the names of Kubernetes', async () => {
    await using test = await open()
    const key = `${'n'.repeat(63)}.${'k'.repeat(253)}`
    const worker = new World().serve(test.queue, () => ({ kind: 'terminal', message: 'x'.repeat(3_000_000) }))
    await test.queue.enqueue(FN, key)
    await until(async () => expect(await entriesOf(test.queue)).toMatchObject([{ key, state: 'parked' }]))
    expect((await entriesOf(test.queue))[0]?.error?.length).toBeLessThan(10_000)
    await worker.drain(1000)
  })
})

describe('drain', () => {
  it('lets runs end, takes nothing more, and hands back what does not end in time', async () => {
    const prefix = freshPrefix()
    await using a = await open(prefix)
    await using b = await open(prefix)
    const world = new World()
    const reasons: unknown[] = []
    const began = gate()
    const worker = world.serve(a.queue, async ({ key, signal }) => {
      if (key === 'n.short') return DONE
      began.open()
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      reasons.push(signal.reason)
      throw signal.reason
    })
    await world.change(a.queue, 'n.short')
    await world.change(a.queue, 'n.long')
    await began.opened
    await worker.drain(50)
    await until(() => expect(reasons).toEqual([expect.any(LeaseLostError)]))
    await world.change(a.queue, 'n.later')
    expect(await statesOf(b.queue)).toEqual(expect.arrayContaining(['n.long queued', 'n.later queued']))
    const successor = world.serve(b.queue)
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    expect(world.overlaps).toEqual([])
    await successor.drain(1000)
  })

  it('waits for what runs; a second drain with less grace ends the first, and an idle worker stops at once', async () => {
    await using test = await open()
    const held = new HeldRuns()
    const worker = new World().serve(test.queue, held.run)
    await test.queue.enqueue(FN, 'n.a')
    await until(() => expect(held.running).toHaveLength(1))
    const [lease] = held.running
    const patient = worker.drain(600_000)
    await test.queue.depth(FN)
    expect(lease?.signal.aborted).toBe(false)
    await worker.drain(0)
    await patient
    expect(lease?.signal.aborted).toBe(true)
    expect(await statesOf(test.queue)).toEqual(['n.a queued'])
    const idle = new World().serve(test.queue)
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await idle.drain(600_000)
  })

  it('leaves a key that changes meanwhile to whoever serves next', async () => {
    await using test = await open()
    const world = new World()
    const paused = pausedWork()
    const worker = world.serve(test.queue, paused.work)
    await world.change(test.queue, 'n.a')
    await paused.began
    await world.change(test.queue, 'n.a')
    const drained = worker.drain(30_000)
    paused.letGo()
    await drained
    expect(await statesOf(test.queue)).toEqual(['n.a queued'])
    const next = world.serve(test.queue)
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await next.drain(1000)
  })

  it('keeps the key of a run that ignores its signal, and hands it back when the run has ended', async () => {
    const prefix = freshPrefix()
    // Renewed after three seconds.
    const terms = { leaseMs: 9000, ackWaitMs: 9000 }
    await using a = await open(prefix, terms)
    await using b = await open(prefix, terms)
    const { work, began, letGo } = pausedWork()
    const world = new World()
    const worker = world.serve(a.queue, work)
    await world.change(a.queue, 'n.deaf')
    await began
    await worker.drain(0)
    const successor = world.serve(b.queue)
    const [lease] = world.leases
    expect(lease?.signal.aborted).toBe(true)
    const untilAtDrain = lease?.until ?? new Date()
    await until(() => expect(lease?.until.getTime()).toBeGreaterThan(untilAtDrain.getTime()))
    expect([await entriesOf(b.queue), world.starts]).toMatchObject([[{ key: 'n.deaf', state: 'running' }], ['n.deaf']])
    letGo()
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    expect(world.starts).toEqual(['n.deaf', 'n.deaf'])
    await successor.drain(1000)
  })
})

it('the list shows queued, running, waiting and parked keys with what is known of them', async () => {
  await using test = await open()
  const world = new World()
  const began = gate()
  const goesOn = gate()
  const at = inOneHour()
  const worker = world.serve(
    test.queue,
    async ({ key }) => {
      if (key === 'n.parked') return { kind: 'terminal', message: 'bad' }
      if (key === 'n.waits') return { kind: 'requeue', at }
      began.open()
      await goesOn.opened
      return DONE
    },
    1,
  )
  for (const key of ['n.parked', 'n.waits', 'n.runs', 'n.queued']) await world.change(test.queue, key)
  await began.opened
  const entries = await entriesOf(test.queue)
  const common = { reconciler: FN, attempt: 0, lane: 'high', since: expect.any(Date) }
  expect(entries).toEqual([
    { ...common, key: 'n.parked', state: 'parked', reason: 'Terminal', error: 'bad' },
    { ...common, key: 'n.waits', state: 'waiting', reason: 'Requeue', until: expect.any(Date) },
    {
      ...common,
      key: 'n.runs',
      state: 'running',
      owner: world.leases[2]?.owner,
      leaseUntil: expect.any(Date),
      dirty: false,
    },
    { ...common, key: 'n.queued', state: 'queued', position: 1, positionInNamespace: 1 },
  ])
  const waits = entries.find(({ state }) => state === 'waiting')
  expect(Math.abs((waits?.state === 'waiting' ? waits.until.getTime() : 0) - at.getTime())).toBeLessThan(50)
  expect(await test.queue.depth(FN)).toEqual({ queued: 1, running: 1, waiting: 1, parked: 1 })
  goesOn.open()
  await worker.drain(1000)
})

it('an observer counts each add, take and end once, and nothing after the drain', async () => {
  const seen: string[] = []
  const observer: QueueObserver = {
    onEnqueue: (reconciler, result) => seen.push(`${reconciler} ${result}`),
    onTake: () => seen.push('taken'),
    onFinish: (_, kind) => seen.push(kind),
  }
  const count = (what: string) => seen.filter((one) => one === what).length
  await using test = await open(undefined, { observer })
  const paused = pausedWork()
  const worker = new World().serve(test.queue, paused.work, 1)
  await test.queue.enqueue(FN, 'n.a')
  await paused.began
  for (let added = 0; added < 5; added++) await test.queue.enqueue(FN, 'n.a')
  expect([count('f queued'), count('f coalesced'), count('taken')]).toEqual([2, 4, 1])
  paused.letGo()
  await until(() => expect([count('taken'), count('done')]).toEqual([2, 2]))
  await worker.drain(1000)
  await test.queue.enqueue(FN, 'n.b')
  await test.queue.depth(FN)
  expect([count('f queued'), count('taken'), count('done')]).toEqual([3, 2, 2])
})

it('a lease whose run has ended is released from memory', async () => {
  await using test = await open()
  const leases: WeakRef<Lease>[] = []
  const handler = async (lease: Lease) => {
    leases.push(new WeakRef(lease))
    return DONE
  }
  const worker = test.queue.serve({ reconciler: FN, slots: 16, handler })
  for (const key of keysNamed('k', 50)) await test.queue.enqueue(FN, key)
  await until(() => expect(leases).toHaveLength(50))
  setFlagsFromString('--expose-gc')
  const collectGarbage = runInNewContext('gc') as () => void
  await until(() => {
    collectGarbage()
    expect(leases.filter((lease) => lease.deref() !== undefined)).toEqual([])
  })
  await worker.drain(1000)
})

describe('the causes of a run', () => {
  const causesIn = ({ leases }: World) => leases.map(({ causes }) => causes)
  it('are what queued the key, with the first that found it idle, and what reached the run', async () => {
    await using test = await open()
    const { queue } = test
    expect(await queue.enqueue(FN, 'n.a', { cause: 'first' })).toBe('queued')
    expect(await queue.enqueue(FN, 'n.a', { cause: 'second' })).toBe('coalesced')
    expect(await queue.find({ reconciler: FN, key: 'n.a' })).toMatchObject([{ state: 'queued', causes: ['first'] }])
    const world = new World()
    const { work, began, letGo } = pausedWork()
    const worker = world.serve(queue, async (lease) => {
      await lease.beginPass()
      const finish = await work()
      await lease.beginPass()
      return finish
    })
    await began
    expect(causesIn(world)).toEqual([['first']])
    expect(await queue.find({ reconciler: FN, key: 'n.a' })).toMatchObject([{ state: 'running', causes: ['first'] }])
    const { noted, safe } = queue.announce(FN, 'n.a', { cause: 'third' })
    expect(noted).toBe(true)
    letGo()
    expect(await safe).toBe('run')
    expect(causesIn(world)).toEqual([['first', 'third']])
    await worker.drain(1000)
  })
})
