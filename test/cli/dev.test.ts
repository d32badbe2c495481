import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { pause } from '#primitives'
import { openInBrowser } from '../../cli/commands/console.ts'
import { runReloading } from '../../cli/commands/dev.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { fairlead, LEASHED, startFairlead } from '../support/fairlead.ts'
import { until } from '../support/wait.ts'

let dir: string
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-dev-'))
})
afterEach(() => rm(dir, { recursive: true }))

/** Runs a module of functions repeatedly until the text was printed `count` times. */
async function saidOf(
  text: string,
  count: number,
  onSaid: (said: string, file: string) => unknown = () => undefined,
  { words = ['serve'], env = {} }: { words?: string[]; env?: Record<string, string> } = {},
) {
  const file = join(dir, 'function.ts')
  await writeFile(file, text)
  const stop = new AbortController()
  const said: string[] = []
  const pauses: number[] = []
  const say = (line: string): void => {
    said.push(line.replace(file, 'FILE'))
    if (said.length === count) stop.abort()
    else void onSaid(line, file)
  }
  await runReloading({
    args: () => [...words, '-f', file],
    env: { ...process.env, ...env },
    files: [file],
    say,
    signal: stop.signal,
    wait: async (ms) => void pauses.push(ms),
  })
  return { said, pauses }
}

const WAITS = 'waiting for a change of its files; to try again without one, save a file again'

/** A module with one kind, whose objects have these fields. */
const shop = (fields: string, more = '') =>
  `import { reconciler, resource, z } from ${JSON.stringify(join(import.meta.dirname, '../../sdk/index.ts'))}
   const Shop = resource({ group: 'healing.test', version: 'v1', kind: 'Shop', plural: 'shops',
     spec: z.object({ ${fields} }), status: z.object({}), ${more} })
   export const shop = reconciler({ name: 'shop', for: Shop, reconcile: () => ({}) })`

describe('fairlead dev, whose process ends by itself', () => {
  it('names the signal, and starts it again, each time later', async () => {
    const { said, pauses } = await saidOf(`process.kill(process.pid, 'SIGKILL')`, 3)
    expect(said).toEqual([
      'the process was ended by SIGKILL: starting it again in 1 s, or when its files change',
      'the process was ended by SIGKILL: starting it again in 2 s, or when its files change',
      'the process was ended by SIGKILL: starting it again in 4 s, or when its files change',
    ])
    expect(pauses).toEqual([1000, 2000, 4000])
  })

  it('has another revision after a change of a file, and not after a restart, which then runs no object again', async () => {
    const file = join(dir, 'function.ts')
    await writeFile(file, 'process.exit(5)')
    const stop = new AbortController()
    const revisions: string[] = []
    await runReloading({
      args: (revision) => {
        revisions.push(revision)
        return ['serve', '-f', file]
      },
      env: process.env,
      files: [file],
      say: (line) => {
        if (revisions.length === 4) stop.abort()
        else if (revisions.length === 3 && !line.includes('has changed')) void writeFile(file, 'process.exit(5) //')
      },
      signal: stop.signal,
      wait: (_, signal) => (revisions.length === 3 ? pause(60_000, signal) : Promise.resolve()),
    })
    const [first, second, third, afterChange] = revisions
    expect([second, third]).toEqual([first, first])
    expect(afterChange).not.toBe(first)
  })

  it('names the exit code', async () => {
    const { said } = await saidOf('process.exit(5)', 1)
    expect(said).toEqual(['the process has ended with exit code 5: starting it again in 1 s, or when its files change'])
  })

  it('waits for a change where nothing else can help, and begins with the shortest pause again', async () => {
    const { said } = await saidOf('this is no module', 3, (line, file) =>
      line.includes('waiting') ? writeFile(file, 'process.exit(1)') : undefined,
    )
    expect(said).toEqual([
      `the process has ended with exit code 2: ${WAITS}`,
      'FILE has changed: starting again',
      'the process has ended with exit code 1: starting it again in 1 s, or when its files change',
    ])
  })

  it.each([
    ['a definition cannot express', 'size: z.tuple([z.int()])'],
    ['would break objects that are stored', 'size: z.string()'],
  ])('waits for a change of a schema that %s, which no start heals', async (_, fields) => {
    const before = join(dir, 'before.yaml')
    await writeFile(join(dir, 'before.ts'), shop('size: z.int32()'))
    await writeFile(before, (await fairlead(['generate', 'crds', '-f', join(dir, 'before.ts')])).stdout)
    const words = ['generate', 'crds', '--compatible-with', before]
    const { said, pauses } = await saidOf(shop(fields), 1, undefined, { words })
    expect(said).toEqual([`the process has ended with exit code 1: ${WAITS}`])
    expect(pauses).toEqual([])
  })

  it('waits for a change of a rule that the API server refuses, and starts the changed module', async () => {
    await using cluster = await borrowCluster({ nats: true })
    const rule = (text: string) => shop('size: z.int32()', `validations: [{ rule: '${text}', message: 'too big' }]`)
    const { said, pauses } = await saidOf(
      rule('self.spec.sise < 3'),
      2,
      (line, file) => (line.includes('waiting') ? writeFile(file, rule('self.spec.size < 3')) : undefined),
      {
        words: ['up', '--install'],
        env: { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', LOG_LEVEL: 'silent' },
      },
    )
    expect(said).toEqual([`the process has ended with exit code 3: ${WAITS}`, 'FILE has changed: starting again'])
    expect(pauses).toEqual([])
  })
})

it.skipIf(process.platform === 'win32')(
  'Ctrl-C, which reaches the whole group, reaches the process of dev once',
  async () => {
    const [file, main] = [join(dir, 'function.ts'), join(dir, 'main.ts')]
    await writeFile(file, shop('size: z.int32()'))
    const dev = join(import.meta.dirname, '../../cli/commands/dev.ts')
    await writeFile(
      main,
      `import { runReloading } from ${JSON.stringify(dev)}
     const stop = new AbortController()
     process.on('SIGINT', () => stop.abort())
     const args = () => ['serve', '--port', '0', '-f', ${JSON.stringify(file)}]
     await runReloading({ args, env: process.env, files: [], say: console.log, signal: stop.signal })`,
    )
    const group = spawn(process.execPath, [...LEASHED, main], {
      env: { ...process.env, LOG_FORMAT: 'json' },
      stdio: ['ignore', 'ignore', 'pipe'],
      detached: true,
    })
    let log = ''
    const closed = once(group.stderr, 'close')
    const serving = new Promise<void>((resolve) =>
      group.stderr.on('data', (chunk: Buffer) => {
        log += chunk.toString()
        if (log.includes('"serving"')) resolve()
      }),
    )
    await Promise.race([serving, closed])
    process.kill(-(group.pid ?? 0), 'SIGINT')
    await closed
    expect(log).toContain('"because":"SIGTERM"')
  },
)

it('prints a few plain lines until the example is ready, and the lines of the function', async () => {
  const sdk = join(import.meta.dirname, '../../sdk/index.ts')
  const [file, example] = [join(dir, 'function.ts'), join(dir, 'example.yaml')]
  await writeFile(
    file,
    `import { reconciler, resource, z, ConfigMap } from ${JSON.stringify(sdk)}
     const Shop = resource({ group: 'dev.test', version: 'v1', kind: 'Shop', plural: 'shops',
       spec: z.object({}), status: z.object({}) })
     export const shop = reconciler({ name: 'shop', for: Shop, owns: [ConfigMap], reconcile: ({ log }) => {
       log.info({}, 'the shop opens')
       return { conditions: [{ type: 'Ready', status: 'True', reason: 'Open' }] } } })`,
  )
  await writeFile(example, 'apiVersion: dev.test/v1\nkind: Shop\nmetadata: { name: a, namespace: default }\nspec: {}\n')
  await using cluster = await borrowCluster({ nats: true })
  const servers = ['--kubeconfig', cluster.kubeconfig, '--nats', cluster.nats?.url ?? '']
  const env = { LOG_LEVEL: '', LOG_FORMAT: '' }
  await using dev = startFairlead([...servers, 'dev', '-f', file, '--apply', example], env)
  await dev.logged(({ msg }) => msg.includes('the shop opens'))
  await dev.logged(({ msg }) => msg.includes('Shop default/a: Ready=True'))
  expect(dev.logs.filter(({ level }) => level !== 'raw')).toEqual([])
  expect(dev.logs.length).toBeLessThan(15)
  dev.kill('SIGINT')
  expect((await dev.exited).code).toBe(0)
})

describe('fairlead dev --open', () => {
  it.skipIf(process.platform === 'win32')('gives the address to the program that opens a browser', async () => {
    const opened = join(dir, 'opened')
    for (const name of ['xdg-open', 'open'])
      await writeFile(join(dir, name), `#!/bin/sh\nprintf %s "$1" > ${opened}\nexit 3\n`, { mode: 0o755 })
    openInBrowser('http://127.0.0.1:8484/?token=a', { PATH: dir })
    await until(async () => (await readFile(opened, 'utf8').catch(() => '')) === 'http://127.0.0.1:8484/?token=a')
  })

  it('goes on where there is no such program', async () => {
    openInBrowser('http://127.0.0.1:8484/', { PATH: dir })
    await new Promise((resolve) => setImmediate(resolve))
  })
})
