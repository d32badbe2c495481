import { randomUUID } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { request } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { accountsOf } from '#install'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import { connectJetStream, type JetStream } from '#nats'
import type { AgentAnswer, AgentCancel, AgentRequest, AgentSession } from '#process/agent-wire'
import { agentSubjects, isLastPart, joined, packed, unpacked } from '#process/agent-wire'
import { kubeconfigOf } from '../support/account.ts'
import { type FairleadProcess, fairlead, startFairlead } from '../support/fairlead.ts'
import { shortTempDir, startTestCluster, startTestNats } from '../support/servers.ts'
import { shippedAccounts } from '../support/shipped-users.ts'
import { freePort, Served, Site } from './clusters-world.ts'

const MODULE = fileURLToPath(new URL('clusters-functions.ts', import.meta.url))
const BINDINGS = { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'clusterrolebindings' }

/** Users of NATS have a password in place of a certificate. */
const PASSWORD = 'x'
type User = 'fairlead-dispatcher.east' | 'fairlead-bridge.east' | 'fairlead-bridge.west'

function accounts() {
  const made = accountsOf(shippedAccounts(), ['east', 'west'])
  for (const { users } of Object.values(made)) for (const user of users) Object.assign(user, { password: PASSWORD })
  return made
}

/** A spoke with an API server, and a hub with nats-server, whose processes have no credential of the spoke. */
export async function startSpoke() {
  await using starting = new AsyncDisposableStack()
  const [cluster, nats] = await Promise.all([
    startTestCluster({ audit: true }),
    startTestNats({ accounts: accounts() }),
  ])
  starting.use(cluster)
  starting.use(nats)
  const dir = await shortTempDir()
  const access = await loadKubeConfig({ paths: [cluster.kubeconfig] })
  const kube = starting.use(createKubeClient({ ...access, userAgent: 'test' }))
  const installed = await fairlead(['install', '-f', MODULE], { KUBECONFIG: cluster.kubeconfig })
  if (installed.code !== 0) throw new Error(installed.stderr)
  await bindAggregated(kube)
  const kubeconfig = await kubeconfigOf(kube, cluster.kubeconfig, { namespace: 'fairlead-system', name: 'fairlead' })
  const file = join(dir, 'clusters.yaml')
  await writeFile(file, 'clusters: [{ name: east, agent: true }]\n')
  const natsAs = (user: User) => nats.url.replace('://', `://${user}:${PASSWORD}@`)
  const owned = starting.move()
  return {
    site: new Site(cluster, kube),
    cluster,
    kubeconfig,
    natsAs,
    /** A process whose only credential is that of its user of NATS: its home folder is empty. */
    async hub(): Promise<Served> {
      const port = await freePort()
      const args = ['dispatch', '-f', MODULE, '--clusters', file, '--listen', `127.0.0.1:${port}`]
      const env = { HOME: dir, NATS_URL: natsAs('fairlead-dispatcher.east'), FAIRLEAD_LEASE_SECONDS: '3' }
      return new Served(startFairlead(args, env), port)
    },
    /** Resolves when it takes requests. */
    async agent(own = kubeconfig): Promise<FairleadProcess> {
      const env = { KUBECONFIG: own, NATS_URL: natsAs('fairlead-bridge.east'), FAIRLEAD_PREFIX: 'east' }
      const started = startFairlead(['agent', '--wait-seconds', '30'], env)
      await started.logged(({ msg }) => msg === 'taking requests')
      return started
    },
    sender: (user: User = 'fairlead-dispatcher.east') => Sender.connect(natsAs(user)),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}

export type Spoke = Awaited<ReturnType<typeof startSpoke>>

/** Does what the controller of aggregated ClusterRoles does, which does not run here: the rights of `fairlead`, and no others. */
async function bindAggregated(kube: KubeClient): Promise<void> {
  for (const role of ['fairlead-item-watch', 'fairlead-item-impersonate'])
    await kube.create(resourcePath(BINDINGS), {
      apiVersion: `${BINDINGS.group}/v1`,
      kind: 'ClusterRoleBinding',
      metadata: { name: `test-${role}` },
      roleRef: { apiGroup: BINDINGS.group, kind: 'ClusterRole', name: role },
      subjects: [{ kind: 'ServiceAccount', name: 'fairlead', namespace: 'fairlead-system' }],
    })
}

export const ACCOUNT = 'system:serviceaccount:fairlead-system:fairlead-item'
export const MAPS = '/api/v1/namespaces/default/configmaps'

const SUBJECTS = agentSubjects('east')

/** Speaks to agents as a dispatcher that somebody has broken into. */
class Sender implements AsyncDisposable {
  readonly js: JetStream

  constructor(js: JetStream) {
    this.js = js
  }

  static async connect(servers: string): Promise<Sender> {
    const inboxPrefix = `${SUBJECTS.answers}.${randomUUID()}`
    return new Sender(await connectJetStream({ servers, name: 'sender', inboxPrefix, timeoutMs: 5000 }))
  }

  async session(): Promise<AgentSession> {
    const [first] = await this.sessions(1)
    if (first === undefined) throw new Error('no agent answers')
    return first
  }

  /** Returns the sessions of so many agents. */
  async sessions(count: number): Promise<AgentSession[]> {
    let left = count
    const answers = await this.js.ask(SUBJECTS.sessions, '', () => --left === 0, 5000)
    return answers.map((answer) => answer.json<AgentSession>())
  }

  /** Resolves if the agent still takes messages of its own, and rejects if nobody does. */
  async reach(agent: string): Promise<void> {
    await this.js.ask(SUBJECTS.requestsTo(agent), '', () => true, 5000)
  }

  /** The head of the creation of a ConfigMap, which is allowed for 20 s. */
  head(session: AgentSession, changed: object = {}): AgentRequest {
    const { token, clock } = session
    const until = clock + 20_000
    const base = { id: randomUUID(), token, until, method: 'POST', target: MAPS, as: ACCOUNT }
    return { ...base, contentType: 'application/json', ...changed }
  }

  /** Returns the answer and its body. */
  async ask(agent: string, head: AgentRequest, body: string, withinMs = 20_000): Promise<[AgentAnswer, string]> {
    const message = await packed(head, body)
    const parts = await this.js.ask(SUBJECTS.requestsTo(agent), message, ({ data }) => isLastPart(data), withinMs)
    const { head: answer, body: text } = await unpacked(joined(parts.map(({ data }) => data)))
    return [answer as AgentAnswer, text]
  }

  /** Sends without waiting for an answer. */
  async send(agent: string, head: AgentRequest | AgentCancel, body: string): Promise<void> {
    this.js.nc.publish(SUBJECTS.requestsTo(agent), await packed(head, body), { reply: this.js.newInbox() })
    await this.js.nc.flush()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.js.close()
  }
}

/** The body of a ConfigMap with this name. */
export const mapNamed = (name: string): string =>
  JSON.stringify({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace: 'default' } })

/** A proxy between an agent and its API server. It keeps the answer to the first request that matches after hold(). */
export async function startHoldingProxy(kubeconfig: string) {
  const { server: target, ca } = await loadKubeConfig({ paths: [kubeconfig] })
  const { hostname, port } = new URL(target)
  let holds: RegExp | undefined
  let held = Promise.withResolvers<number | undefined>()
  let release = () => {}
  const proxy = createServer((incoming, response) => {
    const { method, url = '', headers } = incoming
    const onward = request({ hostname, port, path: url, method, ca, headers }, (answer) => {
      const pass = () => {
        response.writeHead(answer.statusCode ?? 0, answer.headers)
        answer.pipe(response)
      }
      if (!holds?.test(`${method} ${url}`)) return pass()
      holds = undefined
      release = pass
      held.resolve(answer.statusCode)
    })
    response.on('close', () => onward.destroy())
    onward.on('error', () => response.destroy())
    incoming.pipe(onward)
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    /** Resolves with the code of the answer that the agent does not get. */
    hold(request: RegExp): Promise<number | undefined> {
      holds = request
      held = Promise.withResolvers()
      return held.promise
    },
    /** The agent gets the answer that was kept. */
    release: () => release(),
    async [Symbol.asyncDispose]() {
      proxy.closeAllConnections()
      await new Promise((resolve) => proxy.close(resolve))
    },
  }
}
