import { createServer, get, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import pino from 'pino'
import { afterEach, expect, it } from 'vitest'
import { createConsole, type Data } from '#console'
import type { Access } from '#console/access'
import { BusyError } from '../../packages/console/data/cache.ts'

let server: Server
let stop: AbortController
const ends: Promise<unknown>[] = []

/** A console whose persons are named by the header `person`. */
async function serve(data: Partial<Data>): Promise<void> {
  const all: Data = { of: () => all, ...data } as Partial<Data> as Data
  const access = {
    authenticate: async ({ headers }) => ({ name: `${headers['person']}`, groups: [] }),
    may: async () => true,
  } as Partial<Access> as Access
  const log = pino({ level: 'silent' })
  stop = new AbortController()
  server = createServer(
    createConsole({
      clusters: [{ data: all, abilities: { writes: false }, record: async () => undefined }],
      access,
      log,
    }),
  )
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
}
afterEach(async () => {
  stop.abort()
  await Promise.allSettled(ends.splice(0))
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
})

const asked = (path: string, person: string): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    const { port } = server.address() as AddressInfo
    const options = { host: '127.0.0.1', port, path, headers: { person }, signal: stop.signal }
    const request = get(options, (response) => {
      response.on('error', () => undefined)
      resolve(response)
    })
    request.on('error', reject)
  })
const textOf = async (response: IncomingMessage): Promise<string> => {
  let text = ''
  for await (const chunk of response as AsyncIterable<Buffer>) text += chunk.toString()
  return text
}

it('a person who follows as many pages as one may keeps no other person from following one', async () => {
  await serve({ letters: async () => [] })
  const tab = (person: string) => asked('/live?page=/dead', person)
  const tabs = await Promise.all(Array.from({ length: 24 }, () => tab('ann')))
  expect(new Set(tabs.map(({ statusCode }) => statusCode))).toEqual(new Set([200]))
  const refused = await tab('ann')
  expect([refused.statusCode, refused.headers['retry-after']]).toEqual([503, '3'])
  expect(await textOf(refused)).toContain('you have 24 tabs open already')
  expect((await tab('ben')).statusCode).toBe(200)
  tabs[0]?.destroy()
  for (let isFree = false; !isFree; await sleep(5)) isFree = (await tab('ann')).statusCode === 200
})

it('a read that would wait too long is answered by 503 and a time to come back, and the page goes on by itself', async () => {
  await serve({
    natsAway: async () => undefined,
    reconcilers: () => Promise.reject(new BusyError(4000)),
    queue: () => Promise.reject(new BusyError(4000)),
  })
  const page = await asked('/', 'ann')
  expect([page.statusCode, page.headers['retry-after']]).toEqual([503, '3'])
  const text = await textOf(page)
  expect(text).toContain('The console is busy.')
  expect(text).toContain('data-live="/"')
  const rows = await asked('/queue/rows', 'ann')
  expect([rows.statusCode, rows.headers['retry-after']]).toEqual([503, '3'])
})
