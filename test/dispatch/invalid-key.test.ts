import { expect, it, vi } from 'vitest'
import type { DeadMessage } from '#events'
import type { ReconciliationDeps, ServedReconciler } from '../../dispatch/run/dependencies.ts'
import { ReconcilerWorker } from '../../dispatch/serve/reconciler-worker.ts'
import { FN, openTestQueue, statesOf } from '../queue/support.ts'
import { startShippedNats } from '../support/shipped-users.ts'
import { silent as log } from '../support/silent.ts'

it('a key that names no object is kept among the dead, and only then done; it delays no other one', async () => {
  await using nats = await startShippedNats([''])
  await using test = await openTestQueue(nats.as(nats.url, 'fairlead-dispatcher'), '')
  const letters: DeadMessage[] = []
  const stored = Promise.withResolvers<void>()
  const deadLetter = async (dead: DeadMessage) => {
    letters.push(dead)
    if (dead.subject.endsWith('one-token-only')) await stored.promise
  }
  const deps = { deadLetter, now: () => new Date(), observe: () => undefined } as unknown as ReconciliationDeps
  const served = { name: FN, spec: { concurrency: 4 } } as unknown as ServedReconciler
  const serving = new ReconcilerWorker(deps, test.queue, served, log)
  await test.queue.enqueue(FN, 'one-token-only', { lane: 'low' })
  await vi.waitFor(() => expect(letters).toHaveLength(1), { timeout: 60_000 })
  expect(letters[0]).toMatchObject({
    reason: 'invalid-key',
    reconciler: FN,
    stream: 'WORK',
    subject: `work.${FN}.low.one-token-only`,
  })
  await test.queue.enqueue(FN, 'three.tokens.here')
  await vi.waitFor(() => expect(letters).toHaveLength(2), { timeout: 60_000 })
  await vi.waitFor(async () => expect(await statesOf(test.queue)).toEqual(['one-token-only running']), {
    timeout: 60_000,
  })
  stored.resolve()
  await vi.waitFor(
    async () => expect(await test.queue.depth(FN)).toEqual({ queued: 0, running: 0, waiting: 0, parked: 0 }),
    { timeout: 60_000 },
  )
  await serving.drain(1000)
})
