/** The laws of kube-rs's scheduler and runner, with the names of its tests; what differs is in docs/decisions/0011-conformance.md. */
import { describe, expect, it } from 'vitest'
import { startLossyProxy } from '../lossy-proxy.ts'
import {
  DONE,
  FN,
  freshPrefix,
  HeldRuns,
  inMs,
  inOneHour,
  keysNamed,
  openTestQueue,
  statesOf,
  until,
  useTestNats,
  World,
} from '../support.ts'

const { nats, open } = useTestNats()

describe('scheduler', () => {
  it('holds a key until its time and releases it then (scheduler_should_hold_and_release_items)', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(test.queue, ({ fired }) => (fired ? DONE : { kind: 'requeue', at: inMs(3000) }))
    await world.change(test.queue, 'n.a')
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.a waiting']))
    expect(world.starts).toEqual(['n.a'])
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(world.starts).toEqual(['n.a', 'n.a'])
    await worker.drain(1000)
  })

  it('a key that is queued already is not queued again (scheduler_should_not_reschedule_pending_items, scheduler_should_dedup_message_within_debounce_period)', async () => {
    await using test = await open()
    const results = []
    for (let added = 0; added < 5; added++) results.push(await test.queue.enqueue(FN, 'n.a'))
    expect(results).toEqual(['queued', ...Array.from({ length: 4 }, () => 'coalesced')])
    expect(await statesOf(test.queue)).toEqual(['n.a queued'])
  })

  it('a key that cannot run yet does not hold up those behind it (scheduler_pending_message_should_not_block_head_of_line)', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    const held = new HeldRuns()
    const world = new World()
    const busy = world.serve(test.queue, held.run, 1)
    await world.change(test.queue, 'n.head')
    await until(() => expect(held.running).toHaveLength(1))
    // Runs already, so its second token cannot become a run; it is the first in the queue all the same.
    await world.change(test.queue, 'n.head')
    for (const key of keysNamed('behind', 3)) await world.change(test.queue, key)
    await using other = await open(prefix)
    const free = world.serve(other.queue, undefined, 1)
    await until(() => expect(keysNamed('behind', 3).map((key) => world.dealtWith.get(key))).toEqual([1, 1, 1]))
    expect(held.running).toHaveLength(1)
    held.letGo()
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await Promise.all([busy, free].map((worker) => worker.drain(1000)))
  })

  it('a change makes a waiting key run now, whatever its timer says (scheduler_dedupe_should_keep_earlier_item)', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(test.queue, () =>
      world.starts.length === 1 ? { kind: 'requeue', at: inOneHour() } : DONE,
    )
    await world.change(test.queue, 'n.a')
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.a waiting']))
    await world.change(test.queue, 'n.a')
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await worker.drain(1000)
  })

  it('a later result replaces a timer that is still to come (scheduler_dedupe_should_replace_later_item)', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(test.queue, ({ fired }) =>
      fired ? DONE : { kind: 'requeue', at: world.starts.length === 1 ? inOneHour() : inMs(300) },
    )
    await world.change(test.queue, 'n.a')
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.a waiting']))
    await world.change(test.queue, 'n.a')
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(world.leases.map(({ fired }) => fired)).toEqual([false, false, true])
    await worker.drain(1000)
  })
})

describe('runner', () => {
  it('never runs two instances of a key at once (runner_should_never_run_two_instances_at_once)', async () => {
    await using test = await open()
    const held = new HeldRuns()
    const worker = new World().serve(test.queue, held.run)
    for (let added = 0; added < 5; added++) {
      await test.queue.enqueue(FN, 'n.a')
      await until(async () =>
        expect((await statesOf(test.queue)).filter((state) => state.endsWith('running'))).toHaveLength(1),
      )
    }
    held.letGo()
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(held.most).toBe(1)
    await worker.drain(1000)
  })

  it('never has more runs than slots (runner_should_respect_max_concurrent_executions)', async () => {
    await using test = await open()
    const held = new HeldRuns()
    const worker = new World().serve(test.queue, held.run, 2)
    for (const key of keysNamed('k', 5)) await test.queue.enqueue(FN, key)
    await until(() => expect(held.running).toHaveLength(2))
    expect((await test.queue.depth(FN)).queued).toBe(3)
    held.letGo()
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(held.most).toBe(2)
    await worker.drain(1000)
  })

  it('runs nothing before it serves, and all that came before that then (runner_should_wait_for_readiness)', async () => {
    await using test = await open()
    const world = new World()
    for (const key of keysNamed('k', 3)) await world.change(test.queue, key)
    expect(world.starts).toEqual([])
    const worker = world.serve(test.queue)
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await worker.drain(1000)
  })
})

describe('applier', () => {
  it('a flood of keys that each want to run again does not jam (applier_must_not_deadlock_if_reschedule_buffer_fills)', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(
      test.queue,
      async ({ key }) => {
        const runs = world.runsOf(key)
        if (runs < 4) await world.change(test.queue, key, runs % 2 ? 'high' : 'low')
        return runs === 4 ? { kind: 'requeue', at: inMs(1) } : DONE
      },
      4,
    )
    await Promise.all(keysNamed('k', 150).map((key) => world.change(test.queue, key)))
    await until(() => expect(world.leases.filter(({ fired }) => fired)).toHaveLength(150))
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    for (const key of keysNamed('k', 150)) expect(world.runsOf(key)).toBeGreaterThanOrEqual(5)
    await worker.drain(1000)
  })

  it('takes no more from the server than it can run (reflect_applies_backpressure)', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    const held = new HeldRuns()
    for (const key of keysNamed('k', 50)) await test.queue.enqueue(FN, key)
    const worker = new World().serve(test.queue, held.run, 3)
    await until(() => expect(held.running).toHaveLength(3))
    const { num_pending, num_ack_pending } = await test.js.admin.consumers.info(`${prefix}_WORK`, `${FN}-high`)
    expect([num_pending, num_ack_pending]).toEqual([47, 0])
    held.letGo()
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await worker.drain(1000)
  })

  it('a connection that died without a word does not stop it (idle_timeout_returns_none_on_dead_connection)', async () => {
    const prefix = freshPrefix()
    await using proxy = await startLossyProxy(nats().url)
    await using shaky = await openTestQueue(proxy.url, prefix)
    await using steady = await open(prefix)
    const world = new World()
    const worker = world.serve(shaky.queue)
    await world.change(steady.queue, 'n.before')
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    proxy.lose('requests')
    await world.change(steady.queue, 'n.after')
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await worker.drain(1000)
  })
})
