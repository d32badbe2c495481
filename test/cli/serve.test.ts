import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, get } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'
import { until } from '../support/wait.ts'

describe('serving a function', () => {
  it.each([
    [['serve'], {}, 'select a function: at'],
    [['serve', 'nope'], {}, 'there is no function nope, but at'],
    [['serve', '-f', '/nope'], {}, 'there is no function module /nope'],
    [['serve', 'at', '--port', '99999'], {}, 'whole number from 0 to 65535'],
    [['serve', 'at'], { PORT: 'web' }, "value 'web' from env 'PORT'"],
    [['serve', '--exec', 'cat'], {}, 'fairlead serve NAME --exec PROGRAM'],
    [['serve', 'shops', '--exec', './nope'], {}, 'there is no program ./nope'],
    [['serve', 'shops', '--exec', 'cat', '-f', 'x.ts'], {}, "cannot be used with option '-f, --function <file>'"],
    [['serve', 'shops', '--exec', 'cat', '--config', '/x'], {}, "cannot be used with option '--config <folder>'"],
    [['serve', 'at', '--lines'], {}, '--lines is for programs: give the program with --exec'],
    [['serve', 'at'], { LOG_LEVEL: 'loud' }, 'LOG_LEVEL is "loud"'],
    [['admit', '--builtin', 'at'], {}, '--tls'],
    [['admit', '--builtin', 'at', '--tls', '/nope'], {}, 'no resource of these functions has a conversion'],
    [['generate', 'knative'], {}, '--image'],
    [['generate', 'knative', 'nope', '--image', 'x'], {}, 'there is no function nope'],
  ])('%j with %j ends with 2', async (args, env, message) => {
    expect(await command(args, env)).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining(message) })
  })

  it('ends with 2 where its port is taken', async () => {
    const server = createServer().listen(0)
    await new Promise((resolve) => server.once('listening', resolve))
    const { port } = server.address() as AddressInfo
    const ended = await command(['serve', 'at', '--port', String(port)])
    server.close()
    expect(ended).toMatchObject({ code: 2, stderr: expect.stringContaining(`cannot listen on port ${port}`) })
  })

  it('answers on PORT until SIGTERM, and then ends with 0', async () => {
    await using at = startFairlead(['serve', 'at'], { PORT: '0' })
    const { port } = await at.logged(({ msg }) => msg === 'serving')
    expect((await fetch(`http://127.0.0.1:${port}/health/readiness`)).status).toBe(200)
    at.kill('SIGTERM')
    expect((await at.exited).code).toBe(0)
  })
})

describe('serving a program', () => {
  const event = {
    'content-type': 'application/json',
    'ce-specversion': '1.0',
    'ce-id': '1',
    'ce-source': '/d',
    'ce-type': 'dev.fairlead.reconcile',
  }
  const ask = (port: unknown) => {
    const body = JSON.stringify({ object: { metadata: { name: 'a' } }, now: '2030-01-01T00:00:00Z' })
    return fetch(`http://127.0.0.1:${port}`, { method: 'POST', headers: event, body })
  }
  let dir: string
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'fl-serve-'))
  })
  afterAll(() => rm(dir, { recursive: true, force: true }))
  const script = async (name: string, lines: string): Promise<string> => {
    const path = join(dir, name)
    await writeFile(path, `#!/bin/sh\n${lines}\n`, { mode: 0o755 })
    return path
  }
  const isThere = async (pidFile: string): Promise<boolean> => {
    try {
      return process.kill(Number(await readFile(pidFile, 'utf8')), 0)
    } catch {
      return false
    }
  }

  it('answers by it, with its name, log lines of the run, and consequences', async () => {
    const path = await script(
      'decides',
      `echo 'I decide' >&2; [ -e ${dir}/fails ] && exit 4; echo '{"status":{"phase":"OPEN"}}'`,
    )
    await using shops = startFairlead(['serve', 'shops', '--exec', path, '--revision', 'r1'], { PORT: '0' })
    const { port } = await shops.logged(({ msg }) => msg === 'serving')
    const answer = await ask(port)
    const headers = ['ce-type', 'fairlead-function', 'fairlead-revision'].map((name) => answer.headers.get(name))
    expect([answer.status, ...headers]).toEqual([200, 'dev.fairlead.outcome', 'shops', 'r1'])
    expect(await answer.json()).toEqual({ status: { phase: 'OPEN' } })
    expect(await shops.logged(({ msg }) => msg === 'I decide')).toMatchObject({ reconciler: 'shops', key: 'a' })
    await writeFile(join(dir, 'fails'), '')
    const failed = await ask(port)
    expect([failed.status, await failed.json()]).toEqual([500, { message: `${path} ended with exit code 4` }])
  })

  it('lets a call end at SIGTERM, ends the processes, and ends with 0', async () => {
    const lines = `echo $$ > ${dir}/stays.pid; while read -r line; do
      touch ${dir}/called; while [ ! -e ${dir}/go ]; do sleep 0.05; done; echo '{"id":1,"status":{}}'; done; sleep 1000`
    const args = ['serve', 'shops', '--exec', await script('stays', lines), '--lines']
    await using shops = startFairlead(args, { PORT: '0' })
    const { port } = await shops.logged(({ msg }) => msg === 'serving')
    const answer = ask(port)
    await until(() => existsSync(join(dir, 'called')))
    shops.kill('SIGTERM')
    await until(() =>
      fetch(`http://127.0.0.1:${port}`).then(
        () => false,
        () => true,
      ),
    )
    await writeFile(join(dir, 'go'), '')
    expect((await answer).status).toBe(200)
    expect((await shops.exited).code).toBe(0)
    await until(async () => !(await isThere(join(dir, 'stays.pid'))))
  })

  it('leaves no process behind if a second signal ends it at once', async () => {
    const lines = `echo $$ > ${dir}/stuck.pid; sleep 1000`
    await using shops = startFairlead(['serve', 'shops', '--exec', await script('stuck', lines)], { PORT: '0' })
    const { port } = await shops.logged(({ msg }) => msg === 'serving')
    const answer = ask(port).catch(() => undefined)
    await until(() => isThere(join(dir, 'stuck.pid')))
    shops.kill('SIGTERM')
    await until(() =>
      fetch(`http://127.0.0.1:${port}`).then(
        () => false,
        () => true,
      ),
    )
    shops.kill('SIGTERM')
    expect((await shops.exited).code).toBe(130)
    await answer
    await until(async () => !(await isThere(join(dir, 'stuck.pid'))))
  })
})

it('lives on, whatever path it is asked for', async () => {
  await using at = startFairlead(['serve', 'at'], { PORT: '0' })
  const { port } = await at.logged(({ msg }) => msg === 'serving')
  const ask = (path: string): Promise<number | undefined> =>
    new Promise((resolve, reject) =>
      get({ port: Number(port), path }, (response) => resolve(response.resume().statusCode)).on('error', reject),
    )
  for (const path of ['//', '//[', '/\\', 'http://', '*', '/?x']) await ask(path).catch(() => undefined)
  expect([await ask('//'), await ask('/health/readiness?x')]).toEqual([404, 200])
})

it('generates a Service and its Reconciler for each function', async () => {
  const { stdout } = await command([
    'generate',
    'knative',
    'at',
    '--image',
    'x:1',
    '-n',
    'fns',
    '--module',
    '/app/x.ts',
  ])
  const made = parseAllDocuments(stdout).map((document) => document.toJS() as object)
  expect(made).toMatchObject([
    { kind: 'Service', metadata: { name: 'at', namespace: 'fns' } },
    { kind: 'Reconciler', spec: { invoke: { http: { url: 'http://at.fns.svc.cluster.local' } } } },
  ])
})
