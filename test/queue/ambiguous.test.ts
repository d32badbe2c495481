import { describe, expect, it } from 'vitest'
import type { Finish } from '#queue'
import { startLossyProxy } from '../support/lossy-proxy.ts'
import {
  DONE,
  entriesOf,
  inOneHour,
  LEASE_MS,
  openTestQueue,
  SHORT,
  statesOf,
  type TestQueue,
  until,
  useTestNats,
  World,
} from './support.ts'

const { nats, open } = useTestNats()

async function letWait({ queue }: TestQueue, world: World): Promise<void> {
  const worker = world.serve(queue, () => ({ kind: 'requeue', at: inOneHour() }))
  await world.change(queue, 'n.a')
  await until(async () => expect(await statesOf(queue)).toEqual(['n.a waiting']))
  await worker.drain(1000)
}

/** What the worker asks of the stream from the delivery to the end of the run, in each situation. */
const scenes = [
  { scene: 'idle', steps: ['take', 'acknowledge', 'finish'] },
  { scene: 'waiting', steps: ['take', 'look', 'steal', 'acknowledge', 'finish'] },
  { scene: 'long', steps: ['take', 'acknowledge', 'renew', 'renew again', 'finish'] },
] as const
const cases = scenes.flatMap(({ scene, steps }) =>
  steps.flatMap((step, index) =>
    (['answers', 'requests'] as const).map((lost) => ({ scene, step, lost, access: index + 1 })),
  ),
)

describe('a connection that breaks in the middle of a step', () => {
  it.concurrent.each(cases)('$step, the key being $scene, $lost lost', async ({ scene, lost, access }) => {
    const prefix = `${scene}${access}${lost}`
    await using proxy = await startLossyProxy(nats().url)
    await using steady = await open(prefix, SHORT)
    const world = new World()
    if (scene === 'waiting') await letWait(steady, world)
    let accesses = 0
    await using shaky = await openTestQueue(proxy.url, prefix, {
      ...SHORT,
      onIo: () => (++accesses === access ? proxy.lose(lost) : undefined),
    })
    const work = async (): Promise<Finish> => {
      if (scene === 'long') await new Promise((resolve) => setTimeout(resolve, LEASE_MS))
      return scene === 'idle' ? DONE : { kind: 'requeue', at: inOneHour() }
    }
    const worker = world.serve(shaky.queue, work)
    await world.change(steady.queue, 'n.a')
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    const settled = scene === 'idle' ? [] : ['n.a waiting']
    await until(async () => expect(await statesOf(steady.queue)).toEqual(settled))
    await world.change(steady.queue, 'n.a')
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await until(async () => expect(await statesOf(steady.queue)).toEqual(settled))
    expect(world.overlaps).toEqual([])
    expect(accesses).toBeGreaterThanOrEqual(access)
    await worker.drain(1000)
  })

  it.concurrent.each(['answers', 'requests'] as const)('ENQUEUE: the key is queued once, %s lost', async (lost) => {
    await using proxy = await startLossyProxy(nats().url)
    await using shaky = await openTestQueue(proxy.url, `enqueue${lost}`)
    const world = new World()
    proxy.lose(lost)
    // The first of two tries that are sent is the one that it is coalesced with.
    expect(await world.change(shaky.queue, 'n.a')).toBeOneOf(['coalesced', ...(lost === 'requests' ? ['queued'] : [])])
    expect(await entriesOf(shaky.queue)).toMatchObject([{ key: 'n.a', state: 'queued' }])
  })
})
