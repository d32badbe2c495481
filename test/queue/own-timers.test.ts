import { describe, expect, it } from 'vitest'
import type { Lease } from '#queue'
import type { Io } from '../../streams/queue/record.ts'
import { DONE, inMs, type TestQueue, until, useShippedNats, World } from './support.ts'

const { open } = useShippedNats('fairlead-dispatcher')

/** What is asked of the stream, by key. */
function recorder() {
  const asked: string[] = []
  const onIo = (io: Io) => void asked.push(io.do === 'publish' ? `publish ${io.message.role}` : io.do)
  return { asked, onIo }
}

/** Its first run asks for another one at that time. */
async function armed(test: TestQueue, dueInMs: number) {
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
    expect(begun.slice(1).every(({ fired, early }) => fired && early <= 0)).toBe(true)
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
        if (key === 'n.a') return fired ? DONE : { kind: 'requeue', at: { afterMs: 1000 } }
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
    const { worker, begun, lease } = await armed(test, 60_000)
    await until(async () => expect(await test.queue.depth('f')).toMatchObject({ waiting: 1 }))
    asked.length = 0
    await test.queue.announce('f', 'n.a').safe
    expect(asked).toEqual(['publish record'])
    await until(() => expect(begun).toHaveLength(2))
    expect(lease(1)).toMatchObject({ fired: false })
    await worker.drain(1000)
  })
})
