import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { ensureBinaries, natsBinaries, type ProcessGroup, silentProgress } from '#lab'
import { natsCertificates } from '../../cli/install/certificates.ts'
import { freePorts } from '../../packages/lab/ports.ts'
import { STARTS_WITHIN_MS, startTestProcesses } from '../support/servers.ts'
import { until } from '../support/wait.ts'

const PATIENCE = { leastMs: 20 }

const deployed = (name: string) => readFile(new URL(`../../deploy/${name}`, import.meta.url), 'utf8')

let dir: string
let program: string
let processes: ProcessGroup & AsyncDisposable

beforeAll(async () => {
  processes = await startTestProcesses()
  dir = processes.dir
  program = (await ensureBinaries(natsBinaries, silentProgress))('nats-server')
  for (const { metadata, data } of natsCertificates(new Map(), new Date())) {
    await mkdir(join(dir, metadata.name))
    for (const [file, base64] of Object.entries(data))
      await writeFile(join(dir, metadata.name, file), Buffer.from(base64, 'base64'))
  }
})
afterAll(() => processes?.[Symbol.asyncDispose]())

/** Starts a nats-server with this configuration, and returns its log. */
async function start(name: string, config: string): Promise<{ log: () => Promise<string> }> {
  await mkdir(join(dir, name))
  await writeFile(join(dir, name, 'nats.conf'), config)
  await writeFile(join(dir, name, 'users.conf'), await deployed('nats/users.conf'))
  const args = ['--config', join(dir, name, 'nats.conf')]
  await processes.start({ name, command: program, args, env: { POD_NAME: name }, stopSignal: 'SIGKILL' })
  const log = () => readFile(processes.logFile(name), 'utf8')
  await processes.waitFor(name, async () => (await log()).includes('Server is ready'), STARTS_WITHIN_MS, [name])
  return { log }
}

/** As it is deployed, but for addresses and folders. */
async function asDeployed(
  name: string,
  folder: 'nats' | 'fairlead-ha',
  ports: { client: number; route?: number; monitoring: number },
): Promise<string> {
  const [nats, cluster] = await Promise.all([deployed('nats/nats.conf'), deployed(`${folder}/cluster.conf`)])
  return nats
    .replace('include ./cluster.conf', cluster)
    .replaceAll('/etc/nats-tls', join(dir, 'fairlead-nats-server'))
    .replace('store_dir: /data', `store_dir: ${join(dir, name)}`)
    .replace('port: 4222', `listen: 127.0.0.1:${ports.client}`)
    .replace('port: 6222', `listen: 127.0.0.1:${ports.route}`)
    .replace('http: 8222', `http: 127.0.0.1:${ports.monitoring}`)
}

it('a certificate of a server makes a server of a cluster, and that of a client does not', async () => {
  const [client = 0, route = 0, monitoring = 0, ...others] = await freePorts(7)
  const one = await start('one', await asDeployed('one', 'fairlead-ha', { client, route, monitoring }))
  const joining = async (name: string, secret: string) => {
    const tls = `cert_file: ${dir}/${secret}/tls.crt, key_file: ${dir}/${secret}/tls.key, ca_file: ${dir}/${secret}/ca.crt`
    const cluster = `name: fairlead, listen: 127.0.0.1:${others.pop()}, routes: [tls://localhost:${route}], tls { ${tls} }`
    return start(name, `listen: 127.0.0.1:${others.pop()}\ncluster { ${cluster} }`)
  }
  const other = await joining('other', 'fairlead-nats-bridge')
  await until(async () => (await other.log()).includes('Authorization Violation'), PATIENCE)
  expect(await one.log()).toContain('Authentication Failure')
  const server = await joining('server', 'fairlead-nats-server')
  await until(async () => (await server.log()).includes('Route connection created'), PATIENCE)
  expect(await server.log()).not.toContain('Authorization Violation')
})

it('three servers leave one that does not answer', async () => {
  const [client = 0, route = 0, monitoring = 0, otherClient, otherRoute] = await freePorts(5)
  const one = await start('silent-one', await asDeployed('silent-one', 'fairlead-ha', { client, route, monitoring }))
  const [secret, routes] = [join(dir, 'fairlead-nats-server'), `routes: [tls://localhost:${route}]`]
  const tls = `cert_file: ${secret}/tls.crt, key_file: ${secret}/tls.key, ca_file: ${secret}/ca.crt`
  const cluster = `name: fairlead, listen: 127.0.0.1:${otherRoute}, ${routes}, tls { ${tls} }`
  const other = await start('silent', `listen: 127.0.0.1:${otherClient}\ncluster { ${cluster} }`)
  await until(async () => (await other.log()).includes('Route connection created'), PATIENCE)
  processes.signal('silent', 'SIGSTOP')
  // By default, it is kept for more than a minute.
  await until(async () => (await one.log()).includes('Stale Connection'), { ...PATIENCE, timeoutMs: 30_000 })
})

it.each([
  ['three servers confirm nothing that is not on their disks', 'fairlead-ha', { sync_always: true }],
  ['a single server has on its disk what is older than a second', 'nats', { sync_interval: 1e9 }],
] as const)('%s', async (_law, folder, wanted) => {
  const [client = 0, route = 0, monitoring = 0] = await freePorts(3)
  const name = `sync-${folder}`
  await start(name, await asDeployed(name, folder, { client, route, monitoring }))
  const answer = await fetch(`http://127.0.0.1:${monitoring}/varz`)
  const { jetstream } = (await answer.json()) as { jetstream: { config: object } }
  expect(jetstream.config).toMatchObject(wanted)
})
