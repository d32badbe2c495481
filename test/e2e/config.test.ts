import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { createKubeClient, isForbidden, isNotFound, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import { connectJetStream, type JetStream } from '#nats'
import { userNameOf } from '#spec'
import { borrowCluster } from '../support/borrowed.ts'
import { command } from '../support/command.ts'
import { type FairleadProcess, startFairlead } from '../support/fairlead.ts'
import { type HttpReceiver, startHttpReceiver } from '../support/http-receiver.ts'
import { storedIn } from '../support/jetstream.ts'
import { until } from '../support/wait.ts'
import { Keyed, Keyless } from './config-function.ts'

const MODULE = fileURLToPath(new URL('./config-function.ts', import.meta.url))
const SYSTEM = 'fairlead-system'
const SECRETS = { group: '', version: 'v1', resource: 'secrets' }
const CONFIG_MAPS = { group: '', version: 'v1', resource: 'configmaps' }
const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }
const ROLES = { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'roles' }

let cluster: Awaited<ReturnType<typeof borrowCluster>>
let kube: KubeClient
let js: JetStream
let provider: HttpReceiver
let up: FairleadProcess
let env: Record<string, string>
/** Everything that anybody has published on this NATS server. */
const published: string[] = []
const tokens = { first: `first-${crypto.randomUUID()}`, second: `second-${crypto.randomUUID()}` }

beforeAll(async () => {
  cluster = await borrowCluster({ nats: true })
  env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '' }
  kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  js = await connectJetStream({ servers: env['NATS_URL'] ?? '', name: 'listener' })
  js.nc.subscribe('>', {
    callback: (_, { subject, headers, data }) => {
      published.push(`${subject}\n${JSON.stringify([...(headers ?? [])])}\n${Buffer.from(data).toString('latin1')}`)
    },
  })
  await js.flush()
  provider = await startHttpReceiver((_, response) => response.end('pong'))
  up = startFairlead(['up', '--install', '-f', MODULE], env)
  for (const name of ['keyed', 'keyless'])
    await up.logged(({ msg, reconciler }) => msg === 'reconciler served' && reconciler === name)
})
afterAll(async () => {
  await up?.[Symbol.asyncDispose]()
  await provider?.[Symbol.asyncDispose]()
  await js?.close()
  await kube?.close()
  await cluster?.[Symbol.asyncDispose]()
})

const create = (kind: typeof Keyed, name: string, act: 'use' | 'throw' | 'log' | 'return') =>
  kube.create(resourcePath(kind, 'default'), kind.of({ metadata: { name, namespace: 'default' }, spec: { act } }))

type Shown = { answer?: string; conditions?: { type: string; reason: string; message: string }[] }
const statusOf = async (kind: typeof Keyed, name: string): Promise<Shown> =>
  (await kube.get<KubeObject & { status?: Shown }>(resourcePath(kind, 'default', name))).status ?? {}
const reconciledOf = async (kind: typeof Keyed, name: string) =>
  (await statusOf(kind, name)).conditions?.find(({ type }) => type === 'Reconciled')

const run = (name: string) => command(['queue', 'run', 'keyed', `default/${name}`], env)
/** Runs the object now and then until it holds: values are read again when they are ten seconds old. */
const afterRuns = (name: string, holds: () => Promise<boolean>) =>
  until(
    async () => {
      await run(name)
      return holds()
    },
    { leastMs: 1000 },
  )
const lastHeaders = () => provider.received.at(-1)?.headers ?? {}
const asAccount = (name: string) => kube.as(userNameOf({ namespace: SYSTEM, name }))

it('a value that is missing is named by the condition of the object, with what to create', async () => {
  await create(Keyed, 'first', 'use')
  await until(async () => (await reconciledOf(Keyed, 'first'))?.reason === 'ConfigMissing')
  expect((await reconciledOf(Keyed, 'first'))?.message).toContain(
    `config "token": there is no Secret ${SYSTEM}/provider: create it`,
  )
  await kube.create(resourcePath(SECRETS, SYSTEM), {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: 'provider' },
    stringData: { other: 'x' },
  })
  await afterRuns('first', async () =>
    /Secret fairlead-system\/provider has no key token: add it/.test(
      (await reconciledOf(Keyed, 'first'))?.message ?? '',
    ),
  )
  expect(provider.received).toEqual([])
})

it('its function has the values as soon as they are there, and a changed one, in the same process', async () => {
  const secret = resourcePath(SECRETS, SYSTEM, 'provider')
  await kube.patch(secret, { stringData: { token: tokens.first } }, 'merge')
  await kube.create(resourcePath(CONFIG_MAPS, SYSTEM), {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'provider' },
    data: { url: provider.url },
  })
  await afterRuns('first', async () => (await statusOf(Keyed, 'first')).answer === 'pong')
  expect(lastHeaders()['authorization']).toBe(`Bearer ${tokens.first}`)
  await kube.patch(secret, { stringData: { token: tokens.second } }, 'merge')
  await afterRuns('first', async () => lastHeaders()['authorization'] === `Bearer ${tokens.second}`)
})

it('its identity is that of its own account, for the one audience alone', async () => {
  const token = String(lastHeaders()['x-identity'])
  const review = async (audiences?: string[]) => {
    const { status } = await kube.create<{ status: { authenticated?: boolean; user?: { username?: string } } }>(
      '/apis/authentication.k8s.io/v1/tokenreviews',
      { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenReview', spec: { token, ...(audiences && { audiences }) } },
    )
    return status
  }
  expect(await review(['cloud.test'])).toMatchObject({
    authenticated: true,
    user: { username: `system:serviceaccount:${SYSTEM}:fairlead-keyed` },
  })
  expect((await review()).authenticated).not.toBe(true)
})

it('another function of the process receives none of it, and its account may not read the Secret', async () => {
  await create(Keyless, 'other', 'use')
  await until(async () => (await reconciledOf(Keyless, 'other'))?.reason === 'UndeclaredConfig')
  const read = (account: string, name: string) => asAccount(account).get(resourcePath(SECRETS, SYSTEM, name))
  await expect(read('fairlead-keyless', 'provider')).rejects.toSatisfy(isForbidden)
  await expect(read('fairlead-keyed', 'another')).rejects.toSatisfy(isForbidden)
  await expect(read('fairlead-dispatcher', 'provider')).rejects.toSatisfy(isForbidden)
  expect(await read('fairlead-keyed', 'provider')).toMatchObject({ kind: 'Secret' })
})

it('a secret value is in no condition, Event, line, record or message, whatever the function does with it', async () => {
  await create(Keyed, 'throws', 'throw')
  await create(Keyed, 'returns', 'return')
  await create(Keyed, 'logs', 'log')
  await until(async () => (await reconciledOf(Keyed, 'returns'))?.reason === 'SecretReturned')
  await until(async () => (await statusOf(Keyed, 'logs')).answer === 'pong')
  const failed = await up.logged(({ msg, key }) => msg === 'run failed' && key === 'default/throws')
  expect(failed['err']).toMatchObject({
    message: expect.stringContaining(': [confidential] was refused, and [confidential]'),
  })
  expect(await up.logged(({ key, msg }) => key === 'default/logs' && msg.startsWith('uses'))).toMatchObject({
    msg: 'uses [confidential]',
    headers: { authorization: 'Bearer [confidential]' },
  })
  await until(async () => (await recorded()).includes('"logs"'))
  up.kill('SIGTERM')
  await up.exited
  const identities = provider.received.map(({ headers }) => String(headers['x-identity']))
  const values = [...Object.values(tokens), ...identities]
  const told: string[] = []
  for await (const { items } of kube.list(resourcePath(EVENTS))) told.push(...items.map((item) => JSON.stringify(item)))
  for (const name of ['first', 'throws', 'returns', 'logs']) told.push(JSON.stringify(await statusOf(Keyed, name)))
  const everywhere = [...published, ...(await storedIn(js)), ...up.logs.map((line) => JSON.stringify(line)), ...told]
  expect(everywhere.length).toBeGreaterThan(100)
  const forms = values.flatMap((text) => [text, Buffer.from(text).toString('base64')])
  expect(everywhere.filter((one) => forms.some((form) => one.includes(form)))).toEqual([])
})

it('over HTTP the values are those of its pod, and nobody has a right to read the Secret', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'fl-config-'))
  const put = (name: string, text: string) => writeFile(join(folder, name), text)
  try {
    await put('url', provider.url)
    await put('cloud', 'identity-of-the-pod')
    await using fn = startFairlead(['serve', 'keyed', '-f', MODULE, '--port', '0', '--config', folder], {})
    const { port } = await fn.logged(({ msg }) => msg === 'serving')
    const installed = await command(['install', '-f', MODULE, '--url', `http://127.0.0.1:${port}`], env)
    expect(installed.code).toBe(0)
    const role = kube.get(resourcePath(ROLES, SYSTEM, 'fairlead-keyed-external'))
    await expect(role).rejects.toSatisfy(isNotFound)
    await using again = startFairlead(['up'], env)
    await again.logged(({ msg, reconciler }) => msg === 'reconciler served' && reconciler === 'keyed')
    await create(Keyed, 'far', 'use')
    await until(async () => (await reconciledOf(Keyed, 'far'))?.reason === 'ConfigMissing')
    expect((await reconciledOf(Keyed, 'far'))?.message).toContain(`config "token": the file ${join(folder, 'token')}`)
    await put('token', 'token-of-the-pod')
    await afterRuns('far', async () => (await statusOf(Keyed, 'far')).answer === 'pong')
    expect(lastHeaders()).toMatchObject({
      authorization: 'Bearer token-of-the-pod',
      'x-identity': 'identity-of-the-pod',
    })
    await expect(asAccount('fairlead-keyed').get(resourcePath(SECRETS, SYSTEM, 'provider'))).rejects.toSatisfy(
      isForbidden,
    )
  } finally {
    await rm(folder, { recursive: true })
  }
})

/** Returns the records of runs as the command shows them. */
const recorded = async (): Promise<string> => (await command(['runs', 'ls', 'keyed', '-o', 'json'], env)).stdout
