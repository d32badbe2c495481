import { fileURLToPath } from 'node:url'
import type { KubeObject } from '#contracts'
import { createKubeClient, isNotFound, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import type { ProcessGroup } from '../processes.ts'
import { KWOK_NODE_NAME, type NodeOptions } from './options.ts'

/** The transitions of nodes and pods, with their delays. */
const STAGES = fileURLToPath(new URL('kwok-stages.yaml', import.meta.url))

/**
 * Starts a simulated node: pods are scheduled to it and get phases, but no container runs. It needs neither root nor
 * packages of the system, and several clusters may have one. `missing`: the reasons why there is no real node; empty if
 * KWOK was chosen.
 */
export async function startKwok(options: Omit<NodeOptions, 'ephemeral'>, missing: string[]): Promise<void> {
  options.progress.line(kwokNotice(missing))
  const { processes, binaries, kubeconfig } = options
  await processes.start({
    name: 'kwok',
    command: binaries('kwok'),
    args: [
      `--config=${STAGES}`,
      `--kubeconfig=${kubeconfig}`,
      '--manage-nodes-with-label-selector=type=kwok',
      '--node-lease-duration-seconds=40',
    ],
    stopSignal: 'SIGKILL',
  })
  await using kube = await administrator(options)
  await applyObjects(kube, [KWOK_NODE])
  await nodeReady(kube, processes, KWOK_NODE_NAME)
}

export function kwokNotice(missing: string[]): string {
  const why = missing.length === 0 ? 'as asked for' : `this machine lacks ${missing.join(', ')}`
  return (
    `No real node: ${why}. KWOK pretends instead: ` +
    'pods get phases (Running, then Succeeded unless they restart always) but run nothing, so there are no logs'
  )
}

const KWOK_NODE = {
  apiVersion: 'v1',
  kind: 'Node',
  metadata: {
    name: KWOK_NODE_NAME,
    labels: {
      type: 'kwok',
      'kubernetes.io/arch': 'amd64',
      'kubernetes.io/hostname': KWOK_NODE_NAME,
      'kubernetes.io/os': 'linux',
    },
  },
}

/** The plural of each kind that a node needs. */
const RESOURCES: Record<string, string> = {
  ClusterRole: 'clusterroles',
  ClusterRoleBinding: 'clusterrolebindings',
  EndpointSlice: 'endpointslices',
  Node: 'nodes',
  Service: 'services',
}

const FIELD_MANAGER = 'fairlead-local'

export async function administrator({ kubeconfig }: Pick<NodeOptions, 'kubeconfig'>): Promise<KubeClient> {
  return createKubeClient({ ...(await loadKubeConfig({ paths: [kubeconfig] })), userAgent: FIELD_MANAGER })
}

/** Creates the objects or updates them. */
export async function applyObjects(kube: KubeClient, objects: KubeObject[]): Promise<void> {
  await Promise.all(objects.map((each) => kube.apply(pathOf(each), each, { fieldManager: FIELD_MANAGER, force: true })))
}

function pathOf({ apiVersion, kind, metadata }: KubeObject): string {
  const [version = '', group = ''] = apiVersion.split('/').reverse()
  const resource = RESOURCES[kind]
  if (resource === undefined) throw new Error(`a node has no objects of kind ${kind}: add its plural to RESOURCES`)
  return resourcePath({ group, version, resource }, metadata.namespace, metadata.name)
}

interface NodeObject extends KubeObject {
  status?: { conditions?: { type: string; status: string }[] }
}

/** Resolves when the node reports the condition Ready. */
export async function nodeReady(kube: KubeClient, processes: ProcessGroup, name: string): Promise<void> {
  const path = resourcePath({ group: '', version: 'v1', resource: 'nodes' }, undefined, name)
  await processes.waitFor(`the node ${name}`, async () => isReady(await nodeAt(kube, path)), 120_000)
}

async function nodeAt(kube: KubeClient, path: string): Promise<NodeObject | undefined> {
  return kube.get<NodeObject>(path).catch((error: unknown) => {
    if (isNotFound(error)) return undefined
    throw error
  })
}

function isReady(node: NodeObject | undefined): boolean {
  return node?.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') ?? false
}
