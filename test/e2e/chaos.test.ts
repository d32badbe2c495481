import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { connectTo } from '../support/jetstream.ts'
import {
  expectNoTwoAtOnce,
  expectOneCreationEach,
  expectOnePodEach,
  GIVEN_COUNT,
  killAgainAndAgain,
  PATIENCE_MS,
  SEED,
  startReplicas,
  underLoad,
} from './chaos.ts'
import { startWorld, type World } from './world.ts'

const COUNT = Number(GIVEN_COUNT ?? 1000)
/** One a second, from before the first is due until the last: on a slow machine too, the kills end. */
const KILLS = 13

it(
  `${COUNT} Ats due over ten seconds all run exactly once while one of two processes is killed again and again and RUNS is full, emptied and deleted, FAIRLEAD_CHAOS_SEED=${SEED}`,
  async () => {
    await using world = await startWorld()
    await using replicas = await startReplicas(world, 2)
    const load = { world, replicas, prefix: 'killed', count: COUNT, spreadMs: 10_000 }
    const spoiled: string[] = []
    const came = await underLoad(load, async (targets) => {
      const spoiling = spoilHistory(world, targets.signal, (how) => spoiled.push(how))
      await killAgainAndAgain(KILLS, 1)(targets)
      await spoiling
    })
    expect(spoiled).toEqual(['full', 'emptied', 'deleted'])
    console.log(`${came.kills} kills, which cut ${came.cut} of ${came.runs.length} runs short`)
    expect(came.kills).toBe(KILLS)
    expectOnePodEach(came)
    await expectOneCreationEach(came, { atMost: true })
    expectNoTwoAtOnce(came)
  },
  PATIENCE_MS,
)

/** The history of runs may be lost: runs do not depend on it. */
async function spoilHistory({ env }: World, signal: AbortSignal, done: (how: string) => void): Promise<void> {
  const js = await connectTo(env['NATS_URL'] ?? '', 'spoils RUNS')
  const steps: [how: string, act: () => Promise<unknown>][] = [
    ['full', () => js.admin.streams.update('RUNS', { max_bytes: 16_384 })],
    ['emptied', () => js.admin.streams.purge('RUNS')],
    ['deleted', () => js.admin.streams.delete('RUNS')],
  ]
  try {
    for (const [how, act] of steps) {
      await sleep(4000, undefined, { signal })
      await act()
      done(how)
    }
  } finally {
    await js.close()
  }
}
