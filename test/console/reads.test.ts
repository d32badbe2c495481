import { expect, it } from 'vitest'
import {
  type BusyError,
  Cache,
  MOST_WAIT_MS,
  READS,
  READS_OF_PERSON,
  SHARE,
} from '../../packages/console/data/cache.ts'

/** A cache whose clock goes forward when all wait. */
function opened() {
  let now = 0
  const waiting: { at: number; go: () => void }[] = []
  const wait = (ms: number) => new Promise<void>((go) => void waiting.push({ at: now + ms, go }))
  const until = async (end: number): Promise<void> => {
    for (;;) {
      await new Promise(setImmediate)
      const [next] = waiting.sort((a, b) => a.at - b.at)
      if (next === undefined || next.at > end) return
      waiting.shift()
      now = Math.max(now, next.at)
      next.go()
    }
  }
  return { cache: new Cache({ now: () => now, wait }), now: () => now, wait, until }
}

const SECONDS = 30
const TABS = 64

it.each([1, 10])(
  'reads a bounded number of times, however many tabs look at however many objects (weight %j)',
  async (weight) => {
    const { cache, wait, until, now } = opened()
    let reads = 0
    const load = async () => {
      reads += weight
      await wait(5)
    }
    // Each tab looks at another object each time, and looks again at once.
    const look = async (tab: number): Promise<void> => {
      for (let turn = 0; now() < SECONDS * 1000; turn++)
        await cache
          .get(`${tab} ${turn}`, 500, load, { weight, person: `${tab}` })
          .catch((error: BusyError) => wait(error.returnMs))
    }
    const tabs = Array.from({ length: TABS }, (_, tab) => look(tab))
    await until(SECONDS * 1000)
    expect(reads).toBeLessThanOrEqual(READS.burst + READS.perSecond * SECONDS)
    expect(reads).toBeGreaterThan(READS.perSecond * SECONDS * 0.9)
    await until(Infinity)
    await Promise.all(tabs)
  },
)

it('reads once what many tabs look at, and not more often than its age and its cost allow', async () => {
  const { cache, wait, until, now } = opened()
  let reads = 0
  const load = async () => {
    reads++
    await wait(100)
  }
  const look = async (): Promise<void> => {
    while (now() < SECONDS * 1000) {
      await cache.get('queue', 250, load)
      await wait(50)
    }
  }
  const tabs = Array.from({ length: TABS }, look)
  await until(SECONDS * 1000)
  // 100 ms of reading, and then none for so many times as long.
  expect(reads).toBeLessThanOrEqual((SECONDS * 1000) / (100 * (1 + SHARE)) + 1)
  await until(Infinity)
  await Promise.all(tabs)
})

it('lets no person wait for what another one reads, and no read for longer than its limit', async () => {
  const { cache, wait, until, now } = opened()
  const load = () => wait(1)
  const over = new AbortController()
  const refusals: BusyError[] = []
  const waits: number[] = []
  const greedy = async (_: unknown, tab: number): Promise<void> => {
    for (let turn = 0; !over.signal.aborted; turn++) {
      const began = now()
      const read = cache.get(`all ${tab} ${turn}`, 500, load, { weight: 10, person: 'greedy' })
      const refused = await read.catch((error: BusyError) => error)
      waits.push(now() - began)
      if (refused === undefined) continue
      refusals.push(refused)
      await wait(1000)
    }
  }
  const all = Array.from({ length: 200 }, greedy)
  const waited: number[] = []
  const modest = async (): Promise<void> => {
    for (let turn = 0; turn < 20; turn++) {
      const began = now()
      await cache.get(`own ${turn}`, 500, load, { weight: 10, person: 'modest' })
      waited.push(now() - began)
      await wait(1000)
    }
    over.abort()
  }
  const other = modest()
  await until(Infinity)
  await Promise.all([...all, other])
  expect(Math.min(...refusals.map(({ returnMs }) => returnMs))).toBeGreaterThan(MOST_WAIT_MS)
  // It waits for a turn of the person, and for one of all.
  expect(Math.max(...waits)).toBeLessThanOrEqual(2 * MOST_WAIT_MS + 1)
  expect(Math.max(...waited)).toBeLessThanOrEqual(1 + (1000 * READS_OF_PERSON.burst) / READS.perSecond)
})

it('does not let a person wait for the turn of another one who wants the same', async () => {
  const { cache, until } = opened()
  const load = async () => 'read'
  await cache.get('first', 500, load, { weight: READS_OF_PERSON.burst, person: 'greedy' })
  const late = cache.get('same', 500, load, { weight: 50, person: 'greedy' })
  expect(await cache.get('same', 500, load, { person: 'modest' })).toBe('read')
  await until(Infinity)
  expect(await late).toBe('read')
})
