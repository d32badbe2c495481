import type { KubeObject } from '#contracts'
import { createKubeClient, isNotFound, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import type { ProcessGroup } from '../processes.ts'
import type { NodeOptions } from './options.ts'

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
