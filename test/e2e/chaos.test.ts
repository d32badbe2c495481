import { expect, it } from 'vitest'
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
import { startWorld } from './world.ts'

const COUNT = Number(GIVEN_COUNT ?? 1000)
/** One a second, from before the first is due until the last: on a slow machine too, the kills end. */
const KILLS = 13

it(
  `${COUNT} Ats due over ten seconds all run exactly once while one of two processes is killed again and again, FAIRLEAD_CHAOS_SEED=${SEED}`,
  async () => {
    await using world = await startWorld()
    await using replicas = await startReplicas(world, 2)
    const load = { world, replicas, prefix: 'killed', count: COUNT, spreadMs: 10_000 }
    const came = await underLoad(load, killAgainAndAgain(KILLS, 1))
    console.log(`${came.kills} kills, which cut ${came.cut} of ${came.runs.length} runs short`)
    expect(came.kills).toBe(KILLS)
    expectOnePodEach(came)
    await expectOneCreationEach(came, { atMost: true })
    expectNoTwoAtOnce(came)
  },
  PATIENCE_MS,
)
