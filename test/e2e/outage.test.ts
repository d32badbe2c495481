import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { fairlead } from '../support/fairlead.ts'
import { playNode } from '../support/node-player.ts'
import { at, startWorld, until, type World } from './world.ts'

const FIRST_DUE_MS = 6000
/** Late enough for everything to be back before it. */
const SECOND_DUE_MS = 24_000

it('fires what was due while everything was dead, and what waits still, at its time and once', async () => {
  await using world = await startWorld()
  const stop = new AbortController()
  await playNode(world.kube, 'default', stop.signal)
  const began = Date.now()
  const due = { missed: began + FIRST_DUE_MS, waiting: began + SECOND_DUE_MS }
  {
    await using one = world.up()
    await using other = world.up()
    await Promise.all([one, other].map((process) => process.logged(({ msg }) => msg === 'started')))
    for (const [name, time] of Object.entries(due)) await world.create(at(name, new Date(time)))
    await until(async () => (await waitingKeys(world)).length === 2)
    expect((await world.ats()).map(({ status }) => status?.phase)).toEqual(['PENDING', 'PENDING'])
    const { processes } = world.cluster
    await Promise.all(processes.names().map((name) => processes.kill(name)))
  }
  while (Date.now() <= due.missed) await sleep(50)

  await world.cluster.recover()
  expect(await world.pods()).toEqual([])
  await using one = world.up()
  await using other = world.up()
  await Promise.race([
    until(async () => (await world.ats()).every(({ status }) => status?.phase === 'DONE')),
    ...[one, other].map(({ exited }) => exited.then((how) => expect(how, 'fairlead ended').toBe(undefined))),
  ])
  stop.abort()

  const creations = await world.podCreations()
  const [missed = [], waiting = []] = [creations.get('missed-pod'), creations.get('waiting-pod')]
  expect([missed.length, waiting.length]).toEqual([1, 1])
  expect(missed[0], 'the one whose time had passed went first').toBeLessThan(Number(waiting[0]))
  expect(waiting[0]).toBeGreaterThanOrEqual(due.waiting)
}, 90_000)

async function waitingKeys(world: World): Promise<string[]> {
  const { stdout } = await fairlead(['queue', 'ls', '-o', 'json'], world.env)
  const rows = JSON.parse(stdout) as { name: string; state: string }[]
  return rows.filter(({ state }) => state === 'waiting').map(({ name }) => name)
}
