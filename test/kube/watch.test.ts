import type { ServerResponse } from 'node:http'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createKubeClient, type KubeClient, type WatchEvent } from '#kube'
import { type ScriptedServer, startScriptedServer } from './scripted-server.ts'

const PODS = '/api/v1/pods'
const clientOf = ({ access }: ScriptedServer): KubeClient => createKubeClient({ ...access, userAgent: 'test' })
const event = (name: string, type = 'ADDED') => `${JSON.stringify({ type, object: { metadata: { name } } })}\n`

async function all(events: AsyncIterable<WatchEvent<unknown>>): Promise<unknown[]> {
  const seen: unknown[] = []
  try {
    for await (const { object } of events) seen.push((object as { metadata: { name: string } }).metadata.name)
  } catch (error) {
    seen.push(error)
  }
  return seen
}

const watching = async (script: (response: ServerResponse) => unknown): Promise<unknown[]> => {
  await using server = await startScriptedServer((_, response) => script(response))
  await using kube = clientOf(server)
  return await all(kube.watch(PODS))
}

describe.concurrent('a watch', () => {
  it('puts characters and lines together that arrive in pieces', async () => {
    const bytes = Buffer.from(event('ä€𝄞'.repeat(3)) + event('b'))
    const seen = await watching(async (response) => {
      for (const byte of bytes) {
        response.write(Buffer.of(byte))
        await new Promise(setImmediate)
      }
      response.end()
    })
    expect(seen).toEqual(['ä€𝄞'.repeat(3), 'b'])
  })

  it.each([
    ['{"data":{"password":"hunter2"', 'not JSON: 29 characters'],
    ['<h1>Log in</h1>', 'not JSON: <h1>Log in'],
  ])('throws at the line %s, after what came before it, and never shows what may be a Secret', async (line, said) => {
    const seen = await watching((response) => response.end(`${event('a')}${line}\n${event('b')}`))
    expect(seen).toEqual([
      'a',
      expect.objectContaining({ name: 'ApiAnswerError', message: expect.stringContaining(said) }),
    ])
    expect((seen[1] as Error).cause).toBeUndefined()
  })

  it('throws when it ends in the middle of a line', async () => {
    expect(await watching((response) => response.end(`${event('a')}{"type":`))).toEqual([
      'a',
      expect.objectContaining({ name: 'ApiAnswerError' }),
    ])
  })

  it('throws when the connection breaks', async () => {
    const seen = await watching((response) => response.write(event('a'), () => response.destroy()))
    expect(seen).toEqual(['a', expect.objectContaining({ name: 'ApiConnectionError' })])
  })

  it('throws what the server reports inside of it', async () => {
    const status = { kind: 'Status', code: 410, reason: 'Expired', message: 'too old resource version' }
    const line = `${JSON.stringify({ type: 'ERROR', object: status })}\n`
    expect(await watching((response) => response.end(event('a') + line))).toEqual([
      'a',
      expect.objectContaining({ name: 'ApiError', code: 410, reason: 'Expired' }),
    ])
  })

  it.each(['while it waits for an event', 'with events still at hand'])(
    'ends at once when the caller aborts, %s',
    async (when) => {
      const waits = when.startsWith('while')
      const abort = new AbortController()
      await using server = await startScriptedServer((_, response) =>
        response.write(event('a') + (waits ? '' : event('b'))),
      )
      await using kube = clientOf(server)
      const events = kube.watch(PODS, { signal: abort.signal })
      await events.next()
      const next = waits ? events.next() : undefined
      abort.abort('enough')
      await expect(next ?? events.next()).rejects.toBe('enough')
      await vi.waitFor(async () => expect(await server.connections()).toBe(0), { timeout: 60_000 })
    },
  )

  it('closes its connection when its reader leaves', async () => {
    await using server = await startScriptedServer((_, response) => response.write(event('a')))
    await using kube = clientOf(server)
    for await (const _ of kube.watch(PODS)) break
    await vi.waitFor(async () => expect(await server.connections()).toBe(0), { timeout: 60_000 })
  })

  it('holds back the server while its reader is slow', async () => {
    const line = event('x'.repeat(10_000))
    let written = 0
    let full = false
    await using server = await startScriptedServer((_, response) => {
      while (response.write(line)) written++
      full = true
      response.on('drain', () => {
        full = false
        while (written++ < 5_000 && response.write(line));
        full = written < 5_000
        if (!full) response.end()
      })
    })
    await using kube = clientOf(server)
    const events = kube.watch(PODS)
    await events.next()
    await vi.waitFor(() => expect(full).toBe(true), { timeout: 60_000 })
    // 50 MB are to come: buffers of sockets take a few of them, the rest stays with the server until it is asked for.
    await new Promise((resolve) => setTimeout(resolve, 200))
    expect(written).toBeLessThan(2_500)
    for await (const _ of events);
    expect(written).toBeGreaterThanOrEqual(5_000)
  })

  it('asks for bookmarks, and for the present objects first when wanted', async () => {
    await using server = await startScriptedServer((_, response) => response.end())
    await using kube = clientOf(server)
    await all(kube.watch(PODS, { resourceVersion: '7', fieldSelector: 'a=b' }))
    await all(kube.watch(PODS, { sendInitialEvents: true, allowBookmarks: false, timeoutSeconds: 10 }))
    const queries = server.requests.map(({ url }) => Object.fromEntries(new URL(url ?? '', 'https://x').searchParams))
    expect(queries).toEqual([
      { watch: 'true', allowWatchBookmarks: 'true', resourceVersion: '7', fieldSelector: 'a=b', timeoutSeconds: '290' },
      {
        watch: 'true',
        allowWatchBookmarks: 'false',
        sendInitialEvents: 'true',
        resourceVersionMatch: 'NotOlderThan',
        timeoutSeconds: '10',
      },
    ])
  })
})

describe('a watch, in virtual time,', () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }))
  afterEach(() => void vi.useRealTimers())

  it('gives up a server that is silent 5 s after it should have ended the watch', async () => {
    await using server = await startScriptedServer((_, response) => response.write(event('a')))
    await using kube = clientOf(server)
    const events = kube.watch(PODS, { timeoutSeconds: 1 })
    await events.next()
    const rest = all(events)
    await vi.advanceTimersByTimeAsync(6000)
    expect(await rest).toEqual([
      expect.objectContaining({ name: 'ApiConnectionError', message: expect.stringContaining('within 6 s') }),
    ])
  })

  it('ends as agreed when it is listened to and hears nothing for so long; a slow reader is no silence', async () => {
    const answers: ServerResponse[] = []
    await using server = await startScriptedServer((_, response) => {
      answers.push(response)
      response.write(event('a'))
    })
    await using kube = clientOf(server)
    const events = kube.watch(PODS, { silenceSeconds: 1, timeoutSeconds: 60 })
    await events.next()
    await vi.advanceTimersByTimeAsync(5000)
    answers[0]?.write(event('b'))
    expect(await events.next()).toMatchObject({ value: { object: { metadata: { name: 'b' } } } })
    const rest = all(events)
    await vi.advanceTimersByTimeAsync(2000)
    expect(await rest).toEqual([])
  })
})
