import { createServer, get } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'

describe('serving a function', () => {
  it.each([
    [['serve'], {}, 'select a function: at'],
    [['serve', 'nope'], {}, 'there is no function nope, but at'],
    [['serve', '-f', '/nope'], {}, 'there is no function module /nope'],
    [['serve', 'at', '--port', '99999'], {}, 'whole number from 0 to 65535'],
    [['serve', 'at'], { PORT: 'web' }, "value 'web' from env 'PORT'"],
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
