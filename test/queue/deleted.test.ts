import { expect, it } from 'vitest'
import { FN, freshPrefix, until, useShippedNats, World } from './support.ts'

const { open, admin } = useShippedNats('fairlead-dispatcher')

it.each(['high', 'low'] as const)(
  'a worker goes on when somebody has deleted its consumer: of the %s lane too, no key is lost or stuck',
  async (lane) => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    const world = new World()
    const worker = world.serve(test.queue)
    await world.change(test.queue, 'n.before', lane)
    await until(() => expect(world.dealtWith.get('n.before')).toBe(1))
    await admin().admin.consumers.delete(`${prefix}_WORK`, `${FN}-${lane}`)
    await world.change(test.queue, 'n.after', lane)
    await test.queue.janitor(FN).pass()
    await until(() => expect(world.dealtWith.get('n.after')).toBe(1))
    expect(world.runsOf('n.before')).toBe(1)
    await worker.drain(1000)
  },
)
