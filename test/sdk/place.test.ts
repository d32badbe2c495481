import { afterAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { firstOwnPlace, placeOf, type RunInput } from '#contracts'
import { reconciler, resource, TerminalError, toInvoke } from '#sdk'
import { serve } from '#sdk/serve'
import { returnedIn } from '../../dispatch/http/http-answer.ts'

const Thing = resource({
  group: 'test.fairlead.dev',
  version: 'v1',
  kind: 'Thing',
  plural: 'things',
  spec: z.object({ throws: z.string() }),
  status: z.object({}),
})

const throwing: Record<string, () => never> = {
  bug: () => {
    const nothing = undefined as unknown as { x: string }
    throw new Error(nothing.x)
  },
  subclass: () => {
    throw new (class OutOfStock extends RangeError {})('none left')
  },
  // The name of an error is data: the class is not.
  renamed: () => {
    throw Object.assign(new Error('x'), { name: 's3cret' })
  },
  forged: () => {
    throw new Error('x\n    at hunter2 (/s3cret/package:1:1)')
  },
  reworded: () => {
    const error = new Error(`hunter2 (/s3cret/package:1:1)\n`.repeat(10_000))
    error.message = 'x'
    throw error
  },
  'reworded as a frame': () => {
    const error = new Error(`x\n    at file://${import.meta.dirname}/hunter2.ts:1:1`)
    error.message = 'y'
    throw error
  },
  'without frames': () => {
    throw Object.defineProperty(new TerminalError('no', { reason: 'No' }), 'stack', { value: [] })
  },
  dependency: () => z.never().parse(1),
  'bad outcome': () => ({ apply: 7 }) as never,
  refusal: () => {
    throw new TerminalError('no', { reason: 'No' })
  },
}
const things = reconciler({
  name: 'things',
  for: Thing,
  reconcile: ({ object }) => throwing[object.spec.throws]?.() ?? {},
})
const log = { debug() {}, info() {}, warn() {}, error() {} }
const input = (throws: string): RunInput => ({
  object: {
    apiVersion: 'test.fairlead.dev/v1',
    kind: 'Thing',
    metadata: { name: 'a', namespace: 'b' },
    spec: { throws },
  },
  owned: {},
  related: {},
  attempt: 0,
  now: '2030-01-01T00:00:00Z',
  finalizing: false,
})
const thrownBy = (throws: string): Promise<unknown> =>
  toInvoke(things)(input(throws), { log, signal: new AbortController().signal }).then(
    () => undefined,
    (error: unknown) => error,
  )
const HERE = String.raw`test/sdk/place\.test\.ts:\d+:\d+`

describe('an error that a function throws', () => {
  it.each([
    ['a bug', 'bug', 'TypeError'],
    ['a class of its author', 'subclass', 'OutOfStock'],
    ['one whose name was changed', 'renamed', 'Error'],
    ['one whose message looks like a stack', 'forged', 'Error'],
    ['one whose message was changed later', 'reworded', 'Error'],
    ['one whose former message looks like a frame', 'reworded as a frame', 'Error'],
    ['one that a dependency throws', 'dependency', String.raw`\w+`],
    ['one for the users of the object', 'refusal', 'TerminalError'],
  ])('has its class, file, line and column: %s', async (_, throws, name) => {
    expect(placeOf(await thrownBy(throws))).toMatch(new RegExp(`^${name} at ${HERE}$`))
  })

  it('stays what it is where its stack is no text', async () => {
    const error = await thrownBy('without frames')
    expect(error).toBeInstanceOf(TerminalError)
    expect(placeOf(error)).toBeUndefined()
  })

  it('has no place where Fairlead throws it after the function', async () => {
    const error = await thrownBy('bad outcome')
    expect(error).toBeInstanceOf(TerminalError)
    expect(placeOf(error)).toBeUndefined()
  })

  it('has the first frame of its author, as Node.js prints frames', () => {
    const own = new URL('../process/naughty.ts', import.meta.url)
    const frames = [
      'TypeError: x',
      '    at Object.parse (node:internal/url:1:1)',
      '    at async fetch (file:///app/node_modules/undici/index.js:3:4)',
      `    at ${new URL('../../sdk/invoke.ts', import.meta.url).pathname}:5:6`,
      '    at forged (/nowhere/at/all.ts:7:8)',
      `    at async Object.reconcile (${own.href}?v=2:9:10)`,
      `    at ${own.pathname}:11:12`,
    ]
    expect(firstOwnPlace(frames)).toBe('test/process/naughty.ts:9:10')
    expect(firstOwnPlace(frames.slice(0, 5))).toBeUndefined()
  })

  describe('over HTTP', async () => {
    const server = await serve(things, { port: 0, host: '127.0.0.1', log })
    afterAll(() => server.stop(0))
    const answered = async (throws: string) => {
      const response = await fetch(`http://127.0.0.1:${server.port}/`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'ce-specversion': '1.0',
          'ce-id': '1',
          'ce-source': '/reconcilers/things',
          'ce-type': 'dev.fairlead.reconcile',
        },
        body: JSON.stringify(input(throws)),
      })
      const headers = Object.fromEntries(response.headers)
      return { code: response.status, headers, body: Buffer.from(await response.arrayBuffer()) }
    }
    const question = { name: 'things', ask: 'reconcile', finalizing: false, now: new Date() } as const
    const errorOf = (answer: Awaited<ReturnType<typeof answered>>): unknown => {
      try {
        return returnedIn(answer, question)
      } catch (error) {
        return error
      }
    }

    it.each([
      ['bug', 'TypeError'],
      ['refusal', 'TerminalError'],
    ])('has it too: %s', async (throws, name) => {
      expect(placeOf(errorOf(await answered(throws)))).toMatch(new RegExp(`^${name} at ${HERE}$`))
    })

    it('has none that is something else, or that the function has not signed', async () => {
      const answer = await answered('bug')
      const { place, ...body } = JSON.parse(String(answer.body)) as { place: string; message: string }
      const { 'fairlead-function': _, ...unsigned } = answer.headers
      expect(placeOf(errorOf({ ...answer, headers: unsigned }))).toBeUndefined()
      for (const told of [`${place}\npassword`, 7, place.repeat(50)]) {
        const changed = Buffer.from(JSON.stringify({ ...body, place: told }))
        expect(placeOf(errorOf({ ...answer, body: changed }))).toBeUndefined()
      }
    })
  })
})
