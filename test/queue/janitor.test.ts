import { expect, it, vi } from 'vitest'
import { DONE, freshPrefix, inMs, until, useTestNats } from './support.ts'

const { open } = useTestNats()
/** Later than timers that are too near to sleep. */
const AHEAD_MS = 10_500
const RECONCILERS = Array.from({ length: 30 }, (_, number) => `r${number}`)

it('the janitor of a process reads the records of all Reconcilers once, and finds what is overdue of each of them', async () => {
  const prefix = freshPrefix()
  await using test = await open(prefix, { armedLimit: 0 })
  const at = inMs(AHEAD_MS)
  const fired = new Set<string>()
  const serveAll = () =>
    RECONCILERS.map((reconciler) =>
      test.queue.serve({
        reconciler,
        slots: 4,
        handler: async (lease) => {
          if (!lease.fired) return { kind: 'requeue' as const, at }
          fired.add(reconciler)
          return DONE
        },
      }),
    )
  for (const reconciler of RECONCILERS) {
    await test.queue.declare(reconciler)
    await test.queue.enqueue(reconciler, 'n.a')
  }
  const planning = serveAll()
  const waiting = async () => (await test.js.count(test.queue.stream, `${prefix}.key.*.*.n.a.*`)).count
  await until(async () => expect(await waiting()).toBe(RECONCILERS.length))
  await Promise.all(planning.map((worker) => worker.drain(1000)))
  await test.js.admin.streams.purge(test.queue.stream, { filter: `${prefix}.key._timers.>` })
  await until(() => expect(Date.now()).toBeGreaterThan(at.getTime()))

  const scan = vi.spyOn(test.js, 'scan')
  const workers = serveAll()
  await until(() => expect(fired.size).toBe(RECONCILERS.length))
  expect(scan.mock.calls.map(([, subject]) => subject).filter((subject) => /\.key\.(r\d+\.)?>$/.test(subject))).toEqual(
    [`${prefix}.key.>`],
  )
  await Promise.all(workers.map((worker) => worker.drain(1000)))
})
