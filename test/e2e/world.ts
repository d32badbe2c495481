import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { createKubeClient, isAlreadyExists, isRetriable, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import type { AuditedRequest, Cluster } from '#lab'
import { command } from '../support/command.ts'
import { type FairleadProcess, startFairlead } from '../support/fairlead.ts'
import type { Kubectl } from '../support/kubectl.ts'
import { startTestCluster } from '../support/servers.ts'
import { type Patience, until as untilHolds } from '../support/wait.ts'

export const ATS = { group: 'cnat.programming-kubernetes.info', version: 'v1alpha1', resource: 'ats' }
const PODS = { group: '', version: 'v1', resource: 'pods' }

export interface At extends KubeObject {
  spec: { schedule: string; command: string }
  status?: {
    phase?: string
    /** There if it had to wait for it. */
    scheduledTime?: string
    podName?: string
    conditions?: { type: string; status: string; reason: string; message: string }[]
  }
}

export const at = (name: string, due: Date, command = 'echo YAY'): object => ({
  apiVersion: `${ATS.group}/${ATS.version}`,
  kind: 'At',
  metadata: { name, namespace: 'default' },
  spec: { schedule: due.toISOString(), command },
})

type Environment = Record<string, string>

/** Calls `fairlead install` with these arguments. */
export const installing =
  (...args: string[]) =>
  async (env: Environment): Promise<void> => {
    const installed = await command(['install', ...args], env)
    if (installed.code !== 0) throw new Error(`fairlead install failed: ${installed.stderr}`)
  }
const installBuiltin = installing('--builtin', 'all')

/** Real servers on which `fairlead install` has been called. */
export const startWorld = (options: Parameters<typeof startTestCluster>[0] = {}, installWith = installBuiltin) =>
  worldOn(startTestCluster({ nats: true, audit: true, ...options }), installWith)

/** As startWorld(), on these servers. */
export async function worldOn(starting: Promise<Cluster>, installWith = installBuiltin): Promise<World> {
  const cluster = await starting
  try {
    const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', FAIRLEAD_LEASE_SECONDS: '3' }
    await installWith(env)
    const access = await loadKubeConfig({ paths: [cluster.kubeconfig] })
    return new World(cluster, env, createKubeClient({ ...access, userAgent: 'fairlead-test' }))
  } catch (error) {
    await cluster.stop()
    throw error
  }
}

export class World {
  readonly cluster: Cluster
  readonly env: Environment
  readonly kube: KubeClient

  constructor(cluster: Cluster, env: Environment, kube: KubeClient) {
    this.cluster = cluster
    this.env = env
    this.kube = kube
  }

  up(): FairleadProcess {
    return startFairlead(['up', '--builtin', 'all'], this.env)
  }

  /** Created as soon as the API server can be reached. */
  async create(object: object): Promise<void> {
    await whileAway(async () => {
      try {
        await this.kube.create(resourcePath(ATS, 'default'), object)
      } catch (error) {
        if (!isAlreadyExists(error)) throw error
      }
    })
  }

  ats(): Promise<At[]> {
    return whileAway(() => this.#list<At>(ATS))
  }

  pods(): Promise<KubeObject[]> {
    return whileAway(() => this.#list<KubeObject>(PODS))
  }

  async #list<T>(ref: typeof ATS): Promise<T[]> {
    const all: T[] = []
    for await (const { items } of this.kube.list<T>(resourcePath(ref, 'default'))) all.push(...items)
    return all
  }

  /** The requests to create a pod, by its name, in the API server's own words. */
  async podRequests(): Promise<Map<string, AuditedRequest[]>> {
    const requests = await this.cluster.audit()
    const creating = requests.filter(({ verb, resource }) => verb === 'create' && resource === 'pods')
    return Map.groupBy(creating, ({ name }) => name)
  }

  /** When the API server took each request that created this pod. */
  async podCreations(name: string): Promise<number[]> {
    const requests = (await this.podRequests()).get(name) ?? []
    return requests.filter(({ code }) => code === 201).map(({ receivedAt }) => receivedAt)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kube.close()
    await this.cluster.stop()
  }
}

/** Tries again as long as the API server is away or still starting. */
export async function whileAway<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call()
    } catch (error) {
      if (!isRetriable(error)) throw error
      await sleep(100)
    }
  }
}

/** Returns when an At has that phase, as kubectl sees it. */
export const untilPhase = (kubectl: Kubectl, phase: string, name: string): Promise<string> =>
  kubectl(['wait', `--for=jsonpath={.status.phase}=${phase}`, `at/${name}`, '--timeout=240s'])

export const until = <T>(condition: () => T | Promise<T>, patience: Patience = {}): Promise<T> =>
  untilHolds(condition, { leastMs: 250, ...patience })
