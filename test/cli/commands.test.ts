import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { createOrphanedKeySweeper } from '#bridge'
import type { DeadMessage } from '#events'
import { readConfig } from '../../cli/process/config.ts'
import { openKube } from '../../cli/process/kube.ts'
import { freePorts } from '../../packages/lab/ports.ts'
import { openTestQueue } from '../queue/support.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { command } from '../support/command.ts'
import { fairlead, startFairlead } from '../support/fairlead.ts'
import { kubectlFor } from '../support/kubectl.ts'
import { silent as log } from '../support/silent.ts'

const kubeconfigOf = (server: string) =>
  JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'c', cluster: { server, 'insecure-skip-tls-verify': true } }],
    users: [{ name: 'u', user: { token: 'wrong' } }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
  })

let cluster: Awaited<ReturnType<typeof borrowCluster>>
let dir: string
let env: Record<string, string>

const file = async (name: string, text: string): Promise<string> => {
  await writeFile(join(dir, name), text)
  return join(dir, name)
}

beforeAll(async () => {
  cluster = await borrowCluster({ nats: true })
  dir = await mkdtemp(join(tmpdir(), 'fl-cli-'))
  env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '' }
})
afterAll(async () => {
  await cluster[Symbol.asyncDispose]()
  await rm(dir, { recursive: true, force: true })
})

describe('wrong use', () => {
  it.each([
    [['nope'], "fairlead: unknown command 'nope'\nFor its arguments and options: fairlead --help"],
    [['queue', 'lst'], "fairlead: unknown command 'lst'; did you mean ls?\n"],
    [['explain', '--namespaec', 'a'], "unknown option '--namespaec'; did you mean --namespace?"],
    [['up', 'extra'], 'too many arguments'],
    [['queue', 'ls', '--limit', '0'], 'whole number from 1'],
    [['queue', 'ls', 'A b'], 'lower-case letters'],
    [['queue', 'ls', '--state', 'asleep'], 'queued, running, waiting, parked'],
    [['completion', 'tcsh'], 'bash, zsh, fish'],
    [['up', '--listen', 'nonsense'], 'host:port'],
    [['install', '--revision', ''], 'give 1 to 253 characters'],
    [['up', '-f', '/nope.ts'], 'there is no function module /nope.ts'],
    [['--context', 'nope', 'install'], 'has no context nope'],
    [['--kubeconfig', '/nope', 'demo'], 'there is no kubeconfig /nope'],
  ])('%j ends with 2', async (args, message) => {
    const { code, stderr, stdout } = await command(args, env)
    expect(stderr).toContain(message)
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  })

  it('teaches when it is called without a command', async () => {
    const { code, stderr } = await command([])
    expect(stderr).toContain('Start here:')
    expect(code).toBe(2)
  })

  it('says what is wrong with a module of functions', async () => {
    const none = await command(['install', '-f', await file('none.mjs', 'export const x = 1')], env)
    expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining('exports no reconciler') })
    const one = 'const one = { name: "a", reconcile() {}, for: {}, owns: [] }; export { one, one as two }'
    const two = await command(['install', '-f', await file('two.mjs', one)], env)
    expect(two).toMatchObject({ code: 2, stderr: expect.stringContaining('two functions are named "a"') })
  })
})

describe('a module of functions that is wrong', () => {
  const SDK = JSON.stringify(join(import.meta.dirname, '../../sdk/index.ts'))
  const moduleOf = (options: string) => `
    import { reconciler, resource, z } from ${SDK}
    const Shop = resource({ group: 'example.com', version: 'v1', kind: 'Shop', plural: 'shops',
      spec: z.object({}), status: z.object({}) })
    export const shop = reconciler({ name: 'shop', for: Shop, ${options} })`

  it.each([
    ["reconcile() {}, timeoutSeconds: 'x'", 'reconciler shop: timeoutSeconds is "x": expected number, received string'],
    ['reconcil() {}', 'reconciler shop has an unknown option "reconcil": did you mean "reconcile"?'],
  ])('is refused in one line that names it: %s', async (options, message) => {
    const shop = await file(`wrong-${options.length}.ts`, moduleOf(options))
    const refused = await command(['generate', 'crds', '-f', shop])
    const stderr = `fairlead: cannot load the function module ${shop}: ${message}\n`
    expect(refused).toEqual({ code: 2, stdout: '', stderr })
  })
})

it('the file and the line are named where the syntax of a module of functions is wrong', async () => {
  const broken = await file('broken.ts', 'export const one = 1\nexport const = 2\n')
  for (const outer of [broken, await file('outer.ts', "import './broken.ts'\n")]) {
    const { code, stderr } = await fairlead(['generate', 'crds', '-f', outer])
    expect(code).toBe(2)
    expect(stderr).toMatch(/^fairlead: cannot load the function module .*Unexpected token.*\n$/)
    expect(stderr).toContain(`(${broken}:2)`)
  }
})

it('a function that gives finalize up keeps the right to take its finalizer from objects until none has it', async () => {
  const SDK = JSON.stringify(join(import.meta.dirname, '../../sdk/index.ts'))
  const kubectl = await kubectlFor(cluster)
  /** Returns the permissions of the account on its objects. */
  const verbsAfter = async (version: string, name: string, options: string): Promise<string[] | undefined> => {
    const text = `
      import { reconciler, resource, z } from ${SDK}
      const Held = resource({ group: '${name}.example.com', version: 'v1', kind: 'Held', plural: 'helds',
        spec: z.object({}), status: z.object({}) })
      export const held = reconciler({ name: '${name}', for: Held, reconcile() {}, ${options} })`
    const installed = await command(['install', '-f', await file(`${name}-${version}.ts`, text)], env)
    expect(installed).toMatchObject({ code: 0 })
    const role = JSON.parse(await kubectl(['get', 'clusterrole', `fairlead-${name}`, '-o', 'json'])) as {
      rules: { resources: string[]; verbs: string[] }[]
    }
    return role.rules.find(({ resources }) => resources.includes('helds'))?.verbs
  }
  expect(await verbsAfter('1', 'held', 'finalize() {}')).toEqual(['get', 'patch'])
  const object = {
    apiVersion: 'held.example.com/v1',
    kind: 'Held',
    metadata: { name: 'a', namespace: 'default', finalizers: ['fairlead.dev/held'] },
    spec: {},
  }
  await kubectl(['create', '-f', '-'], object)
  // A run in progress may still add the finalizer, so the first installation does not look at the objects.
  for (const version of ['2', '3']) expect(await verbsAfter(version, 'held', '')).toEqual(['get', 'patch'])
  await kubectl(['patch', 'helds.held.example.com/a', '--type=merge', '-p', '{"metadata":{"finalizers":null}}'])
  expect(await verbsAfter('5', 'held', '')).toEqual(['get'])
  expect(await verbsAfter('1', 'held', 'finalize() {}')).toEqual(['get', 'patch'])
  expect(await verbsAfter('2', 'held', '')).toEqual(['get', 'patch'])
  expect(await verbsAfter('3', 'held', '')).toEqual(['get'])
  expect(await verbsAfter('1', 'free', '')).toEqual(['get'])
})

describe('servers that cannot be used', () => {
  it('ends with 2 and one line for a kubeconfig that is no YAML', async () => {
    const { code, stderr } = await command(['install'], { ...env, KUBECONFIG: await file('broken', 'a: [b\n') })
    expect(stderr.trim().split('\n')).toEqual([expect.stringContaining('is not valid YAML')])
    expect(code).toBe(2)
  })

  it('ends with 3 when no API server answers, or it refuses', async () => {
    const nobody = await file('nobody', kubeconfigOf('https://127.0.0.1:9'))
    const gone = await command(['install'], { ...env, KUBECONFIG: nobody })
    expect(gone).toMatchObject({ code: 3, stderr: expect.stringContaining('nothing listens at 127.0.0.1:9') })
    const wrong = await file('wrong', kubeconfigOf(cluster.apiServer))
    const refused = await command(['install'], { ...env, KUBECONFIG: wrong })
    expect(refused).toMatchObject({ code: 3, stderr: expect.stringContaining('401') })
    const demo = await command(['demo'], { ...env, KUBECONFIG: nobody })
    expect(demo).toMatchObject({ code: 3, stderr: expect.stringContaining('Unset KUBECONFIG') })
  })

  it('ends with 4 when no NATS answers', async () => {
    const { code, stderr } = await command(['--nats', 'nats://127.0.0.1:9', 'queue', 'ls'], env)
    expect(stderr).toContain('cannot connect to NATS at nats://127.0.0.1:9')
    expect(code).toBe(4)
  })

  it('ends with 4 when what accepts the connection to NATS says nothing', async () => {
    const mute = createServer().listen(0, '127.0.0.1')
    await once(mute, 'listening')
    const NATS_URL = `nats://127.0.0.1:${(mute.address() as AddressInfo).port}`
    const { code, stderr } = await fairlead(['queue', 'ls'], { ...env, NATS_URL })
    mute.close()
    expect({ code, stderr }).toEqual({
      code: 4,
      stderr: `fairlead: cannot connect to NATS at ${NATS_URL}: timeout; start nats-server there, or give another address by NATS_URL or --nats\n`,
    })
  })

  it('ends with 2 when three replicas are wanted of a single server', async () => {
    const { code, stderr } = await command(['--prefix', 'three', 'up'], { ...env, FAIRLEAD_REPLICAS: '3' })
    expect(stderr).toContain('FAIRLEAD_REPLICAS is 3')
    expect(code).toBe(2)
  })

  it('ends with 2 when the address to listen on is taken', async () => {
    const taken = new URL(env['NATS_URL'] ?? '').host
    const { code, stderr } = await command(['up', '--listen', taken], env)
    expect(stderr).toContain(`cannot listen on ${taken}`)
    expect(code).toBe(2)
  })
})

it('installs twice, and says that the second time changed nothing', async () => {
  const first = await fairlead(['install', '--builtin', 'all', '-o', 'json'], env)
  expect(first.code).toBe(0)
  const second = await command(['install', '--builtin', 'all', '-o', 'json'], env)
  const results = (JSON.parse(second.stdout) as { result: string }[]).map(({ result }) => result)
  expect(new Set(results)).toEqual(new Set(['unchanged']))
})

describe('up', () => {
  it.each([
    ['NATS', 'SIGTERM', () => env['NATS_URL'] ?? '', (url: string) => ({ NATS_URL: url })],
    [
      'the API server',
      'SIGINT',
      () => cluster.apiServer,
      async (url: string) => {
        const kubeconfig = await readFile(cluster.kubeconfig, 'utf8')
        return { KUBECONFIG: await file('late-kubeconfig', kubeconfig.replace(cluster.apiServer, url)) }
      },
    ],
  ] as const)(
    'waits, when it is told to, for %s that is still starting; %s ends it with 0',
    async (_, signal, address, at) => {
      const { protocol, hostname: host, port } = new URL(address())
      const late = createServer((client) => {
        const server = connect(Number(port), host)
        // The side that ends first may reset the other one.
        for (const one of [client, server]) one.on('error', () => undefined)
        client.pipe(server).pipe(client)
      })
      const [latePort] = await freePorts(1)
      const there = { ...env, ...(await at(`${protocol}//${host}:${latePort}`)) }
      await using up = startFairlead(['up', '--install', '--builtin', 'at', '--wait-seconds', '50'], there)
      await up.logged(({ msg }) => msg === 'not there yet, trying again')
      late.listen(latePort, host)
      await up.logged(({ msg }) => msg === 'reconciler served')
      up.kill(signal)
      expect((await up.exited).code).toBe(0)
      expect(up.logs.at(-1)).toMatchObject({ msg: 'stopped', because: signal })
      late.close()
    },
  )
})

it.each(['--server-side=false', '--server-side'])(
  'moves an installed function to Knative by kubectl apply %s, and installing again leaves it there',
  async (how) => {
    const kubectl = await kubectlFor(cluster)
    const invoke = async () => JSON.parse(await kubectl(['get', 'reconciler', 'at', '-o', 'jsonpath={.spec.invoke}']))
    await kubectl(['delete', 'reconciler', 'at', '--ignore-not-found'])
    await command(['install', '--builtin', 'at'], env)
    expect(await invoke()).toEqual({ pull: {} })
    const { stdout } = await command(['generate', 'knative', 'at', '--image', 'x'], env)
    const [, reconciler = ''] = stdout.split('---\n')
    await kubectl(['apply', how, ...(how === '--server-side' ? ['--force-conflicts'] : []), '-f', '-'], reconciler)
    const onKnative = { http: { url: 'http://at.fairlead-functions.svc.cluster.local' } }
    expect(await invoke()).toMatchObject(onKnative)
    expect(await command(['install', '--builtin', 'at'], env)).toMatchObject({ code: 0 })
    expect(await invoke()).toMatchObject(onKnative)
    await kubectl(['delete', 'reconciler', 'at'])
  },
)

it('installs over the Reconcilers of an earlier version, whose rules were stricter', async () => {
  const kubectl = await kubectlFor(cluster)
  await command(['install', '--builtin', 'at'], env)
  const crd = 'crd/reconcilers.fairlead.dev'
  const rules = '/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/invoke/x-kubernetes-validations'
  const earlier = [{ op: 'replace', path: `${rules}/0/rule`, value: 'has(self.http) != has(self.pull)' }]
  await kubectl(['patch', crd, '--type=json', '-p', JSON.stringify(earlier)])
  expect(await command(['install', '--builtin', 'at'], env)).toMatchObject({ code: 0 })
  expect(await kubectl(['get', crd, '-o', 'json'])).toContain('has(self.http) || has(self.pull)')
})

it('keys of a Reconciler that is gone go to the dead letters, others stay', async () => {
  await command(['install', '--builtin', 'at'], env)
  await using kube = await openKube(readConfig(env))
  await using test = await openTestQueue(cluster.nats?.url ?? '', 'gone')
  const { queue } = test
  await queue.declare('at')
  await queue.declare('ghost')
  for (const reconciler of ['at', 'ghost']) await queue.enqueue(reconciler, 'ns.a')
  await queue.enqueue('ghost', 'ns.b')
  const dead: string[] = []
  const deadLetter = async ({ subject, reason }: DeadMessage) => void dead.push(`${subject} ${reason}`)
  const stop = new AbortController()
  const sweeper = createOrphanedKeySweeper({ kube, queue, deadLetter, log, absentMs: 0, everyMs: 50 })
  const sweeping = sweeper.run(stop.signal, 0)
  await vi.waitFor(async () => expect((await queue.depth('ghost')).queued).toBe(0), { timeout: 60_000 })
  stop.abort()
  await sweeping
  expect(dead).toEqual(['work.ghost.high.ns.a unknown-reconciler', 'work.ghost.high.ns.b unknown-reconciler'])
  expect((await queue.depth('at')).queued).toBe(1)
})

it('has nothing to stop where nothing runs', async () => {
  const nowhere = ['--dir', join(dir, 'nowhere')]
  expect(await command(['local', 'down', ...nowhere])).toMatchObject({ code: 0 })
  const status = await command(['local', 'status', '-o', 'json', ...nowhere])
  expect(status.code).toBe(1)
  expect(JSON.parse(status.stdout)).toMatchObject({ running: false, processes: [] })
})

it('ends after its grace although NATS is gone, and says so if it could hand nothing back', async () => {
  await using up = startFairlead(['up', '--install', '--builtin', 'at', '--grace-seconds', '1'], env)
  await up.logged(({ msg }) => msg === 'reconciler served')
  const { nats } = cluster
  nats?.signal('SIGKILL')
  await up.logged(({ level, msg }) => level === 'warn' && msg.startsWith('NATS is gone'))
  up.kill('SIGTERM')
  const { code } = await up.exited
  await nats?.restart()
  expect([
    { code: 0, isDone: true, isCut: false },
    { code: 1, isDone: false, isCut: true },
  ]).toContainEqual({
    code,
    isDone: up.logs.some(({ msg }) => msg === 'stopped'),
    isCut: up.logs.some(({ msg }) => msg.includes('keys in hand are run again')),
  })
})

describe('built-in functions', () => {
  const PRESENT = ['reconcilers,crds,clusterroles,clusterrolebindings,serviceaccounts', '-A', '-o', 'name']
  /** What belongs to functions, not to the platform. */
  const ofFunctions = async () =>
    (await (await kubectlFor(cluster))(['get', ...PRESENT]))
      .split('\n')
      .filter((name) =>
        /fairlead-(?:at|etcd|memcached|visitors)|fairlead\.dev\/(?:at|memcached|visitors)|cnat|memcacheds|visitorsapps|etcd/.test(
          name,
        ),
      )

  /** The API server deletes a CRD after it has answered. */
  const untilNone = () => vi.waitFor(async () => expect(await ofFunctions()).toEqual([]), { timeout: 60_000 })

  it('are installed only by name: install alone installs the platform', async () => {
    await command(['uninstall', '--builtin', 'all', '--crds'], env)
    await untilNone()
    expect(await command(['install'], env)).toMatchObject({ code: 0 })
    expect(await ofFunctions()).toEqual([])
    expect(await command(['install', '--builtin', 'at'], env)).toMatchObject({ code: 0 })
    const installed = await ofFunctions()
    expect(installed).toContain('reconciler.fairlead.dev/at')
    expect(installed.filter((name) => name.includes('etcd'))).toEqual([])
    expect(await command(['uninstall', '--builtin', 'at', '--crds'], env)).toMatchObject({ code: 0 })
    await untilNone()
  })

  it('have permissions in the namespaces of --namespaces, and in no others', async () => {
    const kubectl = await kubectlFor(cluster)
    await kubectl(['create', 'namespace', 'etcd-there'])
    expect(await command(['install', '--builtin', 'etcd', '--namespaces', 'etcd-there'], env)).toMatchObject({
      code: 0,
    })
    const account = 'system:serviceaccount:fairlead-system:fairlead-etcd'
    const may = (namespace: string) =>
      kubectl(['auth', 'can-i', 'delete', 'secrets', '-n', namespace, '--as', account]).catch(() => 'no')
    await vi.waitFor(async () => expect((await may('etcd-there')).trim()).toBe('yes'), { timeout: 60_000 })
    expect((await may('default')).trim()).toBe('no')
    const namespaces = ['get', 'reconcilers', '-o', 'jsonpath={.items[*].spec.for.namespaces[*]}']
    expect(await kubectl(namespaces)).toBe('etcd-there etcd-there etcd-there')
    await command(['uninstall', '--builtin', 'etcd', '--crds'], env)
  })

  it.each([
    [
      ['install', '--builtin', 'at,etc'],
      '--builtin is "etc", and no built-in function has this name: give at, etcd, memcached, visitors or all',
    ],
    [['up', '--builtin', 'nope'], 'give at, etcd, memcached, visitors or all'],
    [['install', '--namespaces', 'a'], 'add --builtin NAMES'],
    [
      ['generate', 'crds'],
      'no functions are selected: give -f FILE, or --builtin with at, etcd, memcached, visitors or all',
    ],
    [['diff', '--all'], 'no functions are selected'],
  ])('%j is refused, and the names are listed', async (args, message) => {
    expect(await command(args, env)).toMatchObject({ code: 2, stderr: expect.stringContaining(message) })
  })

  it('are not run by a process that names none: it says so, and calls functions over HTTP', async () => {
    await command(['install', '--builtin', 'at'], env)
    await using up = startFairlead(['up'], env)
    await up.logged(({ level, msg }) => level === 'warn' && msg.startsWith('no functions are selected'))
    const started = await up.logged(({ msg }) => msg === 'started')
    expect(started).toMatchObject({ functions: [] })
  })
})
