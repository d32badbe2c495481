import { cp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { WorkQueue } from '#queue'
import { seededRandom } from '../support/random.ts'
import { shortTempDir, startTestNats } from '../support/servers.ts'
import { FileWorld, kill, startWorker } from './processes.ts'
import {
  DONE,
  FN,
  gate,
  inOneHour,
  LEASE_MS,
  openTestQueue,
  SHORT,
  type TestQueue,
  until,
  useTestNats,
  World,
} from './support.ts'

let dir: string
beforeAll(async () => {
  dir = await shortTempDir()
})
afterAll(() => rm(dir, { recursive: true, force: true }))

/** Enough for every worker to run keys, some of them again. */
const RUNS_BETWEEN_KILLS = 60

const endedRuns = (world: FileWorld): number => world.runs().filter(({ end }) => end !== undefined).length

const random = seededRandom('kills and changes of crash.test.ts')
const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)]!

describe('a worker whose process ends between any two steps', () => {
  const { open } = useTestNats()

  async function bringTo(scene: string, queue: WorkQueue, key: string, goesOn: Promise<void>): Promise<void> {
    if (scene === 'idle') return
    const worker = queue.serve({
      reconciler: FN,
      slots: 2,
      handler: async () => {
        if (scene === 'running') await goesOn
        return { kind: 'requeue', at: inOneHour() }
      },
    })
    await queue.enqueue(FN, key)
    await until(async () => expect(await queue.depth(FN)).toMatchObject({ queued: 0, [scene]: 1 }))
    // A running key keeps its worker, which takes nothing more; a waiting one has none.
    const drained = worker.drain(30_000)
    if (scene === 'waiting') await drained
  }

  /** What the key is doing when the doomed worker takes its token, and the accesses it then makes. */
  const scenes = [
    { scene: 'idle', steps: ['take', 'acknowledge', 'finish'] },
    { scene: 'waiting', steps: ['take', 'look', 'steal', 'acknowledge', 'finish'] },
    { scene: 'running', steps: ['take', 'look', 'dirty', 'dismiss'] },
  ] as const
  const points = scenes.flatMap(({ scene, steps }) =>
    steps.map((step, index) => ({ scene, step, dieBefore: index + 1 })),
  )

  it.concurrent.each(points)('before $step, the key being $scene', async ({ scene, dieBefore }) => {
    const prefix = `${scene}${dieBefore}`
    await using test = await open(prefix, SHORT)
    const world = new World()
    const goesOn = gate()
    await bringTo(scene, test.queue, 'n.a', goesOn.opened)
    const dead = gate()
    let accesses = 0
    const doomed = await open(prefix, {
      ...SHORT,
      onIo: async () => {
        if (++accesses < dieBefore) return
        // Nothing that it has not sent by now will be sent.
        dead.open()
        await doomed.js.close()
        await new Promise(() => undefined)
      },
    })
    await world.change(test.queue, 'n.a')
    doomed.queue.serve({ reconciler: FN, slots: 2, handler: async () => DONE })
    await dead.opened
    goesOn.open()
    const survivor = world.serve(test.queue)
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await world.change(test.queue, 'n.a')
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    expect(world.overlaps).toEqual([])
    await survivor.drain(1000)
  })
})

describe.each([
  { replicas: 1 as const, restarts: 1 },
  { replicas: 3 as const, restarts: 2 },
])('workers and servers killed with -9 under load, $replicas replica(s)', ({ replicas, restarts }) => {
  it('lose no change, give no key to two workers, and leave nothing behind', async () => {
    await using nats = await startTestNats({ replicas })
    const prefix = `chaos${replicas}`
    await using test = await openTestQueue(nats.url, prefix, { replicas, ...SHORT })
    const world = new FileWorld(`${dir}/${prefix}`)
    const settings = {
      url: nats.url,
      prefix,
      reconciler: FN,
      replicas,
      leaseMs: LEASE_MS,
      dir: world.dir,
      workMs: 8,
      seed: Math.floor(random() * 2 ** 31),
    }
    const workers = await Promise.all([0, 1, 2].map(() => startWorker(settings)))
    const keys = Array.from({ length: 15 }, (_, i) => `n.k${i}`)
    const over = new AbortController()
    const changing = (async () => {
      const changes: Promise<void>[] = []
      while (!over.signal.aborted) {
        changes.push(world.change(test.queue, 'f', pick(keys), pick(['high', 'high', 'low'])))
        await new Promise((resolve) => setTimeout(resolve, 10))
      }
      await Promise.all(changes)
    })()
    const untilRuns = async (more: number) => {
      const ended = endedRuns(world) + more
      await until(() => over.signal.aborted || endedRuns(world) >= ended)
    }
    const killingWorkers = (async () => {
      while (!over.signal.aborted) {
        await untilRuns(RUNS_BETWEEN_KILLS / 3)
        if (over.signal.aborted) break
        const index = Math.floor(random() * workers.length)
        const victim = workers[index]!
        await kill(victim)
        world.died(victim)
        workers[index] = await startWorker(settings)
      }
    })()
    const killingServers = (async () => {
      // Each time the queue is at work again, and the last time it goes on under load.
      for (let kills = 0; ; kills++) {
        await untilRuns(RUNS_BETWEEN_KILLS)
        if (kills === restarts) break
        await nats.restart(Math.floor(random() * replicas))
      }
    })().finally(() => over.abort())
    await Promise.all([changing, killingWorkers, killingServers])
    await until(() => expect(world.dealtWith()).toEqual(world.versions))
    await until(async () =>
      expect(await test.queue.depth('f')).toEqual({ queued: 0, running: 0, waiting: 0, parked: 0 }),
    )
    await Promise.all(workers.map((worker) => kill(worker, 'SIGTERM')))
    expect(world.overlaps()).toEqual([])
  })
})

it('a token that a killed server brought back from the dead is replaced', async () => {
  await using nats = await startTestNats()
  const keys = ['n.a', 'n.b', 'n.c']
  const messages = join(nats.processes.dir, 'nats/nats/store/jetstream/$G/streams/corpse_WORK/msgs')
  const older = `${dir}/older-messages`
  const stop = async (signal: NodeJS.Signals) => {
    nats.signal(signal)
    await nats.processes.get(nats.names[0]!)?.exited
  }
  let runs = 0
  const serve = ({ queue }: TestQueue) =>
    queue.serve({
      reconciler: 'f',
      slots: 4,
      handler: async () => {
        runs++
        return DONE
      },
    })

  const consumerKnows = async ({ js }: TestQueue) => (await js.admin.consumers.info('corpse_WORK', 'f-high')).ack_floor
  {
    await using test = await openTestQueue(nats.url, 'corpse')
    for (const key of keys) await test.queue.enqueue('f', key)
  }
  await stop('SIGTERM')
  await cp(messages, older, { recursive: true })
  await nats.restart()
  {
    await using test = await openTestQueue(nats.url, 'corpse')
    const worker = serve(test)
    await until(async () => expect(await consumerKnows(test)).toMatchObject({ stream_seq: 3 }))
    await worker.drain(1000)
  }
  // A clean stop writes the consumer's state; the older messages are what a kill before their removal leaves.
  await stop('SIGTERM')
  await rm(messages, { recursive: true })
  await cp(older, messages, { recursive: true })
  await nats.restart()
  await using test = await openTestQueue(nats.url, 'corpse')
  expect(await consumerKnows(test)).toMatchObject({ stream_seq: 3 })
  for (const key of keys) expect(await test.queue.enqueue('f', key)).toBe('coalesced')
  const worker = serve(test)
  const janitor = test.queue.janitor('f')
  await until(async () => {
    await janitor.pass()
    expect(runs).toBe(6)
  })
  expect(test.logged.filter((line) => line.startsWith('token that would never'))).toHaveLength(3)
  await worker.drain(1000)
})
