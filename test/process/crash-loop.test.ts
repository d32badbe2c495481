import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type KubeClient, resourcePath } from '#kube'
import { installing, type World, worldOn } from '../e2e/world.ts'
import { Shop } from '../install/team-function.ts'
import { until } from '../queue/support.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { startFairlead } from '../support/fairlead.ts'
import { Naughty } from './naughty.ts'

const BAD = fileURLToPath(new URL('./naughty.ts', import.meta.url))
const GOOD = fileURLToPath(new URL('../install/team-function.ts', import.meta.url))

let world: World
let kube: KubeClient
beforeAll(async () => {
  world = await worldOn(borrowCluster({ nats: true }), async () => undefined)
  kube = world.kube
  for (const name of ['shop', 'shop-test'])
    await kube.create('/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name } })
  await installing('-f', BAD, '-f', GOOD)(world.env)
})
afterAll(() => world?.[Symbol.asyncDispose]())

const OBJECTS = 12
const named = (name: string) => Array.from({ length: OBJECTS }, (_, index) => `${name}-${index}`)
const open = (name: string) => kube.create(resourcePath(Shop, 'shop'), Shop.of({ metadata: { name }, spec: {} }))
const isOpen = async (name: string) =>
  expect((await kube.get(resourcePath(Shop, 'shop', name))).status).toMatchObject({ phase: 'OPEN' })

/**
 * Starts processes one after the other until one survives the runs of all these objects, which exit, and opens a Shop
 * beside each, all of which are opened in the end. Returns how many have ended.
 */
async function livesOf(name: string, args: readonly string[]): Promise<number> {
  const names = named(name)
  for (const one of names)
    await kube.create(resourcePath(Naughty, 'default'), Naughty.of({ metadata: { name: one }, spec: { does: 'exit' } }))
  for (let lives = 0; ; lives++) {
    await using running = startFairlead([...args], world.env)
    const life = { isOver: false }
    void running.exited.then(() => (life.isOver = true))
    await open(`${name}-${lives}`)
    const hasEnded = (one: string) =>
      running.logs.some(({ key, result }) => key === `default/${one}` && result === 'error')
    await until(() => life.isOver || names.every(hasEnded))
    if (life.isOver) continue
    for (let shop = 0; shop <= lives; shop++) await until(() => isOpen(`${name}-${shop}`))
    return lives
  }
}

it('an object that loops ends the process of dev twice at most, whatever ran beside it, and then only its own runs', async () => {
  const beside = Array.from({ length: 6 }, (_, index) => `beside-the-loop-${index}`)
  const create = (name: string, does: 'loop' | 'take its time') =>
    kube.create(resourcePath(Naughty, 'default'), Naughty.of({ metadata: { name }, spec: { does } }))
  for (const name of beside) await create(name, 'take its time')
  await create('loops', 'loop')
  const { KUBECONFIG = '', NATS_URL = '' } = world.env
  await using dev = startFairlead(['--kubeconfig', KUBECONFIG, '--nats', NATS_URL, 'dev', '-f', BAD], world.env)
  await dev.logged(({ key, result }) => key === 'default/loops' && result === 'error')
  const ends = dev.logs.filter(({ msg }) => msg.includes('has ended with exit code 5'))
  expect(ends.length).toBeGreaterThan(0)
  expect(ends.length).toBeLessThanOrEqual(2)
  const phaseOf = async (name: string) => (await kube.get(resourcePath(Naughty, 'default', name))).status
  for (const name of beside) await until(async () => expect(await phaseOf(name)).toMatchObject({ phase: 'DONE' }))
  await kube.delete(resourcePath(Naughty, 'default', 'loops'), {})
})

describe('a function that ends its process on each of its objects', () => {
  it('ends that for each object twice at most, and then only its own calls', async () => {
    const lives = await livesOf('beside', ['up', '-f', BAD, '-f', GOOD])
    expect(lives).toBeGreaterThan(0)
    expect(lives).toBeLessThanOrEqual(2 * OBJECTS)
  })

  it('ends no run of a function in other dispatchers, and makes none wait', async () => {
    await using _bridge = startFairlead(['bridge'], world.env)
    await using good = startFairlead(['dispatch', '-f', GOOD], world.env)
    await good.logged(({ msg, reconciler }) => msg === 'reconciler served' && reconciler === 'shop')
    const lives = await livesOf('apart', ['dispatch', '-f', BAD])
    expect(lives).toBeGreaterThan(0)
    const runs = good.logs.filter(({ step }) => step === 'begun' || step === 'finished')
    expect(runs.filter(({ reconciler }) => reconciler !== 'shop')).toEqual([])
    expect(runs.filter((line) => line['cutShort'] === true || line.result === 'error')).toEqual([])
  })
})
