import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout } from 'node:timers/promises'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { FunctionInput } from '#contracts'
import { type CloudEvent, toHttp } from '#events'
import { type Executable, executable } from '#process/executable'
import { ConflictError, Pod, RetryAfterError, reconciler, resource, TerminalError, toInvoke } from '#sdk'
import { serve } from '#sdk/serve'
import { withEnv } from '../support/env.ts'
import { silent as log } from '../support/silent.ts'

const ROOT = join(import.meta.dirname, '../..')
const LANGUAGES = join(import.meta.dirname, 'languages')
const PYTHONPATH = join(ROOT, 'packages/python/src')
const run = promisify(execFile)

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({ does: z.string() }),
  status: z.object({ phase: z.string() }),
})

const begun = Promise.withResolvers<void>()

/** The function in TypeScript, which `languages/` has in the other languages. */
const shops = reconciler({
  name: 'shops',
  for: Shop,
  owns: [Pod],
  external: {
    read: ({ object: { metadata } }): string[] => [metadata.name],
    perform: ({ kind }: { kind: 'add' | 'drop' }) => (kind === 'add' ? { id: 7 } : undefined),
  },
  async reconcile({ object, refused, owned, now, secret, external }) {
    const { does } = object.spec
    if (does === 'nothing') return undefined
    if (does === 'terminal') throw new TerminalError('too small', { reason: 'TooSmall' })
    if (does === 'refuses') throw new TerminalError('without a word')
    if (does === 'hurries') throw new RetryAfterError('late', { afterSeconds: 0 })
    if (does === 'echoes') return { status: { phase: object.metadata.annotations?.['said'] ?? '' } }
    if (does === 'retry') throw new RetryAfterError('busy', { afterSeconds: 1.2, reason: 'Busy' })
    if (does === 'conflict') throw new ConflictError('moved')
    if (does === 'fails') throw new Error('oops')
    if (does === 'waits') {
      begun.resolve()
      await setTimeout(1000)
    }
    if (does === 'empties') return { apply: [] }
    if (does === 'draws') return { status: { phase: secret('password') } }
    if (does === 'sees') {
      const words = [...refused(Pod).map(({ reason }) => reason), ...owned(Pod).map(({ metadata }) => metadata.name)]
      return { status: { phase: [...words, now.toISOString().replace('.000', ''), ...external].join(' ') } }
    }
    return { status: { phase: 'OPEN' }, requeueAfter: 5 }
  },
})

const metadata = { name: 'a', namespace: 'x', uid: 'u', resourceVersion: '1' }
const owner = { apiVersion: 'example.com/v1', kind: 'Shop', name: 'a', uid: 'u', controller: true }
const inputOf = (does: string, more: object = {}): FunctionInput => ({
  object: { apiVersion: 'example.com/v1', kind: 'Shop', metadata, spec: { does } },
  owned: {},
  related: {},
  attempt: 0,
  now: '2030-01-01T00:00:00Z',
  seed: 'a seed',
  finalizing: false,
  external: ['b'],
  ...more,
})
const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'web-0', namespace: 'x', ownerReferences: [owner] } }
const seen = {
  refused: { 'Pod.v1': [{ name: 'web-1', namespace: 'x', reason: 'Forbidden', message: 'no' }] },
  owned: { 'Pod.v1': [pod] },
}
const going = {
  object: { ...inputOf('opens').object, metadata: { ...metadata, deletionTimestamp: '2030-01-01T00:00:00Z' } },
}

const saying = {
  object: { ...inputOf('echoes').object, metadata: { ...metadata, annotations: { said: 'Köln 𝄞\u2028' } } },
}

const OPEN = { status: { phase: 'OPEN' }, requeueAfterSeconds: 5 }
/** What each language answers: the data and the type of the event, or 204. */
const ANSWERS: [what: string, input: FunctionInput, expected: object | null][] = [
  ['an outcome', inputOf('opens'), OPEN],
  ['nothing to do', inputOf('nothing'), {}],
  ['an object that is gone', inputOf('opens', { object: null }), {}],
  ['an object that goes without its finalizer', inputOf('opens', going), {}],
  ['an empty set', inputOf('empties'), { apply: [] }],
  ['in the letters that it was asked in', inputOf('echoes', saying), { status: { phase: 'Köln 𝄞\u2028' } }],
  ['what it has seen', inputOf('sees', seen), { status: { phase: 'Forbidden web-0 2030-01-01T00:00:00Z b' } }],
  ['a read', inputOf('opens', { ask: 'read' }), ['a']],
  ['an effect', inputOf('opens', { ask: 'perform', effect: { kind: 'add' } }), { id: 7 }],
  ['an effect without a result', inputOf('opens', { ask: 'perform', effect: { kind: 'drop' } }), null],
]
const ERRORS: [does: string, code: number, retryAfter: string | null, reason: string | undefined, message: string][] = [
  ['terminal', 422, null, 'TooSmall', 'too small'],
  ['retry', 429, '2', 'Busy', 'busy'],
  ['conflict', 409, null, 'Conflict', 'moved'],
  ['fails', 500, null, undefined, 'oops'],
  ['refuses', 422, null, 'TerminalError', 'without a word'],
  ['hurries', 429, '0', 'RetryAfter', 'late'],
]

const typeOf = ({ ask }: FunctionInput) => `dev.fairlead.${ask ?? 'reconcile'}`
const eventOf = (data: object, type = 'dev.fairlead.reconcile'): CloudEvent => ({
  specversion: '1.0',
  id: '1',
  source: 'https://c/apis/fairlead.dev/v1alpha1/reconcilers/shops',
  type,
  datacontenttype: 'application/json',
  data,
})

let dir: string
let program: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-languages-'))
  program = join(dir, 'shops')
  await run('go', ['build', '-o', program, '.'], { cwd: join(LANGUAGES, 'go') })
})
afterAll(() => rm(dir, { recursive: true, force: true }))

interface Server extends AsyncDisposable {
  port: number
  /** Resolves when the function is called for a shop that `waits`. */
  waits: Promise<unknown>
  /** Resolves with the exit code. */
  end: () => Promise<unknown>
}

async function started(command: string, args: string[]): Promise<Server> {
  const env = { ...process.env, PYTHONPATH, PORT: '0' }
  const child = spawn(command, args, { env, stdio: ['ignore', 'ignore', 'pipe'] })
  const exited = once(child, 'exit')
  const lines = createInterface(child.stderr)
  const [line] = (await once(lines, 'line')) as [string]
  const waits = new Promise<void>((resolve) => lines.on('line', (said) => said.endsWith('waits') && resolve()))
  const end = async () => {
    child.kill('SIGTERM')
    return ((await exited) as [number | null])[0]
  }
  const dispose = async () => {
    child.kill('SIGKILL')
    await exited
  }
  return { port: Number(/\d+$/.exec(line)?.[0]), waits, end, [Symbol.asyncDispose]: dispose }
}

const SERVERS: Record<string, () => Promise<Server>> = {
  async TypeScript() {
    const server = await serve(shops, { port: 0, host: '127.0.0.1', log })
    return {
      port: server.port,
      waits: begun.promise,
      end: async () => (await server.stop(10_000)) ?? 0,
      [Symbol.asyncDispose]: () => server.stop(0),
    }
  },
  Python: () => started('python3', [join(LANGUAGES, 'shops.py')]),
  Go: () => started(program, []),
}

describe.each(Object.keys(SERVERS))('a function in %s over HTTP', (language) => {
  let server: Server
  beforeAll(async () => {
    server = (await SERVERS[language]?.()) as Server
  })
  afterAll(() => server?.[Symbol.asyncDispose]())
  const url = () => `http://127.0.0.1:${server.port}`
  const post = (event: CloudEvent, mode: 'binary' | 'structured' = 'binary') => {
    const { headers, body } = toHttp(event, mode)
    // Of a body that it has whole, fetch repeats a request that is answered with 421, and sometimes without its body.
    return fetch(url(), { method: 'POST', headers, body: new Blob([Buffer.from(body)]).stream(), duplex: 'half' })
  }

  it.each(ANSWERS)('answers %s', async (_, input, expected) => {
    for (const mode of ['binary', 'structured'] as const) {
      const answer = await post(eventOf(input, typeOf(input)), mode)
      expect(answer.headers.get('fairlead-function')).toBe('shops')
      const isEmpty = expected === null || Object.keys(expected).length === 0
      expect(answer.status).toBe(isEmpty ? 204 : 200)
      if (isEmpty) continue
      const [type, field] = { read: ['external', 'external'], perform: ['result', 'result'], reconcile: ['outcome'] }[
        input.ask ?? 'reconcile'
      ] as [string, string?]
      expect([answer.headers.get('ce-specversion'), answer.headers.get('ce-type')]).toEqual([
        '1.0',
        `dev.fairlead.${type}`,
      ])
      expect(await answer.json()).toEqual(field === undefined ? expected : { [field]: expected })
    }
  })

  it.each(ERRORS)(
    'says with its status what a failure leads to: %s',
    async (does, code, retryAfter, reason, message) => {
      const answer = await post(eventOf(inputOf(does)))
      expect([answer.status, answer.headers.get('retry-after')]).toEqual([code, retryAfter])
      expect(answer.headers.get('fairlead-function')).toBe('shops')
      const body = (await answer.json()) as { reason?: string; message: string }
      expect(body).toMatchObject({ ...(reason && { reason }), message: expect.stringContaining(message) as string })
      expect(body.reason).toBe(reason)
    },
  )

  it.skipIf(language === 'TypeScript')('says that an outcome is no JSON', async () => {
    const answer = await post(eventOf(inputOf('overflows')))
    expect([answer.status, answer.headers.get('fairlead-function')]).toEqual([500, 'shops'])
    expect(await answer.text()).toMatch(/float|NaN/)
  })

  it.each([
    ['a finalizer that it does not have', eventOf(inputOf('opens', { ...going, finalizing: true })), 500, 'finalize'],
    ['another type', eventOf(inputOf('opens'), 'dev.example.other'), 422, 'dev.example.other is nothing to reconcile'],
    ['a run without an object', eventOf({ now: '2030-01-01T00:00:00Z' }), 422, '`object`'],
    [
      'the Reconciler of another function',
      { ...eventOf(inputOf('opens')), source: '/reconcilers/carts' },
      421,
      'this is shops, not carts',
    ],
  ])('refuses %s', async (_, event, code, message) => {
    const answer = await post(event)
    expect(answer.status).toBe(code)
    expect(await answer.text()).toContain(message)
  })

  it.each([
    ['no event', { 'content-type': 'application/json' }, '{}'],
    [
      'no JSON',
      { 'content-type': 'application/json', 'ce-specversion': '1.0', 'ce-type': 'dev.fairlead.reconcile' },
      '{',
    ],
    ['a broken event', { 'content-type': 'application/cloudevents+json' }, '{'],
  ])('does not take %s', async (_, headers, body) => {
    const answer = await fetch(url(), { method: 'POST', headers, body })
    expect([answer.status, answer.headers.get('fairlead-function')]).toEqual([400, 'shops'])
    expect(await answer.json()).toMatchObject({ reason: 'InvalidEvent' })
  })

  it('answers probes, and nothing elsewhere', async () => {
    const codes = await Promise.all(
      ['/health/liveness', '/health/readiness', '/', '/elsewhere'].map((path) => fetch(url() + path)),
    )
    expect(codes.map(({ status }) => status)).toEqual([200, 200, 405, 404])
  })

  it('takes a request in parts, and refuses one that is too large before it has read it', async () => {
    const { headers, body } = toHttp(eventOf(inputOf('opens')))
    const parts = new ReadableStream({
      start(controller) {
        for (let at = 0; at < body.length; at += 50) controller.enqueue(body.slice(at, at + 50))
        controller.close()
      },
    })
    const answer = await fetch(url(), { method: 'POST', headers, body: parts, duplex: 'half' })
    expect(await answer.json()).toEqual(OPEN)
    const socket = connect(server.port, '127.0.0.1')
    const lines = ['POST / HTTP/1.1', 'Host: x', 'ce-specversion: 1.0', 'ce-type: dev.fairlead.reconcile']
    socket.write([...lines, 'Content-Length: 1000000000', '', 'x'.repeat(100)].join('\r\n'))
    let said = ''
    socket.on('data', (chunk: Buffer) => {
      said += chunk.toString()
      if (said.includes('33554432 bytes')) socket.destroy()
    })
    // A server that reads on would never answer.
    await once(socket, 'close')
    expect(said).toMatch(/^HTTP\/1\.[01] 413 /)
  })

  it('refuses a length that no request can have', async () => {
    const socket = connect(server.port, '127.0.0.1')
    socket.write(
      ['POST / HTTP/1.1', 'Host: x', 'ce-type: dev.fairlead.reconcile', 'Content-Length: -5', '', ''].join('\r\n'),
    )
    const [said] = (await once(socket, 'data')) as [Buffer]
    expect(said.toString()).toMatch(/^HTTP\/1\.[01] 400 /)
    socket.destroy()
  })

  // The last one, for it ends the server.
  it('lets a call end at SIGTERM', async () => {
    const answer = post(eventOf(inputOf('waits')))
    await server.waits
    const ended = server.end()
    expect(await (await answer).json()).toEqual(OPEN)
    expect(await ended).toBe(0)
  })
})

describe.each([
  ['Python', false],
  ['Python', true],
  ['Go', false],
  ['Go', true],
])('a program in %s, with lines: %s', (language, lines) => {
  let one: Executable
  beforeAll(() => {
    using _env = withEnv({ PYTHONPATH, PYTHONIOENCODING: 'latin-1' })
    const command = language === 'Go' ? program : join(LANGUAGES, 'shops.py')
    one = executable({
      command,
      lines,
      timeoutSeconds: 60,
      concurrency: 1,
      variables: ['PYTHONPATH', 'PYTHONIOENCODING'],
    })
  })
  afterAll(() => one?.stop())
  const ask = (input: FunctionInput) => one.invoke(input, { log, signal: new AbortController().signal })

  it.each(ANSWERS)('answers %s', async (_, input, expected) => {
    expect(await ask(input)).toEqual(expected)
  })

  it.each(ERRORS)('reports what a failure leads to: %s', async (does, code, _, reason, message) => {
    const name = { 422: 'TerminalError', 429: 'RetryAfterError' }[code] ?? 'Error'
    const expected = {
      name,
      message: expect.stringContaining(message) as string,
      ...(code < 500 && code !== 409 && { reason }),
    }
    await expect(ask(inputOf(does))).rejects.toMatchObject(expected)
  })

  it('goes on after an outcome that is no JSON, and reports it', async () => {
    await expect(ask(inputOf('overflows'))).rejects.toThrow(/float|NaN/)
    expect(await ask(inputOf('opens'))).toEqual(OPEN)
  })

  it('draws the same values as one in TypeScript', async () => {
    const input = inputOf('draws')
    expect(await ask(input)).toEqual(await toInvoke(shops)(input, { log, signal: new AbortController().signal }))
  })
})

it('the library for Go is used as its page says, and a program with it is built without the clone', async () => {
  const page = await readFile(join(ROOT, 'packages/go/README.md'), 'utf8')
  const [, source = ''] = /```go\n(.*?)```/s.exec(page) ?? []
  const [, commands = ''] = /\n((?: {4}.*\n)+)\n`go mod vendor`/.exec(page) ?? []
  const [clone, folder] = [join(dir, 'fairlead'), join(dir, 'website')]
  await mkdir(folder)
  await writeFile(join(folder, 'main.go'), source)
  await symlink(ROOT, clone)
  await run('bash', ['-ec', commands], { cwd: dir })
  await Promise.all([rm(clone), rm(join(folder, 'website'))])
  await run('go', ['build'], { cwd: folder })
  const website = executable({
    command: join(folder, 'website'),
    lines: true,
    timeoutSeconds: 60,
    concurrency: 1,
    variables: [],
  })
  const object = { ...inputOf('').object, spec: { html: '<script>' } } as FunctionInput['object']
  try {
    const answer = website.invoke(inputOf('', { object }), { log, signal: new AbortController().signal })
    await expect(answer).rejects.toMatchObject({ name: 'TerminalError', reason: 'ScriptInPage' })
  } finally {
    await website.stop()
  }
})

it('rows of decisions in Python hold, or name the difference', async () => {
  const { stdout } = await run('python3', [join(LANGUAGES, 'shops.py'), 'test'], {
    env: { ...process.env, PYTHONPATH },
  })
  expect(stdout).toContain("outcome.status.phase: expected 'SHUT', returned 'OPEN'")
  expect(stdout).toContain('outcome.apply: expected [], returned None')
})

it('rows of decisions in Go hold, or name the difference', async () => {
  const failed = (await run('go', ['test', '.'], { cwd: join(LANGUAGES, 'go') }).catch((error: unknown) => error)) as {
    stdout: string
  }
  expect(failed.stdout).toContain('outcome.status.phase: expected SHUT, returned OPEN')
  expect(failed.stdout).not.toContain('--- FAIL: TestShops')
})
