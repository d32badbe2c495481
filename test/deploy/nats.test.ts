import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { ensureBinaries, natsBinaries, silentProgress } from '#local'
import { natsCertificates } from '../../cli/certificates.ts'
import { freePorts } from '../../local/ports.ts'
import { shortTempDir } from '../support/servers.ts'
import { untilHolds } from '../support/wait.ts'

const PATIENCE = { leastMs: 20 }

const deployed = (name: string) => readFile(new URL(`../../deploy/${name}`, import.meta.url), 'utf8')

let dir: string
let program: string
const running: ChildProcess[] = []

beforeAll(async () => {
  dir = await shortTempDir()
  program = (await ensureBinaries(natsBinaries, silentProgress))('nats-server')
  for (const { metadata, data } of natsCertificates(new Map(), new Date())) {
    await mkdir(join(dir, metadata.name))
    for (const [file, base64] of Object.entries(data))
      await writeFile(join(dir, metadata.name, file), Buffer.from(base64, 'base64'))
  }
})
afterAll(async () => {
  for (const child of running) {
    child.kill('SIGKILL')
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  }
  await rm(dir, { recursive: true, force: true })
})

/** What a nats-server with this configuration says. */
async function start(name: string, config: string): Promise<{ log: () => string }> {
  await mkdir(join(dir, name))
  await writeFile(join(dir, name, 'nats.conf'), config)
  await writeFile(join(dir, name, 'users.conf'), await deployed('nats/users.conf'))
  const child = spawn(program, ['--config', join(dir, name, 'nats.conf')], { env: { POD_NAME: name } })
  running.push(child)
  let log = ''
  child.stderr.on('data', (chunk: Buffer) => (log += chunk.toString()))
  await untilHolds(() => log.includes('Server is ready'), PATIENCE)
  return { log: () => log }
}

/** As it is deployed, but for addresses and folders. */
async function asDeployed(name: string, ports: { client: number; route: number }): Promise<string> {
  const [nats, cluster] = await Promise.all([deployed('nats/nats.conf'), deployed('fairlead-ha/cluster.conf')])
  return nats
    .replace('include ./cluster.conf', cluster)
    .replaceAll('/etc/nats-tls', join(dir, 'fairlead-nats-server'))
    .replace('store_dir: /data', `store_dir: ${join(dir, name)}`)
    .replace('port: 4222', `listen: 127.0.0.1:${ports.client}`)
    .replace('port: 6222', `listen: 127.0.0.1:${ports.route}`)
    .replace('http: 8222', '')
}

it('a certificate of a server makes a server of a cluster, and that of a client does not', async () => {
  const [client = 0, route = 0, ...others] = await freePorts(6)
  const one = await start('one', await asDeployed('one', { client, route }))
  const joining = async (name: string, secret: string) => {
    const tls = `cert_file: ${dir}/${secret}/tls.crt, key_file: ${dir}/${secret}/tls.key, ca_file: ${dir}/${secret}/ca.crt`
    const cluster = `name: fairlead, listen: 127.0.0.1:${others.pop()}, routes: [tls://localhost:${route}], tls { ${tls} }`
    return start(name, `listen: 127.0.0.1:${others.pop()}\ncluster { ${cluster} }`)
  }
  const other = await joining('other', 'fairlead-nats-bridge')
  await untilHolds(() => other.log().includes('Authorization Violation'), PATIENCE)
  expect(one.log()).toContain('Authentication Failure')
  const server = await joining('server', 'fairlead-nats-server')
  await untilHolds(() => server.log().includes('Route connection created'), PATIENCE)
  expect(server.log()).not.toContain('Authorization Violation')
})
