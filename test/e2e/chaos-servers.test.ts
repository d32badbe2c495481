import { afterAll, beforeAll, describe, it } from 'vitest'
import {
  expectNoTwoAtOnce,
  expectOneCreationEach,
  expectOnePodEach,
  GIVEN_COUNT,
  killAgainAndAgain,
  killServer,
  PATIENCE_MS,
  SEED,
  startReplicas,
  underLoad,
} from './chaos.ts'
import { startWorld, type World } from './world.ts'

/** `npm run soak chaos`: as many Ats as in the load that is alone, and a third process. Each has a bridge and a dispatcher. */
const [COUNT, PROCESSES, SPREAD_MS, SERVER_KILLS] =
  GIVEN_COUNT === undefined ? [60, 2, 4000, 2] : [Number(GIVEN_COUNT), 3, 10_000, 4]
/** The number of killed processes. Not in `npm test`, where chaos.test.ts kills one of two. */
const KILLS = 12

let world: World
let replicas: Awaited<ReturnType<typeof startReplicas>>
beforeAll(async () => {
  world = await startWorld()
  replicas = await startReplicas(world, PROCESSES)
})
afterAll(async () => {
  await replicas?.[Symbol.asyncDispose]()
  await world?.[Symbol.asyncDispose]()
})

const load = (prefix: string) => ({ world, replicas, prefix, count: COUNT, spreadMs: SPREAD_MS })

describe(`${COUNT} Ats due over some seconds all run exactly once, FAIRLEAD_CHAOS_SEED=${SEED}`, {
  timeout: PATIENCE_MS,
}, () => {
  it.skipIf(GIVEN_COUNT === undefined)(`while any of ${PROCESSES} processes is killed again and again`, async () => {
    const came = await underLoad(load('killed'), killAgainAndAgain(KILLS, PROCESSES))
    expectOnePodEach(came)
    await expectOneCreationEach(came, { atMost: true })
    expectNoTwoAtOnce(came)
  })

  it('while nats-server is killed again and again', async () => {
    const came = await underLoad(load('nats'), killServer(world, 'nats', SERVER_KILLS))
    expectOnePodEach(came)
    await expectOneCreationEach(came)
    expectNoTwoAtOnce(came)
  })

  it('while kube-apiserver is killed again and again', async () => {
    const came = await underLoad(load('api'), killServer(world, 'kube-apiserver', SERVER_KILLS))
    expectOnePodEach(came)
    await expectOneCreationEach(came, { atMost: true })
    expectNoTwoAtOnce(came)
  })
})
