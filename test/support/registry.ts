import { spawn } from 'node:child_process'
import { randomUUID, sign } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { ensureBinaries, issueFrom, newAuthority, silentProgress } from '#lab'
import { startHttpReceiver } from './http-receiver.ts'

/** The user of a registry with `basic` or `token`; the name and the password are those of a known bcrypt hash. */
export const REGISTRY_USER = { username: 'alice', password: 'U*U' }
const HTPASSWD = 'alice:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n'

export interface TestRegistry extends AsyncDisposable {
  /** `127.0.0.1:PORT` */
  host: string
}

/** The registry that many run. */
export async function startRegistry(auth: 'none' | 'basic' | 'token' = 'none'): Promise<TestRegistry> {
  const stack = new AsyncDisposableStack()
  const dir = await mkdtemp(join(tmpdir(), 'fl-registry-'))
  stack.defer(() => rm(dir, { recursive: true, force: true }))
  const config = {
    version: '0.1',
    log: { level: 'info', formatter: 'json', accesslog: { disabled: true } },
    // The driver in memory copies what it has at each piece that comes: 45 s for a base image.
    storage: { filesystem: { rootdirectory: join(dir, 'data') } },
    http: { addr: '127.0.0.1:0' },
    ...(auth === 'basic' && { auth: { htpasswd: { realm: 'test', path: await htpasswd(dir) } } }),
    ...(auth === 'token' && { auth: { token: await tokens(dir, stack) } }),
  }
  const file = join(dir, 'registry.json')
  await writeFile(file, JSON.stringify(config))
  const program = (await ensureBinaries(['registry'], silentProgress))('registry')
  const child = spawn(program, ['serve', file], { stdio: ['ignore', 'ignore', 'pipe'] })
  stack.defer(async () => {
    child.kill('SIGKILL')
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  })
  const lines: string[] = []
  for await (const line of createInterface(child.stderr)) {
    lines.push(line)
    const host = /listening on (127\.0\.0\.1:\d+)/.exec(line)?.[1]
    if (host === undefined) continue
    child.stderr.resume()
    return { host, [Symbol.asyncDispose]: () => stack.disposeAsync() }
  }
  await stack.disposeAsync()
  throw new Error(`the registry has not started:\n${lines.join('\n')}`)
}

async function htpasswd(dir: string): Promise<string> {
  const file = join(dir, 'htpasswd')
  await writeFile(file, HTPASSWD)
  return file
}

/**
 * Starts a token service as registries have them: it grants pull to all clients, and push to clients with a name and a
 * password.
 */
async function tokens(dir: string, stack: AsyncDisposableStack): Promise<object> {
  const days = { now: new Date(), days: 1 }
  const authority = newAuthority({ cn: 'tokens' }, days)
  const leaf = issueFrom(authority, { subject: { cn: 'tokens' }, sans: ['tokens'] }, days)
  const rootcertbundle = join(dir, 'ca.pem')
  await writeFile(rootcertbundle, authority.certificate)
  const [service, issuer] = ['test-registry', 'test-tokens']
  const known = `Basic ${Buffer.from(`${REGISTRY_USER.username}:${REGISTRY_USER.password}`).toString('base64')}`
  const receiver = await startHttpReceiver((request, response) => {
    const { searchParams } = new URL(request.url ?? '', 'http://x')
    const given = request.headers.authorization
    if (given !== undefined && given !== known) return void response.writeHead(401).end()
    const access = searchParams.getAll('scope').map((scope) => {
      const [type = '', name = '', actions = ''] = scope.split(':')
      return { type, name, actions: actions.split(',').filter((one) => one === 'pull' || given === known) }
    })
    const now = Math.floor(Date.now() / 1000)
    const claims = {
      iss: issuer,
      aud: service,
      sub: '',
      iat: now,
      nbf: now - 5,
      exp: now + 60,
      jti: randomUUID(),
      access,
    }
    const der = leaf.certificate.replaceAll(/-----.*-----|\s/g, '')
    const text = [{ typ: 'JWT', alg: 'ES256', x5c: [der] }, claims].map(base64url).join('.')
    const signature = sign('sha256', Buffer.from(text), { key: leaf.privateKey, dsaEncoding: 'ieee-p1363' })
    response.end(JSON.stringify({ token: `${text}.${signature.toString('base64url')}` }))
  })
  stack.defer(() => receiver[Symbol.asyncDispose]())
  return { realm: `${receiver.url}/token`, service, issuer, rootcertbundle }
}

const base64url = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')
