import { describe, expect, it } from 'vitest'
import type { Entry, Finish, Lease } from '#queue'
import type { Io } from '../../streams/queue/record.ts'
import {
  DONE,
  entriesOf,
  freshPrefix,
  inMs,
  keysNamed,
  pausedWork,
  SHORT,
  statesOf,
  type TestQueue,
  until,
  useShippedNats,
  World,
} from './support.ts'

const { nats, open } = useShippedNats('fairlead-dispatcher')
const HOUR_MS = 3_600_000
/** A timer is due by the clock of the server, which a process knows by its requests only. */
const CLOCK_MS = 20
const DAY_MS = 24 * HOUR_MS

/** Has one run ask for that time, and gives what waits then. */
async function armed(test: TestQueue, at: Date): Promise<Entry & { state: 'waiting' }> {
  const worker = new World().serve(test.queue, ({ fired }) => (fired ? DONE : { kind: 'requeue', at }))
  await test.queue.enqueue('f', 'n.a')
  await until(async () => expect(await statesOf(test.queue)).toEqual(['n.a waiting']))
  await worker.drain(1000)
  const [entry] = await entriesOf(test.queue)
  if (entry?.state !== 'waiting') throw new Error('not waiting')
  return entry
}

describe('a timer', () => {
  it('is one per key: whatever its runs have asked for before, one record is left', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    const world = new World()
    const worker = world.serve(test.queue, () => ({
      kind: 'requeue',
      at: new Date(Date.now() + HOUR_MS / world.starts.length),
    }))
    for (let run = 1; run <= 10; run++) {
      await world.change(test.queue, 'n.a')
      await until(() => expect(world.dealtWith.get('n.a')).toBe(run))
    }
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.a waiting']))
    await worker.drain(1000)
    const { state } = await test.js.admin.streams.info(`${prefix}_WORK`, { subjects_filter: `${prefix}.key.>` })
    expect(Object.keys(state.subjects ?? {})).toHaveLength(1)
  })

  it('that is due is one key in the queue, before initial lists, in the order of the times', async () => {
    await using test = await open()
    for (const key of ['n.late', 'n.early']) await test.queue.enqueue('f', key)
    const drained = Promise.withResolvers<void>()
    let lateAt = 0
    const setting = new World().serve(
      test.queue,
      ({ key }) => {
        if (key === 'n.early') drained.resolve(setting.drain(60_000))
        else lateAt = Date.now() + 2000
        return { kind: 'requeue', at: new Date(key === 'n.early' ? lateAt - 1000 : lateAt) }
      },
      1,
    )
    await drained.promise
    const world = new World()
    for (const key of keysNamed('low', 8)) await world.change(test.queue, key, 'low')
    await until(async () => expect(await test.queue.depth('f')).toMatchObject({ queued: 10, waiting: 0 }))
    expect(await world.change(test.queue, 'n.early')).toBe('coalesced')
    const worker = world.serve(test.queue, undefined, 1)
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(world.starts).toHaveLength(10)
    const due = ['n.early', 'n.late']
    expect(world.starts.filter((key) => due.includes(key))).toEqual(due)
    // One slot serves the lanes in turn.
    expect(world.starts.indexOf('n.late')).toBeLessThanOrEqual(3)
    await worker.drain(1000)
  })

  it('can be years ahead, to the millisecond', async () => {
    await using test = await open()
    const at = new Date(Date.UTC(new Date().getUTCFullYear() + 70, 1, 28, 23, 59, 59, 123))
    const { until: due } = await armed(test, at)
    expect(Math.abs(+due - +at)).toBeLessThan(20)
  })

  it('of more than a century is one of a century: nats-server would fire it at once', async () => {
    await using test = await open()
    const { until: due } = await armed(test, new Date(8.64e15))
    expect(Math.round((+due - Date.now()) / DAY_MS)).toBe(36_525)
    expect(await statesOf(test.queue)).toEqual(['n.a waiting'])
  })

  it('in the past fires at once, and one at no time at all is an error of its run', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(test.queue, ({ key, fired }) =>
      fired && key !== 'n.never' ? DONE : { kind: 'requeue', at: new Date(key === 'n.never' ? Number.NaN : 0) },
    )
    for (const key of ['n.past', 'n.never']) await world.change(test.queue, key)
    await until(() => expect(world.runsOf('n.past')).toBe(2))
    await until(async () =>
      expect(await entriesOf(test.queue)).toMatchObject([
        { key: 'n.never', reason: 'Error', error: 'the run ended in requeue at no valid time' },
      ]),
    )
    await worker.drain(1000)
  })

  it.each(['America/New_York', 'Pacific/Auckland'])('means the instant, not the hour on a wall in %s', async (zone) => {
    const before = process.env['TZ']
    process.env['TZ'] = zone
    try {
      await using test = await open()
      // Inside the hour that New York repeats, and Auckland has skipped a month earlier.
      const at = new Date('2040-11-04T06:30:00Z')
      const { until: due } = await armed(test, at)
      expect(Math.abs(+due - +at)).toBeLessThan(20)
    } finally {
      if (before === undefined) delete process.env['TZ']
      else process.env['TZ'] = before
    }
  })
})

/** The janitor of a worker that begins has measured the clock: nothing does so for half a minute. */
async function untilIdle({ queue }: TestQueue): Promise<void> {
  for (const key of keysNamed('idle', 2)) {
    await queue.enqueue('f', key)
    await until(async () => expect(await statesOf(queue)).toEqual([]))
  }
}

describe('a step of this machine’s clock', () => {
  it.each([
    ['forward', 2 * HOUR_MS],
    ['back', -2 * HOUR_MS],
  ])('%s moves no timer that is armed, and none that is armed after it', async (_, step) => {
    let stepped = 0
    const armed = Promise.withResolvers<void>()
    const onFinish = (_: string, kind: string) => {
      if (kind !== 'requeue') return
      stepped = step
      armed.resolve()
    }
    const observer = { onEnqueue() {}, onTake() {}, onFinish }
    await using test = await open(undefined, { now: () => Date.now() + stepped, observer })
    const world = new World()
    const firedAt = new Map<string, number>()
    const worker = world.serve(test.queue, ({ key, fired }) => {
      if (fired) firedAt.set(key, Date.now())
      return fired ? DONE : { kind: 'requeue', at: new Date(Date.now() + stepped + 900) }
    })
    await world.change(test.queue, 'n.before')
    await armed.promise
    const armedAfter = Date.now()
    await world.change(test.queue, 'n.after')
    await until(() => expect([...firedAt.keys()]).toEqual(['n.before', 'n.after']))
    expect(firedAt.get('n.after')! - armedAfter).toBeGreaterThanOrEqual(850)
    await worker.drain(1000)
  })

  it('forward leaves the key that is taken next to another worker no later, when its process is lost', async () => {
    const prefix = freshPrefix()
    let stepped = 0
    await using dying = await open(prefix, { ...SHORT, now: () => Date.now() + stepped })
    await using test = await open(prefix, SHORT)
    const run = pausedWork()
    new World().serve(dying.queue, ({ key }) => (key === 'n.a' ? run.work() : DONE))
    await untilIdle(dying)
    stepped = HOUR_MS
    await test.queue.enqueue('f', 'n.a')
    await run.began
    await dying.js.close()
    const world = new World()
    const worker = world.serve(test.queue)
    await until(() => expect(world.dealtWith.has('n.a')).toBe(true))
    await worker.drain(1000)
  })

  it('forward during a run arms its timer no later', async () => {
    let stepped = 0
    await using test = await open(undefined, { now: () => Date.now() + stepped })
    let hasFired = false
    const handler = async ({ key, fired }: Lease): Promise<Finish> => {
      hasFired ||= fired
      if (fired || key !== 'n.a') return DONE
      stepped = HOUR_MS
      return { kind: 'requeue', at: new Date(Date.now() + stepped + 300) }
    }
    const worker = test.queue.serve({ reconciler: 'f', slots: 1, handler })
    await untilIdle(test)
    await test.queue.enqueue('f', 'n.a')
    await until(() => expect(hasFired).toBe(true))
    await worker.drain(1000)
  })

  it('forward, as of a machine that slept, takes the lease of a run away though NATS does not answer', async () => {
    let stepped = 0
    await using test = await open(undefined, { ...SHORT, now: () => Date.now() + stepped })
    const world = new World()
    const run = pausedWork()
    const worker = world.serve(test.queue, run.work)
    await world.change(test.queue, 'n.a')
    await run.began
    nats().signal('SIGSTOP')
    try {
      stepped = HOUR_MS
      await until(() => expect(world.leases[0]!.signal.aborted).toBe(true))
    } finally {
      nats().signal('SIGCONT')
    }
    run.letGo()
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await worker.drain(1000)
  })
})

/** What is asked of the stream, by key. */
function recorder() {
  const asked: string[] = []
  const onIo = (io: Io) => void asked.push(io.do === 'publish' ? `publish ${io.message.role}` : io.do)
  return { asked, onIo }
}

/** Its first run asks for another one at that time. */
async function armedHere(test: TestQueue, dueInMs: number) {
  const world = new World()
  const due = inMs(dueInMs)
  const begun: number[] = []
  const worker = world.serve(test.queue, () => {
    begun.push(Date.now())
    return begun.length === 1 ? { kind: 'requeue', at: due } : DONE
  })
  await test.queue.announce('f', 'n.a').safe
  await until(() => expect(begun).toHaveLength(1))
  return { world, worker, due, begun, lease: (run: number): Lease | undefined => world.leases[run] }
}

describe('a timer that is due in the process that has set it', () => {
  it('costs one write until its run begins, and no token', async () => {
    const { asked, onIo } = recorder()
    await using test = await open(undefined, { onIo })
    const costs: string[][] = []
    const begun: { fired: boolean; early: number }[] = []
    let due = 0
    const worker = new World().serve(test.queue, ({ fired }) => {
      costs.push(asked.splice(0))
      begun.push({ fired, early: due - Date.now() })
      due = Date.now() + 300
      return { kind: 'requeue', at: new Date(due) }
    })
    await test.queue.announce('f', 'n.a').safe
    // A process that is busy at that moment leaves its timer to the server. Each run sets another one.
    await until(() => expect(costs).toContainEqual(['publish record', 'publish record']))
    expect(begun.slice(1).filter(({ fired, early }) => !fired || early > CLOCK_MS)).toEqual([])
    expect(await test.queue.depth('f')).toMatchObject({ queued: 0 })
    await worker.drain(1000)
  })

  it('is left to the server if it is the retry of a run that failed: another process may have more luck', async () => {
    const { asked, onIo } = recorder()
    await using test = await open(undefined, { onIo })
    const attempts: number[] = []
    const worker = new World().serve(test.queue, ({ attempt }) => {
      attempts.push(attempt)
      return attempts.length > 1 ? DONE : { kind: 'error', message: 'not yet', retryAt: { afterMs: 200 } }
    })
    await test.queue.announce('f', 'n.a').safe
    await until(() => expect(attempts).toEqual([0, 1]))
    expect(asked).toContain('acknowledge')
    await worker.drain(1000)
  })

  it('is left to the server while no slot is free', async () => {
    await using test = await open()
    const world = new World()
    const { promise: letGo, resolve: free } = Promise.withResolvers<void>()
    const worker = world.serve(
      test.queue,
      async ({ key, fired }) => {
        if (key === 'n.a') return fired ? DONE : { kind: 'requeue', at: { afterMs: 5000 } }
        await letGo
        return DONE
      },
      1,
    )
    await test.queue.announce('f', 'n.a').safe
    await until(() => expect(world.runsOf('n.a')).toBe(1))
    await test.queue.announce('f', 'n.b').safe
    await until(async () => expect(await test.queue.depth('f')).toMatchObject({ queued: 1, running: 1 }))
    free()
    await until(() => expect(world.runsOf('n.a')).toBe(2))
    await worker.drain(1000)
  })
})

describe('a change of a key that waits for a timer of this process', () => {
  it('costs one write until its run begins', async () => {
    const { asked, onIo } = recorder()
    await using test = await open(undefined, { onIo })
    const { worker, begun, lease } = await armedHere(test, 60_000)
    await until(async () => expect(await test.queue.depth('f')).toMatchObject({ waiting: 1 }))
    asked.length = 0
    await test.queue.announce('f', 'n.a').safe
    expect(asked).toEqual(['publish record'])
    await until(() => expect(begun).toHaveLength(2))
    expect(lease(1)).toMatchObject({ fired: false })
    await worker.drain(1000)
  })
})
