import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { Semaphore } from '../../bridge/change-pipeline.ts'
import { type ListingDeps, ListingPhase } from '../../bridge/resource-watch.ts'
import { Checkpoint, StreamContinuity, WatchProgress, type WatchProgressDeps } from '../../bridge/watch-progress.ts'

it('moves only over what is finished, whatever the order of finishing', () => {
  const checkpoint = new Checkpoint<number>()
  const [first, second, third] = [checkpoint.begin(1), checkpoint.begin(2), checkpoint.begin(3)] as const
  third()
  expect(checkpoint.safe).toBeUndefined()
  first()
  expect(checkpoint.safe).toBe(1)
  second()
  expect(checkpoint.safe).toBe(3)
})

it('is not moved by a bookmark behind something unfinished', () => {
  const checkpoint = new Checkpoint<number>()
  const finish = checkpoint.begin(1)
  checkpoint.reach(9)
  expect(checkpoint.safe).toBeUndefined()
  finish()
  expect(checkpoint.safe).toBe(9)
})

it('reaches the end of a list when all of its objects are finished, and nothing before', () => {
  const checkpoint = new Checkpoint<string>()
  const objects = [checkpoint.begin(), checkpoint.begin()] as const
  checkpoint.reach('list')
  objects[1]()
  expect(checkpoint.safe).toBeUndefined()
  objects[0]()
  expect(checkpoint.safe).toBe('list')
})

it('forgets positions, and is still held back by changes that were begun before', () => {
  const checkpoint = new Checkpoint<string>()
  checkpoint.reach('old')
  const finish = checkpoint.begin('older')
  checkpoint.void()
  checkpoint.reach('list')
  expect(checkpoint.safe).toBeUndefined()
  finish()
  expect(checkpoint.safe).toBe('list')
})

it('never passes anything unfinished', () => {
  fc.assert(
    fc.property(fc.shuffledSubarray([...Array(30).keys()]), (finished) => {
      const checkpoint = new Checkpoint<number>()
      const finish = [...Array(30).keys()].map((position) => checkpoint.begin(position))
      for (const position of finished) finish[position]!()
      const unfinished = [...Array(30).keys()].filter((position) => !finished.includes(position))
      const expected = (unfinished[0] ?? 30) - 1
      expect(checkpoint.safe).toBe(expected === -1 ? undefined : expected)
    }),
  )
})

const configMaps = { group: '', version: 'v1', resource: 'configmaps' }

function progressOfNatsAway() {
  const continuity = new StreamContinuity({})
  const events = { moveCursor: () => Promise.reject(new Error('away')) } as unknown as WatchProgressDeps['events']
  const nothing = () => undefined
  const log = { warn: nothing } as unknown as WatchProgressDeps['log']
  const told = { synced: nothing, covered: nothing, swept: nothing, now: () => new Date(0) }
  const deps = { events, log, continuity, coverageIds: () => [], listsAtStart: false, ...told }
  return { continuity, progress: new WatchProgress(configMaps, undefined, deps) }
}

it('a list that waits for its turn will cover the Reconcilers of then, and none after it was given up', async () => {
  const { progress } = progressOfNatsAway()
  const lists = new Semaphore(1)
  const release = await lists.acquire()
  const stop = new AbortController()
  const deps = { lists, progress, coverageIds: () => ['shop'] } as unknown as ListingDeps
  const listing = new ListingPhase(configMaps, undefined, deps)
  const ended = listing.run({ phase: 'listing', because: 'store-restarted', stream: true, attempt: 0 }, stop.signal)
  expect(progress.coverage.willCover(['shop'])).toBe(true)
  stop.abort(new Error('NATS has started again'))
  release()
  await expect(ended).rejects.toThrow('NATS has started again')
  expect(progress.coverage.willCover(['shop'])).toBe(false)
})

it('does not pass what the watch has read when a list beside the watch ends, because the list may be ahead of the watch', async () => {
  const { continuity, progress } = progressOfNatsAway()
  const streams = await continuity.current()
  const reached = () => progress.checkpoint.safe?.resourceVersion
  progress.hold('7')
  expect(progress.position('9')).toBeUndefined()
  progress.listed('20', streams, [])
  expect(reached()).toBe('9')
  progress.reach('15')
  expect(reached()).toBe('15')
  progress.hold('15')
  progress.release()
  progress.listed('30', streams, [])
  expect(reached()).toBe('30')
})
