import { execFile } from 'node:child_process'
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer as createHttpServer, type IncomingMessage } from 'node:http'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { KubeConfig } from '@kubernetes/client-node'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { stringify } from 'yaml'
import {
  type ClusterAccess,
  createKubeClient,
  kubeConfigPaths,
  loadForeignKubeConfig,
  loadInCluster,
  loadKubeConfig,
} from '#kube'
import { createPki, type Pki } from '../../packages/lab/pki.ts'
import { json, startScriptedServer } from './scripted-server.ts'

let dir: string
let pki: Pki
let files = 0
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-kubeconfig-'))
  pki = await createPki(join(dir, 'pki'))
})
afterAll(() => rm(dir, { recursive: true }))

async function write(content: unknown): Promise<string> {
  const path = join(dir, `config-${files++}`)
  await writeFile(path, typeof content === 'string' ? content : stringify(content))
  return path
}
const config = (user: object, cluster: object = {}) => ({
  'current-context': 'lab',
  clusters: [{ name: 'c', cluster: { server: 'https://127.0.0.1:6443', ...cluster } }],
  users: [{ name: 'u', user }],
  contexts: [{ name: 'lab', context: { cluster: 'c', user: 'u', namespace: 'n' } }],
})
const load = async (content: unknown, more: object = {}) => loadKubeConfig({ paths: [await write(content)], ...more })

/** Loads a kubeconfig that both support, and requires what KubeConfig of @kubernetes/client-node gives. */
async function loadAsLibrary(content: object, more: { context?: string } = {}): Promise<ClusterAccess> {
  const access = await load(content, more)
  const library = new KubeConfig()
  library.loadFromFile(await write(content))
  if (more.context !== undefined) library.setCurrentContext(more.context)
  const cluster = library.getCurrentCluster()
  const options: { headers: Record<string, string>; ca?: Buffer; cert?: Buffer | string; key?: Buffer | string } = {
    headers: {},
  }
  await library.applyToHTTPSOptions(options)
  const { Authorization: authorization, 'Impersonate-User': user } = options.headers
  const token = await access.token?.()
  expect({
    server: access.server,
    proxy: access.proxy,
    insecure: access.insecure,
    serverName: access.serverName,
    namespace: access.namespace,
    token: token && `Bearer ${token}`,
    user: access.headers?.['impersonate-user'],
  }).toEqual({
    server: cluster?.server,
    proxy: cluster?.proxyUrl,
    insecure: cluster?.skipTLSVerify ?? false,
    serverName: cluster?.tlsServerName,
    namespace: library.getContextObject(library.getCurrentContext())?.namespace,
    token: authorization,
    user,
  })
  const { ca, cert, key } = options
  expect([access.ca, access.cert, access.key]).toEqual([ca, cert, key].map((one) => one?.toString()))
  return access
}
const failureOf = async (content: unknown, more: object = {}): Promise<string> =>
  load(content, more).then(() => 'no error', String)

describe('a kubeconfig', () => {
  it('is looked for in the home folder when KUBECONFIG is not set', () => {
    expect(kubeConfigPaths(undefined, '/home/ann')).toEqual([join('/home/ann', '.kube', 'config')])
    expect(kubeConfigPaths('', '/home/ann')).toEqual([join('/home/ann', '.kube', 'config')])
    expect(kubeConfigPaths(['/a', '', 'b'].join(delimiter), '/home/ann')).toEqual(['/a', 'b'])
  })

  it('gives server, authority, certificate and namespace, from the text itself or from files beside it', async () => {
    const { certFile, keyFile } = await pki.issue('ann', { cn: 'ann' })
    const base64 = async (file: string) => (await readFile(file)).toString('base64')
    const inline = await loadAsLibrary(
      config(
        { 'client-certificate-data': await base64(certFile), 'client-key-data': await base64(keyFile) },
        { 'certificate-authority-data': await base64(pki.caFile), 'tls-server-name': 'kubernetes' },
      ),
    )
    const beside = await loadAsLibrary(
      config(
        { 'client-certificate': 'pki/ann.crt', 'client-key': 'pki/ann.key' },
        { 'certificate-authority': 'pki/ca.crt', 'insecure-skip-tls-verify': true },
      ),
    )
    const cert = await readFile(certFile, 'utf8')
    expect(inline).toMatchObject({ server: 'https://127.0.0.1:6443', ca: pki.caPem, cert, serverName: 'kubernetes' })
    expect(inline).toMatchObject({ namespace: 'n', insecure: false, origin: expect.stringContaining('context lab of') })
    expect(beside).toMatchObject({ ca: pki.caPem, cert, key: inline.key, insecure: true })
  })

  it('gives a token, or that of a file which is read again when a minute old or rejected', async () => {
    expect(await (await loadAsLibrary(config({ token: 't' }))).token?.()).toBe('t')

    await writeFile(join(dir, 'token'), 'one\n')
    let time = 0
    const { token } = await load(config({ token: 't', tokenFile: 'token' }), { now: () => time })
    expect(await token?.()).toBe('one')
    await writeFile(join(dir, 'token'), 'two\n')
    expect(await token?.()).toBe('one')
    expect(await token?.('one')).toBe('two')
    await writeFile(join(dir, 'token'), 'three\n')
    time = 59_999
    expect(await token?.()).toBe('two')
    time = 60_000
    expect(await token?.()).toBe('three')
    await writeFile(join(dir, 'token'), '')
    await expect(token?.('three')).rejects.toThrow(`the token file ${join(dir, 'token')} is empty`)
  })

  it('may lie in several files, of which the first to name a thing decides it', async () => {
    const first = await write({ 'current-context': 'lab', users: [{ name: 'u', user: { token: 'first' } }] })
    const second = await write({ ...config({ token: 'second' }), 'current-context': 'other' })
    const access = await loadKubeConfig({ paths: [join(dir, 'missing'), first, second] })
    expect([access.server, await access.token?.()]).toEqual(['https://127.0.0.1:6443', 'first'])
    expect(access.origin).toBe(`context lab of ${second}`)
  })

  it('gives the context that is asked for, also one without a user', async () => {
    const contexts = [{ name: 'open', context: { cluster: 'c' } }]
    const access = await loadAsLibrary({ ...config({ token: 't' }), contexts }, { context: 'open' })
    expect(access.token).toBeUndefined()
  })
})

describe('a kubeconfig that cannot be used', () => {
  it.each([
    ['is not YAML', 'a: [', {}, /config-\d+ is not valid YAML: .*line 1/],
    ['is another thing', 'hello', {}, /config-\d+ is not a kubeconfig: /],
    ['has a wrong field', { contexts: [{ name: 1 }] }, {}, /is not a kubeconfig: [^]*contexts\[0\]/],
    ['has no current context', { contexts: [] }, {}, /has no current-context; name a context/],
    ['lacks the context', config({}), { context: 'prod' }, /has no context prod; it has lab/],
    ['lacks the cluster', { ...config({}), clusters: [] }, {}, /has no cluster c; it has none/],
    ['lacks the user', { ...config({}), users: null }, {}, /has no user u; it has none/],
    ['has no server', config({}, { server: '' }), {}, /cluster c of .* has no server/],
    ['has no proxy that is known', config({}, { 'proxy-url': 'ftp://p' }), {}, /it begins with http:\/\/, https:/],
    ['has a password', config({ username: 'a' }), {}, /stopped to accept in Kubernetes 1.19/],
    ['impersonates nobody', config({ 'as-groups': ['b'] }), {}, /impersonates groups or a uid without a user/],
    ['has more of another user', config({ as: 'b', 'as-user-extra': { c: ['d'] } }), {}, /as-user-extra, which is not/],
    ['has half a certificate', config({ 'client-key': 'pki/ca.key' }), {}, /the certificate is missing/],
    ['names a missing file', config({}, { 'certificate-authority': 'no.crt' }), {}, /cannot be read: ENOENT.*no\.crt/],
    ['has no PEM', config({}, { 'certificate-authority-data': 'AAAA' }), {}, /there is no -----BEGIN in it/],
  ])('says so when it %s', async (_, content, more, words) => {
    expect(await failureOf(content, more)).toMatch(words)
  })

  const ran = () => join(dir, 'ran')
  const exec = () => ({ apiVersion: 'client.authentication.k8s.io/v1', command: 'touch', args: [ran()] })
  it.each([
    ['runs a program', () => config({ exec: exec() }), /the user of context lab of .* has exec, which runs a program/],
    [
      'runs a program as an identity provider',
      () => config({ 'auth-provider': { name: 'gcp', config: { 'cmd-path': 'touch', 'cmd-args': ran() } } }),
      /has auth-provider, which runs a program/,
    ],
    [
      'sends the token of this process',
      () => config({ tokenFile: '/var/run/token' }),
      /tokenFile of .* a file of this/,
    ],
    ['sends a file beside it', () => config({ tokenFile: 'token' }), /tokenFile of a Secret is token, a file/],
    ['has another key', () => config({ 'client-key': '/b' }), /client-key of .* is \/b/],
    ['has another authority', () => config({}, { 'certificate-authority': '../c' }), /certificate-authority of .* is /],
  ])('is refused if others have written it and it %s', async (_, content, words) => {
    const loaded = loadForeignKubeConfig({ text: JSON.stringify(content()), from: 'a Secret' })
    await expect(loaded).rejects.toThrow(words)
    await expect(readFile(ran())).rejects.toThrow('ENOENT')
  })

  it('is not refused if others have written it, and its data are in it', async () => {
    const data = { 'certificate-authority-data': Buffer.from(pki.caPem).toString('base64') }
    const text = JSON.stringify(config({ token: 'one' }, data))
    const access = await loadForeignKubeConfig({ text, from: 'a Secret' })
    expect([await access.token?.(), access.ca]).toEqual(['one', pki.caPem])
  })

  it('is parsed once if others have written it, in a time that its size bounds, also if it is not valid', async () => {
    const keys = (from: number, count: number) => Array.from({ length: count }, (_, index) => `k${from + index}: `)
    const timeOf = async (text: string, times = 1) => {
      const foreign = { text, from: 'a Secret' }
      const began = process.cpuUsage()
      for (let time = 0; time < times; time++)
        await expect(loadForeignKubeConfig(foreign)).rejects.toThrow('has no current-context')
      const { user, system } = process.cpuUsage(began)
      return user + system
    }
    const maps = Array.from({ length: 60 }, (_, map) => `- {${keys(map * 100, 100).join(', ')}}`)
    await timeOf('preferences: {}')
    const small = await timeOf(`preferences:\n${maps.join('\n')}\n`)
    expect(await timeOf(keys(0, 6000).join('\n'))).toBeLessThan(4 * small)
    expect(await timeOf(`preferences:\n${maps.join('\n')}\n# again`, 50)).toBeLessThan(10 * small)
    const large = { text: keys(0, 100_000).join('\n'), from: 'a Secret' }
    await expect(loadForeignKubeConfig(large)).rejects.toThrow(/^a Secret has \d+ characters/)
  })

  it('shows nothing of its text in a warning', async () => {
    const warnings: string[] = []
    const listen = ({ message }: Error) => warnings.push(message)
    process.on('warning', listen)
    const text = stringify(config({ token: 'one' })).replace('token: one', 'token: !own one')
    const access = await loadForeignKubeConfig({ text, from: 'a Secret' })
    await new Promise(setImmediate)
    process.off('warning', listen)
    expect([await access.token?.(), warnings]).toEqual(['one', []])
  })

  it('says so when it is missing', async () => {
    const [a, b] = [join(dir, 'a'), join(dir, 'b')]
    await expect(loadKubeConfig({ paths: [a] })).rejects.toThrow(`there is no kubeconfig ${a}; create it`)
    await expect(loadKubeConfig({ paths: [a, b] })).rejects.toThrow(`none of these kubeconfigs exists: ${a}, ${b}`)
  })

  it('says so when its certificate has expired', async () => {
    const old = await createPki(join(dir, 'old'), new Date('2020-01-01T00:00:00Z'))
    await old.issue('ann', { cn: 'ann' })
    const user = { 'client-certificate': 'old/ann.crt', 'client-key': 'old/ann.key' }
    expect(await failureOf(config(user))).toMatch(/expired at 2020-12-31T00:00:00.000Z; have a new one issued/)
    const access = await load(config(user), { now: () => Date.parse('2020-06-01T00:00:00Z') })
    expect(access.cert).toBeDefined()
  })

  it('says so when key and certificate do not belong together', async () => {
    await pki.issue('ben', { cn: 'ben' })
    const access = await load(config({ 'client-certificate': 'pki/ben.crt', 'client-key': 'pki/ca.key' }))
    expect(() => createKubeClient({ ...access, userAgent: 'test' })).toThrow(/of context lab of .* cannot be used/)
  })
})

describe('a credentials plugin', () => {
  /** Prints token-1, token-2 … at each call, and with what it was called. */
  async function plugin(body: string): Promise<object> {
    const folder = join(dir, `plugin-${files++}`)
    await mkdir(folder)
    await writeFile(join(folder, 'login'), `#!/bin/sh\ncd "$(dirname "$0")"\n${body}\n`)
    await chmod(join(folder, 'login'), 0o755)
    const command = `./${folder.slice(dir.length + 1)}/login`
    return { exec: { apiVersion: 'client.authentication.k8s.io/v1', command, installHint: 'install the login tool' } }
  }
  const counting = `echo x >>calls
    echo "$KUBERNETES_EXEC_INFO" >info
    echo "{\\"status\\": {\\"token\\": \\"token-$(wc -l <calls | tr -d ' ')\\"}}"`

  it('is run once for many requests, and again when the server rejects its token', async () => {
    await using server = await startScriptedServer((request, response) =>
      json(response, request.headers.authorization === 'Bearer token-2' ? 200 : 401, {}),
    )
    const user = await plugin(counting)
    const access = await load(config(user))
    await using kube = createKubeClient({ ...access, ...server.access, userAgent: 'test' })
    for (let i = 0; i < 3; i++) await kube.get('/api')
    expect(server.requests.map(({ headers }) => headers.authorization)).toEqual(
      ['token-1', 'token-2', 'token-2', 'token-2'].map((token) => `Bearer ${token}`),
    )
    const info = await readFile(join(dir, `plugin-${files - 2}`, 'info'), 'utf8')
    expect(JSON.parse(info)).toMatchObject({ kind: 'ExecCredential', spec: { interactive: false } })
  })

  it('is run again shortly before its token expires', async () => {
    const end = '2026-01-01T00:10:00Z'
    let time = Date.parse('2026-01-01T00:00:00Z')
    const user = await plugin(`echo x >>calls
      echo '{"status": {"token": "t", "expirationTimestamp": "${end}"}}'`)
    const folder = join(dir, `plugin-${files - 1}`)
    const calls = async () => (await readFile(join(folder, 'calls'), 'utf8')).split('x').length - 1
    const { token } = await load(config(user), { now: () => time })
    time = Date.parse(end) - 11_000
    expect(await token?.()).toBe('t')
    expect(await calls()).toBe(1)
    time = Date.parse(end) - 9_000
    expect(await token?.()).toBe('t')
    expect(await calls()).toBe(2)
  })

  it('takes arguments, may give a certificate with its key, and has to print an ExecCredential', async () => {
    const saying = (text: string) => ({
      exec: { apiVersion: 'client.authentication.k8s.io/v1', command: 'sh', args: ['-c', 'echo "$1"', 'sh', text] },
    })
    const answer = { status: { clientCertificateData: 'cert', clientKeyData: 'key' } }
    expect(await loadAsLibrary(config(saying(JSON.stringify(answer))))).toMatchObject({
      cert: 'cert',
      key: 'key',
      token: undefined,
    })
    for (const text of ['hello', '{}', '{"status": {}}', '{"status": {"clientCertificateData": "cert"}}'])
      expect(await failureOf(config(saying(text)))).toMatch(/plugin sh of context lab .*: it prints no ExecCredential/)
  })

  it('is named with its own words, and how to install it, when it fails', async () => {
    const user = await plugin('echo "please log in" >&2; exit 1')
    expect(await failureOf(config(user))).toMatch(/plugin .*login of context lab .*: please log in; install the login/)
    const missing = { exec: { apiVersion: 'client.authentication.k8s.io/v1', command: 'no-such-login' } }
    expect(await failureOf(config(missing))).toMatch(/no-such-login of context lab .* ENOENT/)
  })
})

describe('a user who acts as another one', () => {
  const acting = { token: 't', as: 'ben', 'as-groups': ['one', 'two'], 'as-uid': '7' }

  it('does so in each request, with the groups and the uid', async () => {
    await using server = await startScriptedServer((_, response) => json(response, 200, {}))
    const access = await loadAsLibrary(config(acting))
    await using kube = createKubeClient({ ...access, ...server.access, userAgent: 'test' })
    await kube.get('/api')
    expect(impersonated(server.requests[0])).toEqual([['ben'], ['one', 'two'], ['7']])
  })

  it('gives no groups to the one whom a client acts as', async () => {
    await using server = await startScriptedServer((_, response) => json(response, 200, {}))
    await using kube = createKubeClient({ ...(await load(config(acting))), ...server.access, userAgent: 'test' })
    await kube.as('ann').get('/api')
    expect(impersonated(server.requests[0])).toEqual([['ann'], undefined, undefined])
  })

  const impersonated = (request: IncomingMessage | undefined) =>
    ['user', 'group', 'uid'].map((what) => request?.headersDistinct[`impersonate-${what}`])
})

describe('a proxy between this process and the API server', () => {
  /** What a proxy was asked to connect to. */
  interface Proxy extends AsyncDisposable {
    port: number
    targets: string[]
  }

  async function listening(server: Server, targets: string[]): Promise<Proxy> {
    const sockets = new Set<Socket>()
    server.on('connection', (socket: Socket) => sockets.add(socket))
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
    return {
      port: (server.address() as AddressInfo).port,
      targets,
      async [Symbol.asyncDispose]() {
        for (const socket of sockets) socket.destroy()
        await new Promise((done) => server.close(done))
      },
    }
  }

  function tunnel(client: Socket, port: number, greeting: string | Buffer): void {
    const target = connect(port, '127.0.0.1', () => client.write(greeting))
    target.on('error', () => client.destroy()).pipe(client)
    client.on('error', () => target.destroy()).pipe(target)
  }

  /** HTTP CONNECT, for the user ann with the password secret. */
  function startHttpProxy(): Promise<Proxy> {
    const targets: string[] = []
    const server = createHttpServer().on('connect', (request: IncomingMessage, client: Socket) => {
      const { url: target = '', headers } = request
      const expected = `Basic ${Buffer.from('ann:secret').toString('base64')}`
      if (headers['proxy-authorization'] !== expected) {
        client.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n')
        return
      }
      targets.push(target)
      tunnel(client, Number(target.split(':')[1]), 'HTTP/1.1 200 Connection established\r\n\r\n')
    })
    return listening(server, targets)
  }

  /** SOCKS5 (RFC 1928) without authentication, for the command CONNECT to an IPv4 address. */
  function startSocksProxy(): Promise<Proxy> {
    const targets: string[] = []
    const server = createServer((client) => {
      client.once('data', () => {
        client.write(Buffer.from([5, 0]))
        client.once('data', (asked: Buffer) => {
          const port = asked.readUInt16BE(8)
          targets.push(`${[...asked.subarray(4, 8)].join('.')}:${port}`)
          tunnel(client, port, Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]))
        })
      })
    })
    return listening(server, targets)
  }

  it.each([
    ['HTTP', startHttpProxy, (port: number) => `http://ann:secret@127.0.0.1:${port}`, 1],
    ['SOCKS', startSocksProxy, (port: number) => `socks5://127.0.0.1:${port}`, 5],
  ])(
    'of %s carries requests and watches with the credentials and TLS of the kubeconfig',
    async (_, start, urlOf, connections) => {
      await using proxy = await start()
      await using server = await startScriptedServer((request, response) =>
        request.url?.includes('watch=true')
          ? void response.writeHead(200).end('{"type":"ADDED","object":{"kind":"Pod"}}\n')
          : json(response, request.headers.authorization === 'Bearer t' ? 200 : 401, { kind: 'List' }),
      )
      const { ca = '', server: address } = server.access
      const cluster = {
        server: address,
        'certificate-authority-data': Buffer.from(ca).toString('base64'),
        'proxy-url': urlOf(proxy.port),
      }
      const access = await loadAsLibrary(config({ token: 't' }, cluster))
      await using kube = createKubeClient({ ...access, userAgent: 'test' })
      for (let i = 0; i < 5; i++) expect(await kube.get('/api')).toEqual({ kind: 'List' })
      expect(await Array.fromAsync(kube.watch('/api/v1/pods'))).toEqual([{ type: 'ADDED', object: { kind: 'Pod' } }])
      expect(proxy.targets).toEqual(Array(connections + 1).fill(new URL(address).host))

      // The name that the certificate has to be for comes from the kubeconfig too.
      const other = await load(config({ token: 't' }, { ...cluster, 'tls-server-name': 'other.test' }))
      await using stranger = createKubeClient({ ...other, userAgent: 'test' })
      await expect(stranger.get('/api')).rejects.toThrow(/is for another name/)
    },
  )

  it('is named when it refuses or does not listen, without its password', async () => {
    await using proxy = await startHttpProxy()
    const failure = async (url: string) => {
      await using kube = createKubeClient({ ...(await load(config({}, { 'proxy-url': url }))), userAgent: 'test' })
      return kube.get('/api').then(() => 'no error', String)
    }
    const refused = await failure(`http://ann:wrong@127.0.0.1:${proxy.port}`)
    expect(refused).toContain(`through the proxy 127.0.0.1:${proxy.port}`)
    expect(refused).toContain('407')
    expect(refused).not.toContain('wrong')
    for (const scheme of ['http', 'socks5'])
      expect(await failure(`${scheme}://127.0.0.1:1`)).toMatch(
        /127.0.0.1:6443 \(through the proxy 127.0.0.1:1\).*ECONNREFUSED/,
      )
  })
})

describe('an identity provider', () => {
  const provider = (more: object) => ({ 'auth-provider': { name: 'oidc', config: more } })

  it('gives the token that the library has', async () => {
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
    const token = `${part({ alg: 'none' })}.${part({ exp: 4_000_000_000 })}.x`
    const access = await loadAsLibrary(config(provider({ 'id-token': token })))
    expect(await access.token?.()).toBe(token)
  })

  it('names the package that images do not contain, and the reason that it cannot be loaded for', async () => {
    const path = await write(config(provider({})))
    const from = JSON.stringify(pathToFileURL(join(dir, 'x.js')).href)
    const script = `
      import { registerHooks } from 'node:module'
      registerHooks({ resolve: (name, context, next) =>
        next(name, name === '@kubernetes/client-node' ? { ...context, parentURL: ${from} } : context) })
      const { loadKubeConfig } = await import('#kube')
      await loadKubeConfig({ paths: [${JSON.stringify(path)}] }).catch(({ name, message }) => console.log(name, message))`
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script])
    expect(stdout).toMatch(/^ClusterAccessError .* uses the auth-provider oidc, which needs the package @kubernetes/)
    expect(stdout).toMatch(/it cannot be loaded \(Cannot find package .*images leave it out; use a credentials plugin/)
  })
})

describe('outside of a pod', () => {
  it('the service account is missing, by name of the file and with the way out', async () => {
    const loading = loadInCluster({ host: '10.0.0.1', port: '443', directory: join(dir, 'nowhere'), now: Date.now })
    await expect(loading).rejects.toThrow(/nowhere\/.* cannot be read \(ENOENT.*outside of one use a kubeconfig/)
  })
})
