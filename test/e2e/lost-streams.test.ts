import { afterAll, beforeAll, expect, it } from 'vitest'
import { connectJetStream, type JetStream } from '#jetstream'
import { command } from '../support/command.ts'
import type { FairleadProcess } from '../support/fairlead.ts'
import { at, startWorld, until, type World } from './world.ts'

const HOUR_MS = 3_600_000

let world: World
let js: JetStream
beforeAll(async () => {
  world = await startWorld()
  js = await connectJetStream({ servers: world.env['NATS_URL'] ?? '', name: 'test' })
})
afterAll(async () => {
  await js?.close()
  await world?.[Symbol.asyncDispose]()
})

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
    await using one = world.up()
    await one.logged(({ msg }) => msg === 'reconciler served')
    await world.create(at(name, new Date(Date.now() + HOUR_MS)))
    await waits(one, name)
    await js.admin.streams[act](stream)
    expect((await one.exited).code).toBe(4)
    expect(one.logs.some(({ msg }) => msg.includes(`stream ${stream} was ${word}`))).toBe(true)
    await using next = world.up()
    await waits(next, name)
  },
)

it.each(losses)('an object waits again when $stream was $word while nobody used it', async ({ stream, act }) => {
  const name = `${stream}-${act}-unused`.toLowerCase()
  await using one = world.up()
  await one.logged(({ msg }) => msg === 'reconciler served')
  await world.create(at(name, new Date(Date.now() + HOUR_MS)))
  await waits(one, name)
  one.kill('SIGTERM')
  await one.exited
  await js.admin.streams[act](stream)
  await using next = world.up()
  await waits(next, name)
  await until(() => isWaiting(name))
})
