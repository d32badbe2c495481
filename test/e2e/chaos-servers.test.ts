import { afterAll, beforeAll, describe, it } from 'vitest'
import {
  expectNoTwoAtOnce,
  expectOneCreationEach,
  expectOnePodEach,
  GIVEN_COUNT,
  killAgainAndAgain,
  killThrice,
  PATIENCE_MS,
  SEED,
  startReplicas,
  underLoad,
} from './chaos.ts'
import { startWorld, type World } from './world.ts'

/** `npm run soak:chaos` takes as many as the load that is alone. */
const COUNT = Number(GIVEN_COUNT ?? 100)
/** Each has a bridge and a dispatcher. */
const PROCESSES = Number(process.env['FAIRLEAD_CHAOS_PROCESSES'] ?? 3)
const SPREAD_MS = GIVEN_COUNT === undefined ? 5000 : 10_000
const KILLS = 7

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
  it(`while any of ${PROCESSES} processes is killed again and again`, async () => {
    const came = await underLoad(load('killed'), killAgainAndAgain(KILLS, PROCESSES))
    expectOnePodEach(came)
    await expectOneCreationEach(came, { atMost: true })
    expectNoTwoAtOnce(came)
  })

  it('while nats-server is killed again and again', async () => {
    const came = await underLoad(load('nats'), killThrice(world, 'nats'))
    expectOnePodEach(came)
    await expectOneCreationEach(came)
    expectNoTwoAtOnce(came)
  })

  it('while kube-apiserver is killed again and again', async () => {
    const came = await underLoad(load('api'), killThrice(world, 'kube-apiserver'))
    expectOnePodEach(came)
    await expectOneCreationEach(came, { atMost: true })
    expectNoTwoAtOnce(came)
  })
})
