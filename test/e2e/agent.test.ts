import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { resourcePath } from '#kube'
import { openAgentKube } from '#process/agent-link'
import { agentSubjects } from '#process/agent-wire'
import { readConfig } from '#process/config'
import { until } from '../support/wait.ts'
import { ACCOUNT, MAPS, mapNamed, type Spoke, startHoldingProxy, startSpoke } from './agent-world.ts'
import { Item } from './clusters-functions.ts'
import { changedKubeConfig, type Served } from './clusters-world.ts'

let spoke: Spoke
beforeAll(async () => {
  spoke = await startSpoke()
})
afterAll(() => spoke?.[Symbol.asyncDispose]())

/** The Items of these names have their ConfigMaps and their status. */
const settled = (names: readonly string[]) =>
  until(async () => {
    const [items, maps] = await Promise.all([spoke.site.items(), spoke.site.maps()])
    return names.every(
      (name) =>
        maps.includes(name) && items.some((one) => one.metadata.name === name && one.status?.size === one.spec.size),
    )
  })

/** The writes that the API server has carried out for the account of the function, of objects with this prefix. */
const written = async (prefix: string) =>
  (await spoke.cluster.audit()).filter(
    ({ actedAs, name, code, verb }) => actedAs === ACCOUNT && name.startsWith(prefix) && code < 300 && verb !== 'get',
  )

/** The writes that the hub has an answer to. */
const answered = (hub: Served, prefix: string) =>
  hub.process.logs.filter(({ step, name }) => step === 'written' && String(name).startsWith(prefix))

/** Of a ConfigMap: the limit is 1 MiB. Random bytes do not become fewer when they are compressed. */
const LARGE = 1_048_000
/** How long a dispatcher waits for an answer. */
const UNANSWERED_MS = 30_000

const named = (prefix: string, count: number) => Array.from({ length: count }, (_, index) => `${prefix}-${index}`)

it('a function runs, and nothing of the hub has a credential of the cluster', async () => {
  await using agent = await spoke.agent()
  await using hub = await spoke.hub()
  await hub.entered('east', 'Up')
  await spoke.site.create('one', { size: 1 })
  await spoke.site.create('timed', { size: 1, everySeconds: 2 })
  await settled(['one', 'timed'])
  await spoke.site.edit('one', 2)
  const writes = await written('one')
  expect(new Set(writes.map(({ resource }) => resource))).toEqual(new Set(['configmaps', 'items/status']))
  expect(new Set(writes.map(({ user }) => user))).toEqual(new Set(['system:serviceaccount:fairlead-system:fairlead']))

  // While it has no agent, the cluster is away, and its keys wait.
  agent.kill('SIGTERM')
  await agent.exited
  expect((await hub.entered('east', 'Away'))['because']).toContain('has no agent')
  expect((await hub.get('/readyz')).text).toContain('cluster east: Away')
  await spoke.site.create('two', { size: 1 })
  await using _back = await spoke.agent()
  await hub.entered('east', 'Up', 2)
  await settled(['one', 'timed', 'two'])
  const entered = (state: string) =>
    hub.process.logs.findLastIndex((line) => line.msg === 'cluster' && line['state'] === state)
  const begun = hub.steps('east').filter(({ step }) => step === 'started')
  expect(begun.filter(({ index }) => index > entered('Away') && index < entered('Up'))).toEqual([])
  // Its timer was due meanwhile.
  await until(() =>
    hub
      .steps('east')
      .some(({ step, key, index }) => step === 'started' && key === 'default/timed' && index > entered('Up')),
  )
  await spoke.site.kube.delete(resourcePath(Item, 'default', 'timed'))
})

it('each request is executed by one of two agents, once', async () => {
  await using _one = await spoke.agent()
  await using _two = await spoke.agent()
  await using hub = await spoke.hub()
  await hub.entered('east', 'Up')
  const names = named('both', 20)
  await Promise.all(names.map((name) => spoke.site.create(name, { size: 1 })))
  await settled(names)
  await until(async () => (await written('both')).length === answered(hub, 'both').length)
  expect((await written('both')).length).toBeGreaterThanOrEqual(2 * names.length)
})

it('an agent that is killed between a write and its answer doubles nothing', async () => {
  await using proxy = await startHoldingProxy(spoke.kubeconfig)
  const through = await changedKubeConfig(spoke.kubeconfig, `${spoke.kubeconfig}.proxy`, { server: proxy.url })
  const hub = await spoke.hub()
  await using _hub = hub
  const first = await spoke.agent(through)
  await using _first = first
  await hub.entered('east', 'Up')
  const done = proxy.hold(/^PATCH .*\/configmaps\/killed\?/)
  await spoke.site.create('killed', { size: 1 })
  expect(await done).toBe(201)
  first.kill('SIGKILL')
  const killedAt = performance.now()
  await using _second = await spoke.agent()
  await settled(['killed'])
  // The hub notices the end of the agent, and does not wait for the time-out of the request.
  expect(performance.now() - killedAt).toBeLessThan(UNANSWERED_MS)
  const creations = (await written('killed')).filter(({ resource, code }) => resource === 'configmaps' && code === 201)
  expect(creations).toHaveLength(1)
})

it('a request that waits longer than its lease in a frozen agent is not sent when the agent wakes', async () => {
  await using agent = await spoke.agent()
  await using sender = await spoke.sender()
  const session = await sender.session()
  const late = sender.head(session, { until: session.clock + 1500 })
  const timely = sender.head(session)
  agent.kill('SIGSTOP')
  await until(async () => / T /.test(await readFile(`/proc/${agent.pid}/stat`, 'utf8')))
  const answers = [
    sender.ask(session.agent, late, mapNamed('late')),
    sender.ask(session.agent, timely, mapNamed('timely')),
  ]
  // The lease of the first is over, by any clock.
  await sleep(2000)
  agent.kill('SIGCONT')
  const [[first], [second]] = (await Promise.all(answers)) as [[object, string], [object, string]]
  expect(first).toEqual({ unsent: expect.stringContaining('too late') })
  expect(second).toMatchObject({ code: 201 })
  expect(await spoke.site.maps()).not.toContain('late')
})

it('a request is not sent any more when its dispatcher has given it up, whichever of the two arrives first', async () => {
  await using agent = await spoke.agent()
  await using sender = await spoke.sender()
  const session = await sender.session()
  const given = sender.head(session)
  const overtaken = sender.head(session)
  const cancelOf = ({ token, id, until: end }: typeof given) => ({ token, cancel: id, until: end })
  agent.kill('SIGSTOP')
  await until(async () => / T /.test(await readFile(`/proc/${agent.pid}/stat`, 'utf8')))
  await sender.send(session.agent, given, mapNamed('given-up'))
  await sender.send(session.agent, cancelOf(given), '')
  await sender.send(session.agent, cancelOf(overtaken), '')
  await sender.send(session.agent, overtaken, mapNamed('overtaken'))
  agent.kill('SIGCONT')
  expect((await sender.ask(session.agent, sender.head(session), mapNamed('fence-2')))[0]).toMatchObject({ code: 201 })
  const maps = await spoke.site.maps()
  expect(maps).not.toContain('given-up')
  expect(maps).not.toContain('overtaken')
})

it('an agent that is stopped answers what it has begun', async () => {
  await using proxy = await startHoldingProxy(spoke.kubeconfig)
  await using agent = await spoke.agent(
    await changedKubeConfig(spoke.kubeconfig, `${spoke.kubeconfig}.proxy`, { server: proxy.url }),
  )
  await using sender = await spoke.sender()
  const session = await sender.session()
  const config = readConfig({ NATS_URL: spoke.natsAs('fairlead-dispatcher.east'), FAIRLEAD_PREFIX: 'east' })
  await using link = await openAgentKube({ ...config, cluster: 'east', byAgent: true })
  const held = proxy.hold(/^POST .*\/configmaps/)
  const writing = link.as(ACCOUNT).create(MAPS, JSON.parse(mapNamed('begun')))
  writing.catch(() => undefined)
  expect(await held).toBe(201)
  agent.kill('SIGTERM')
  // It takes no new sessions, and those that wait for an answer see that it is there.
  await until(() =>
    sender.session().then(
      () => false,
      () => true,
    ),
  )
  await sender.reach(session.agent)
  proxy.release()
  expect(await writing).toMatchObject({ metadata: { name: 'begun' } })
  await agent.exited
})

it('an agent sends nothing that no Reconciler of its cluster declares, whatever the hub asks for', async () => {
  await using _agent = await spoke.agent()
  await using sender = await spoke.sender()
  const session = await sender.session()
  const item = '/apis/clusters.example.com/v1/namespaces/default/items'
  const secrets = '/api/v1/namespaces/default/secrets'
  const refused: Record<string, object> = {
    'an undeclared kind': { target: secrets },
    'an undeclared kind, to read': { method: 'GET', target: `${secrets}/x` },
    'an undeclared verb': { method: 'DELETE', target: `${item}/one` },
    'the specification of the primary': { method: 'PATCH', target: `${item}/one` },
    'all objects of a kind': { method: 'DELETE', target: MAPS },
    'a list': { method: 'GET', target: MAPS },
    'a watch': { method: 'GET', target: `${MAPS}?watch=true` },
    'an undeclared parameter': { target: `${MAPS}?dryRun=All&pretty=true` },
    'a parameter twice': { target: `${MAPS}?fieldManager=a&fieldManager=b` },
    'a subresource': { target: '/api/v1/namespaces/default/pods/x/exec' },
    'a proxy': { method: 'GET', target: '/api/v1/namespaces/default/services/x/proxy/y' },
    'a log': { method: 'GET', target: '/api/v1/namespaces/default/pods/x/log' },
    'a token of the account': { target: '/api/v1/namespaces/fairlead-system/serviceaccounts/fairlead-item/token' },
    'another method': { method: 'PUT', target: `${MAPS}/one` },
    'the account of somebody else': { as: 'system:serviceaccount:kube-system:default' },
    'an account with another name': { as: `${ACCOUNT}x` },
    'a user': { as: 'system:admin' },
    'two accounts': { as: [ACCOUNT, 'system:admin'] },
    'two accounts in one': { as: `${ACCOUNT}, system:admin` },
    'a header in the account': { as: `${ACCOUNT}\r\nImpersonate-Group: system:masters` },
    'a group': { 'impersonate-group': 'system:masters' },
    'a group in other case': { 'Impersonate-Group': 'system:masters' },
    headers: { headers: { 'Impersonate-Group': 'system:masters' } },
    'a header in the trace': { traceparent: `00-${'0'.repeat(32)}-${'0'.repeat(16)}-00\r\nImpersonate-Uid: 0` },
    'the account of the agent': { as: undefined },
    'a Reconciler': {
      as: undefined,
      method: 'PATCH',
      target: '/apis/fairlead.dev/v1alpha1/reconcilers/item',
    },
    'dots in the path': { target: `${MAPS}/../secrets` },
    'encoded dots': { target: `${MAPS}/%2e%2e/secrets` },
    'an encoded slash': { target: `${MAPS}%2F..%2Fsecrets` },
    'an encoded letter': { target: MAPS.replace('configmaps', 'configmap%73') },
    'an empty part': { target: MAPS.replace('/default/', '//default/') },
    'a part at the end': { target: `${MAPS}/` },
    'another host': { target: `//127.0.0.1${MAPS}` },
    'a whole address': { target: `https://127.0.0.1${MAPS}` },
    'a fragment': { target: `${MAPS}#` },
    'two queries': { target: `${MAPS}?fieldManager=a?b` },
    'another type of patch': { contentType: 'application/json-patch+json' },
    'a lease without an end': { until: session.clock + 1e9 },
    'a lease that is over': { until: session.clock },
  }
  const answers = await Promise.all(
    Object.entries(refused).map(async ([what, changed]) => {
      const [answer] = await sender.ask(session.agent, sender.head(session, changed), mapNamed('forged'))
      return [what, 'unsent' in answer || ('code' in answer && answer.code === 403)] as const
    }),
  )
  expect(answers.filter(([, isRefused]) => !isRefused)).toEqual([])
  const forged = (await spoke.cluster.audit()).filter(
    ({ userAgent, user, resource, actedAs }) =>
      user.endsWith(':fairlead') && userAgent.startsWith('fairlead/') && resource === 'secrets' && actedAs !== '',
  )
  expect(forged).toEqual([])
  expect(await spoke.site.maps()).not.toContain('forged')
})

it('a captured request is not executed again, and nobody without the answers of the agent can send one', async () => {
  await using _agent = await spoke.agent()
  await using sender = await spoke.sender()
  const session = await sender.session()
  const head = sender.head(session)
  expect((await sender.ask(session.agent, head, mapNamed('captured')))[0]).toMatchObject({ code: 201 })
  await spoke.site.kube.delete(`${MAPS}/captured`)
  await sender.send(session.agent, head, mapNamed('captured'))
  const unanswerable = sender.head(session)
  sender.js.nc.publish(agentSubjects('east').requestsTo(session.agent), JSON.stringify(unanswerable))
  await sender.send(session.agent, sender.head(session, { token: 'guessed' }), mapNamed('captured'))
  // The agent has received all of these before this one, and answers it.
  expect((await sender.ask(session.agent, sender.head(session), mapNamed('fence')))[0]).toMatchObject({ code: 201 })
  expect(await spoke.site.maps()).not.toContain('captured')
  await using second = await spoke.agent()
  const other = (await sender.sessions(2)).find(({ agent }) => agent !== session.agent)
  await sender.send(other?.agent ?? '', head, mapNamed('captured'))
  await second.logged(({ msg }) => msg === 'a request is dropped')
  expect(await spoke.site.maps()).not.toContain('captured')
})

it('an answer may have more bytes than a message of NATS, and a request that has more is refused with code 413', async () => {
  await using _agent = await spoke.agent()
  const config = readConfig({ NATS_URL: spoke.natsAs('fairlead-dispatcher.east'), FAIRLEAD_PREFIX: 'east' })
  await using link = await openAgentKube({ ...config, cluster: 'east', byAgent: true })
  const kube = link.as(ACCOUNT)
  const metadata = { name: 'large', namespace: 'default' }
  const large = {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata,
    binaryData: { random: randomBytes(LARGE).toString('base64') },
  }
  await expect(kube.create(MAPS, large)).rejects.toMatchObject({
    code: 413,
    message: expect.stringContaining('max_payload'),
  })
  await spoke.site.kube.create(MAPS, large)
  expect(await kube.get(`${MAPS}/large`)).toMatchObject({ binaryData: large.binaryData })
  await expect(kube.get('/api/v1/namespaces/default/secrets/large')).rejects.toMatchObject({
    code: 403,
    message: expect.stringContaining('no Reconciler in the cluster declares it'),
  })
})

it('the agent of another cluster neither sends requests here, nor receives or answers them', async () => {
  await using _agent = await spoke.agent()
  await using west = await spoke.sender('fairlead-bridge.west')
  const { sessions, requestsTo, answers } = agentSubjects('east')
  const denied: string[] = []
  west.js.onRefusal(({ operation, subject }) => void denied.push(`${operation} ${subject}`))
  west.js.nc.subscribe(sessions, { callback: () => undefined })
  west.js.nc.subscribe(requestsTo('*'), { callback: () => undefined })
  west.js.nc.subscribe(`${answers}.>`, { callback: () => undefined })
  west.js.nc.publish(sessions, '')
  west.js.nc.publish(requestsTo('any'), '')
  west.js.nc.publish(`${answers}.any`, '')
  const expected = [
    `subscription ${sessions}`,
    `subscription ${requestsTo('*')}`,
    `subscription ${answers}.>`,
    `publish ${sessions}`,
    `publish ${requestsTo('any')}`,
    `publish ${answers}.any`,
  ]
  await until(() => expected.every((one) => denied.includes(one)), { what: JSON.stringify(denied) })
})
