import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import type { Finish, Lease, WorkQueue } from '#queue'
import { randomFrom } from '../support/random.ts'
import {
  DONE,
  FN,
  freshPrefix,
  gate,
  LEASE_MS,
  PATIENT,
  SHORT,
  statesOf,
  type TestQueue,
  until,
  useTestNats,
} from './support.ts'

const { open } = useTestNats()
const storedIn = ({ js, queue }: TestQueue) => js.lastSequence(queue.stream)

/** Handlers that read a version in each pass, as long as there are changes. */
class Looper {
  readonly versions = new Map<string, number>()
  readonly dealtWith = new Map<string, number>()
  readonly overlaps: string[] = []
  runs = 0
  passes = 0
  /** The signal of the latest pass. */
  stale: AbortSignal | undefined
  readonly #running = new Set<string>()

  change(key: string): void {
    this.versions.set(key, (this.versions.get(key) ?? 0) + 1)
  }

  announce(queue: WorkQueue, key: string, lane: 'high' | 'low' = 'high') {
    this.change(key)
    return queue.announce(FN, key, { lane })
  }

  serve(queue: WorkQueue, work: (lease: Lease) => Promise<void> = async () => {}, slots = 16) {
    const handler = async (lease: Lease): Promise<Finish> => {
      this.runs++
      if (this.#running.has(lease.key)) this.overlaps.push(lease.key)
      this.#running.add(lease.key)
      let version = 0
      try {
        do {
          await lease.beginPass()
          this.passes++
          this.stale = lease.stale
          version = this.versions.get(lease.key) ?? 0
          await work(lease)
        } while (lease.stale.aborted)
        lease.hold()
        this.dealtWith.set(lease.key, version)
        return DONE
      } finally {
        this.#running.delete(lease.key)
      }
    }
    return queue.serve({ reconciler: FN, slots, handler })
  }
}

describe('a change that a process is told of', () => {
  it('begins a run at once where a slot is free: two messages in all, and nothing stays', async () => {
    await using test = await open()
    const looper = new Looper()
    const worker = looper.serve(test.queue)
    const before = await storedIn(test)
    const { noted, safe } = looper.announce(test.queue, 'n.a')
    expect(noted).toBe(false)
    await safe
    await until(() => expect(looper.dealtWith).toEqual(looper.versions))
    await worker.drain(1000)
    expect((await storedIn(test)) - before).toBe(2)
    expect(await statesOf(test.queue)).toEqual([])
  })

  it('is read by the run that is under way, in another pass: no further message, no further run', async () => {
    await using test = await open()
    const looper = new Looper()
    const reads = gate()
    const worker = looper.serve(test.queue, () => (looper.passes === 1 ? reads.opened : Promise.resolve()))
    const before = await storedIn(test)
    await looper.announce(test.queue, 'n.a').safe
    await until(() => expect(looper.passes).toBe(1))
    const told = [1, 2, 3].map(() => looper.announce(test.queue, 'n.a'))
    expect(told.map(({ noted }) => noted)).toEqual([true, true, true])
    reads.open()
    await Promise.all(told.map(({ safe }) => safe))
    expect(looper).toMatchObject({ runs: 1, passes: 2, dealtWith: looper.versions })
    await worker.drain(1000)
    expect((await storedIn(test)) - before).toBe(2)
  })

  it('is not safe before the end of the run that has read it is stored', async () => {
    await using test = await open()
    const looper = new Looper()
    const steps = [gate(), gate()]
    const worker = looper.serve(test.queue, () => steps[looper.passes - 1]!.opened)
    await looper.announce(test.queue, 'n.a').safe
    await until(() => expect(looper.passes).toBe(1))
    let safe = false
    void looper.announce(test.queue, 'n.a').safe.then(() => {
      safe = true
    })
    steps[0]!.open()
    await until(() => expect(looper.passes).toBe(2))
    await sleep(50)
    expect(safe).toBe(false)
    steps[1]!.open()
    await until(() => expect(safe).toBe(true))
    expect(await statesOf(test.queue)).toEqual([])
    await worker.drain(1000)
  })

  it('is queued when the run ends without reading it, and when the run never reads again', async () => {
    await using test = await open()
    const looper = new Looper()
    const hold = [gate(), gate()]
    let runs = 0
    const worker = test.queue.serve({
      reconciler: FN,
      slots: 4,
      handler: async (lease) => {
        const run = runs++
        if (lease.key === 'n.once') await lease.beginPass()
        await hold[run]?.opened
        return DONE
      },
    })
    await looper.announce(test.queue, 'n.once').safe
    await until(() => expect(runs).toBe(1))
    const late = looper.announce(test.queue, 'n.once')
    expect(late.noted).toBe(true)
    hold[0]!.open()
    await late.safe
    await until(() => expect(runs).toBe(2))
    hold[1]!.open()
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))

    hold[2] = gate()
    await looper.announce(test.queue, 'n.never').safe
    await until(() => expect(runs).toBe(3))
    const queued = looper.announce(test.queue, 'n.never')
    expect(queued.noted).toBe(false)
    await queued.safe
    hold[2].open()
    await until(() => expect(runs).toBe(4))
    await worker.drain(1000)
  })

  it('is queued when its run takes too long to read it, and the run still knows of it', async () => {
    await using test = await open(undefined, SHORT)
    const looper = new Looper()
    const ends = gate()
    const worker = looper.serve(test.queue, () => (looper.runs === 1 ? ends.opened : Promise.resolve()))
    await looper.announce(test.queue, 'n.a').safe
    await until(() => expect(looper.passes).toBe(1))
    await looper.announce(test.queue, 'n.a').safe
    expect(await statesOf(test.queue)).toContain('n.a running')
    expect(looper.stale?.aborted).toBe(true)
    ends.open()
    await until(() => expect(looper.dealtWith).toEqual(looper.versions))
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await worker.drain(1000)
  })

  it('is queued where no slot is free', async () => {
    await using test = await open()
    const looper = new Looper()
    const ends = gate()
    const worker = looper.serve(test.queue, () => ends.opened, 1)
    await looper.announce(test.queue, 'n.a').safe
    await looper.announce(test.queue, 'n.b').safe
    expect(await statesOf(test.queue)).toEqual(['n.a running', 'n.b queued'])
    ends.open()
    await until(() => expect(looper.dealtWith).toEqual(looper.versions))
    await worker.drain(1000)
  })

  it('runs elsewhere when the process dies that began to run it without a token', async () => {
    const prefix = freshPrefix()
    const dying = await open(prefix, SHORT)
    const looper = new Looper()
    looper.serve(dying.queue, () => new Promise(() => {}))
    await looper.announce(dying.queue, 'n.a').safe
    await dying.js.close()
    await using other = await open(prefix, SHORT)
    const survivor = new Looper()
    survivor.change('n.a')
    const worker = survivor.serve(other.queue)
    await until(() => expect(survivor.dealtWith).toEqual(survivor.versions))
    await worker.drain(1000)
  })
})

it('a token that reaches the process that runs its key is taken into its next pass', async () => {
  const prefix = freshPrefix()
  await using test = await open(prefix)
  await using other = await open(prefix)
  const looper = new Looper()
  const reads = gate()
  const worker = looper.serve(test.queue, () => (looper.passes === 1 ? reads.opened : Promise.resolve()))
  await looper.announce(test.queue, 'n.a').safe
  await until(() => expect(looper.passes).toBe(1))
  looper.change('n.a')
  await other.queue.enqueue(FN, 'n.a')
  await until(async () => {
    const { num_ack_pending } = await test.js.admin.consumers.info(test.queue.stream, `${FN}-high`)
    expect(num_ack_pending).toBe(1)
  })
  reads.open()
  await until(async () => expect(await statesOf(test.queue)).toEqual([]))
  expect(looper).toMatchObject({ runs: 1, passes: 2, dealtWith: looper.versions })
  await worker.drain(1000)
})

const seed = Date.now() % 1_000_000
it(`no change is lost and no key runs twice at once, told and queued by two processes, seed ${seed}`, async () => {
  const random = randomFrom(seed)
  const prefix = freshPrefix()
  // A token that is delivered to the process that does not run its key comes again soon.
  const terms = { ...PATIENT, ackWaitMs: LEASE_MS }
  await using a = await open(prefix, terms)
  await using b = await open(prefix, terms)
  const looper = new Looper()
  const briefly = () => sleep(random() * 6)
  const workers = [looper.serve(a.queue, briefly, 3), looper.serve(b.queue, briefly, 3)]
  const keys = ['n.a', 'n.b', 'n.c', 'n.d', 'n.e']
  const hammer = async (queue: WorkQueue) => {
    for (let i = 0; i < 200; i++) {
      const key = keys[Math.floor(random() * keys.length)]!
      const lane = random() < 0.2 ? 'low' : 'high'
      looper.change(key)
      const safe = random() < 0.3 ? queue.enqueue(FN, key, { lane }) : queue.announce(FN, key, { lane }).safe
      await (random() < 0.5 ? safe : sleep(random() * 3))
    }
  }
  await Promise.all([hammer(a.queue), hammer(b.queue)])
  // The last changes of all may not be stored yet.
  await until(() => expect(looper.dealtWith).toEqual(looper.versions))
  await until(async () => expect(await statesOf(a.queue)).toEqual([]))
  expect(looper.overlaps).toEqual([])
  await Promise.all(workers.map((worker) => worker.drain(1000)))
})
