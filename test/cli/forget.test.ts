import { afterAll, beforeAll, expect, it } from 'vitest'
import { openDeadLetters } from '#events'
import { connectJetStream, type JetStream } from '#nats'
import { openQueue } from '#queue'
import { command } from '../support/command.ts'
import { startTestNats } from '../support/servers.ts'
import { silent } from '../support/silent.ts'

let nats: Awaited<ReturnType<typeof startTestNats>>
let js: JetStream

const as = (user: string) => nats.url.replace('://', `://${user}:x@`)

beforeAll(async () => {
  const users = {
    all: {},
    asks: { publish: { deny: ['edge.agent.>'] } },
    hears: { subscribe: { deny: ['edge.agent.>'] } },
  }
  nats = await startTestNats({
    authorization: {
      timeout: 60,
      users: Object.entries(users).map(([user, permissions]) => ({ user, password: 'x', permissions })),
    },
  })
  js = await connectJetStream({ servers: as('all'), name: 'test' })
  await openQueue(js, { prefix: 'edge', log: silent })
  await openDeadLetters(js, { prefix: 'edge', cluster: 'uid', log: silent })
})
afterAll(async () => {
  await js?.close()
  await nats?.[Symbol.asyncDispose]()
})

const forget = (env: Record<string, string>, ...args: string[]) => command(['cluster', 'forget', 'edge', ...args], env)

it('cluster forget deletes nothing for a user of NATS that cannot ask agents, and says which user can', async () => {
  const unsure: Record<string, string>[] = [
    { NATS_URL: as('asks') },
    { NATS_URL: as('hears') },
    { NATS_URL: as('all'), NATS_API_PREFIX: '$JS.API' },
  ]
  const known = 'may publish to edge.agent.sessions and subscribe to edge.agent.answers.>'
  for (const env of unsure) {
    const shown = await forget(env)
    expect(shown).toMatchObject({ code: 0, stdout: expect.stringContaining(known) })
    expect(shown.stdout).toContain('edge_WORK: would be deleted')
    const refused = await forget(env, '--delete-streams')
    expect(refused).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining(known) })
    expect(await js.usage('edge_WORK')).toBeDefined()
  }
  expect(await forget({ NATS_URL: as('all') }, '--delete-streams')).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('edge_WORK: deleted'),
  })
})
