import { afterAll, beforeAll, expect, it } from 'vitest'
import type { JetStream } from '#nats'
import { borrowCluster } from '../support/borrowed.ts'
import { command } from '../support/command.ts'
import type { FairleadProcess } from '../support/fairlead.ts'
import { connectTo } from '../support/jetstream.ts'
import { at, until, type World, worldOn } from './world.ts'

const HOUR_MS = 3_600_000

let world: World
let js: JetStream
/** The last process of the test before, with which the next one begins: a start takes long. */
let left: FairleadProcess | undefined
beforeAll(async () => {
  world = await worldOn(borrowCluster({ nats: true }))
  js = await connectTo(world.env['NATS_URL'] ?? '')
})
afterAll(async () => {
  await left?.[Symbol.asyncDispose]()
  await js?.close()
  await world?.[Symbol.asyncDispose]()
})

async function serving(): Promise<FairleadProcess> {
  const process = left ?? world.up()
  left = undefined
  await process.logged(({ msg }) => msg === 'reconciler served')
  return process
}

const waits = (process: FairleadProcess, name: string) =>
  process.logged(
    ({ step, result, key }) => step === 'finished' && result === 'requeue_after' && key === `default/${name}`,
  )

async function isWaiting(name: string): Promise<boolean> {
  const { stdout } = await command(['queue', 'show', 'at', `default/${name}`], world.env)
  return /State: +waiting/.test(stdout)
}

const losses = [
  { stream: 'WORK', act: 'delete', word: 'deleted' },
  { stream: 'WORK', act: 'purge', word: 'emptied' },
  { stream: 'EVENTS', act: 'delete', word: 'deleted' },
  { stream: 'EVENTS', act: 'purge', word: 'emptied' },
] as const

it.each(losses)(
  'an object waits again when $stream was $word by somebody: who used it ends and says so, and who starts next makes it run',
  async ({ stream, act, word }) => {
    const name = `${stream}-${act}`.toLowerCase()
    await using one = await serving()
    await world.create(at(name, new Date(Date.now() + HOUR_MS)))
    await waits(one, name)
    await js.admin.streams[act](stream)
    const { code, signal } = await one.exited
    expect({ code, signal, last: one.logs.slice(-5) }).toMatchObject({ code: 4, signal: null })
    expect(one.logs.some(({ msg }) => msg.includes(`stream ${stream} was ${word}`))).toBe(true)
    left = world.up()
    await waits(left, name)
  },
)

it.each(losses)('an object waits again when $stream was $word while nobody used it', async ({ stream, act }) => {
  const name = `${stream}-${act}-unused`.toLowerCase()
  await using one = await serving()
  await world.create(at(name, new Date(Date.now() + HOUR_MS)))
  await waits(one, name)
  one.kill('SIGTERM')
  await one.exited
  await js.admin.streams[act](stream)
  left = world.up()
  await waits(left, name)
  await until(() => isWaiting(name))
})
