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
beforeAll(async () => {
  world = await startWorld()
})
afterAll(() => world?.[Symbol.asyncDispose]())

const load = (prefix: string) => ({ prefix, count: COUNT, spreadMs: SPREAD_MS, processes: PROCESSES })

describe(`${COUNT} Ats due over some seconds all run exactly once, FAIRLEAD_CHAOS_SEED=${SEED}`, {
  timeout: PATIENCE_MS,
}, () => {
  it(`while any of ${PROCESSES} processes is killed again and again`, async () => {
    const came = await underLoad(world, load('killed'), killAgainAndAgain(KILLS, PROCESSES))
    expectOnePodEach(came)
    await expectOneCreationEach(came, { atMost: true })
    expectNoTwoAtOnce(came)
  })

  it('while nats-server is killed again and again', async () => {
    const came = await underLoad(world, load('nats'), killThrice(world, 'nats'))
    expectOnePodEach(came)
    await expectOneCreationEach(came)
    expectNoTwoAtOnce(came)
  })

  it('while kube-apiserver is killed again and again', async () => {
    const came = await underLoad(world, load('api'), killThrice(world, 'kube-apiserver'))
    expectOnePodEach(came)
    await expectOneCreationEach(came, { atMost: true })
    expectNoTwoAtOnce(came)
  })
})
