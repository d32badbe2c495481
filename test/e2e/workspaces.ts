import { join } from 'node:path'
import { ConfigMap, type Kind, type KubeObject, Namespace, NetworkPolicy, ResourceQuota, RoleBinding } from 'fairlead'
import { install } from '#install'
import { createKubeClient, isAlreadyExists, isNotFound, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import type { Cluster } from '#lab'
import { Workspace } from '../../docs/examples/workspace/resource.ts'
import { workspace } from '../../docs/examples/workspace/workspace.ts'
import { kubeconfigOf } from '../support/account.ts'
import { type FairleadProcess, startFairlead } from '../support/fairlead.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { startTestCluster } from '../support/servers.ts'
import { until as untilHolds } from '../support/wait.ts'
import { type Replica, startReplicas } from './chaos.ts'
import { upgraded } from './workspace-upgraded.ts'
import { whileAway } from './world.ts'

const EXAMPLE = join(import.meta.dirname, '../../docs/examples/workspace/workspace.ts')
const UPGRADED = join(import.meta.dirname, 'workspace-upgraded.ts')
const FUNCTION_ACCOUNT = 'system:serviceaccount:fairlead-system:fairlead-workspace'
const ROLE = resourcePath(
  { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'clusterroles' },
  undefined,
  'fairlead-workspace',
)
const PARTS = [
  [Namespace, ''],
  [ResourceQuota, 'limits'],
  [RoleBinding, 'admins'],
  [NetworkPolicy, 'same-namespace'],
  [ConfigMap, 'settings'],
] as const

/** Other tests may be running on the same cores. */
export const until = <T>(condition: () => T | Promise<T>): Promise<T> => untilHolds(condition)

type Spec = Parameters<typeof Workspace.of>[0]['spec']

/** Two processes of `fairlead up` that serve the example, as the account and with the rights that its installation gives. */
export async function startWorkspaces(): Promise<Workspaces> {
  const cluster = await startTestCluster({ nats: true, controllers: true, audit: true })
  const kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  await install(kube, [workspace])
  // It looks for new kinds every 30 s, and collects nothing of those that it does not know.
  await cluster.restart('kube-controller-manager')
  const account = { namespace: 'fairlead-system', name: 'fairlead' }
  const env = {
    KUBECONFIG: await kubeconfigOf(kube, cluster.kubeconfig, account),
    NATS_URL: cluster.nats?.url ?? '',
    FAIRLEAD_LEASE_SECONDS: '3',
  }
  const world = new Workspaces(cluster, kube, await kubectlFor(cluster), env)
  world.replicas.push(...(await startReplicas(world, 2)))
  const template = {
    metadata: { name: 'defaults', namespace: 'platform', labels: { 'tenancy.example.com/template': '' } },
  }
  await kube.create('/api/v1/namespaces', { metadata: { name: 'platform' } })
  await kube.create(resourcePath(ConfigMap, 'platform'), { ...template, data: { text: 'one: {{name}}' } })
  return world
}

export class Workspaces implements AsyncDisposable {
  readonly cluster: Cluster
  readonly kube: KubeClient
  readonly kubectl: Kubectl
  readonly replicas: Replica[] = []
  readonly #env: Record<string, string>
  #file = EXAMPLE

  constructor(cluster: Cluster, kube: KubeClient, kubectl: Kubectl, env: Record<string, string>) {
    this.cluster = cluster
    this.kube = kube
    this.kubectl = kubectl
    this.#env = env
  }

  up(): FairleadProcess {
    return startFairlead(['up', '-f', this.#file], { ...this.#env, FAIRLEAD_REVISION: this.#file })
  }

  /** Installs the later revision, and starts one process after the other with it. */
  async upgrade(): Promise<void> {
    await install(this.kube, [upgraded])
    this.#file = UPGRADED
    for (const replica of this.replicas) await restart(replica)
  }

  create(name: string, spec: Partial<Spec> = {}): Promise<unknown> {
    const given = { admins: `${name}-admins`, template: { namespace: 'platform', name: 'defaults' }, ...spec }
    return whileAway(() =>
      this.kube
        .create(resourcePath(Workspace), Workspace.of({ metadata: { name }, spec: given }))
        .catch((error: unknown) => {
          if (!isAlreadyExists(error)) throw error
        }),
    )
  }

  async get(kind: Kind<unknown>, name: string, namespace?: string): Promise<KubeObject | undefined> {
    return whileAway(() =>
      this.kube.get<KubeObject>(resourcePath(kind, namespace, name)).catch((error: unknown) => {
        if (isNotFound(error)) return undefined
        throw error
      }),
    )
  }

  patch(kind: Kind<unknown>, name: string, patch: object, namespace?: string): Promise<unknown> {
    return whileAway(() => this.kube.patch(resourcePath(kind, namespace, name), patch, 'merge'))
  }

  delete(kind: Kind<unknown>, name: string, namespace?: string): Promise<void> {
    return whileAway(async () => {
      await this.kube.delete(resourcePath(kind, namespace, name), { propagationPolicy: 'Background' }).catch(ignoreGone)
    })
  }

  async statusOf(name: string) {
    const object = await this.get(Workspace, name)
    return object && Workspace.parse(object).status
  }

  async condition(name: string, type: string) {
    return (await this.statusOf(name))?.conditions?.find((one) => one.type === type)
  }

  untilReady = (name: string, phase: string): Promise<unknown> =>
    until(
      async () =>
        (await this.condition(name, 'Ready'))?.status === 'True' && (await this.statusOf(name))?.phase === phase,
    )

  untilProblem = (name: string, reason: string): Promise<unknown> =>
    until(async () => (await this.condition(name, 'Ready'))?.reason === reason)

  untilGone = (kind: Kind<unknown>, name: string, namespace?: string): Promise<unknown> =>
    until(async () => (await this.get(kind, name, namespace)) === undefined)

  /** The parts of a Workspace that exist, with their uids. */
  async partsOf(name: string, role: 'admins' | 'views' = 'admins'): Promise<Record<string, string | undefined>> {
    const found = PARTS.map(async ([kind, part]) => {
      const isNamespace = kind === Namespace
      const named = isNamespace ? name : part === 'admins' ? role : part
      return [kind.kind, (await this.get(kind, named, isNamespace ? undefined : name))?.metadata.uid] as const
    })
    return Object.fromEntries(await Promise.all(found))
  }

  /** What the function has left of Workspaces whose name begins so. */
  async recordsOf(prefix: string): Promise<string[]> {
    const records: string[] = []
    for await (const { items } of this.kube.list<KubeObject>(resourcePath(ConfigMap, 'platform')))
      records.push(...items.map(({ data }) => (data as { workspace?: string }).workspace ?? ''))
    return records.filter((name) => name.startsWith(prefix)).sort()
  }

  /**
   * Returns how often the API server has created objects in namespaces with this prefix for the function, and the
   * namespaces themselves.
   */
  async creationsIn(prefix: string): Promise<number[]> {
    const made = (await this.cluster.audit()).filter(
      ({ actedAs, code, namespace, name, resource }) =>
        actedAs === FUNCTION_ACCOUNT &&
        code === 201 &&
        (resource === 'namespaces' ? name : namespace).startsWith(prefix),
    )
    const counts = Map.groupBy(made, ({ resource, namespace, name }) => `${resource} ${namespace}/${name}`)
    return [...counts.values()].map(({ length }) => length)
  }

  /** Takes the rules with this verb or resource from the generated rights. Returns how to give them back. */
  async forbid(word: string): Promise<() => Promise<unknown>> {
    const { rules } = await this.kube.get<{ rules: { verbs: string[]; resources: string[] }[] }>(ROLE)
    const left = rules.filter(({ verbs, resources }) => !verbs.includes(word) && !resources.includes(word))
    await this.kube.patch(ROLE, { rules: left }, 'merge')
    return () => this.kube.patch(ROLE, { rules }, 'merge')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.replicas.map((replica) => replica.kill()))
    await this.kube.close()
    await this.cluster.stop()
  }
}

const ignoreGone = (error: unknown): void => {
  if (!isNotFound(error)) throw error
}

/** kill -9, and a new process in its place. */
export async function restart(replica: Replica): Promise<void> {
  await replica.kill()
  await replica.start().logged(({ msg }) => msg === 'started')
}
