import type { ResourceRef } from '#contracts'
import type { KubeClient } from './types.ts'

/** A resource type that the API server serves. */
export interface ServedResource extends ResourceRef {
  kind: string
  namespaced: boolean
  /** Other names that kubectl accepts for it. */
  aliases: string[]
}

/** Aggregated discovery (Kubernetes 1.30): one answer each for the core group and for all others. */
const ACCEPT = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList'

interface DiscoveryList {
  items: {
    metadata: { name?: string }
    versions: {
      version: string
      resources?: {
        resource: string
        responseKind?: { kind: string }
        scope: 'Namespaced' | 'Cluster'
        singularResource?: string
        shortNames?: string[]
      }[]
    }[]
  }[]
}

/** Returns every resource type in every version that is served, in the server's order of preference. */
export async function servedResources(kube: Pick<KubeClient, 'get'>, signal?: AbortSignal): Promise<ServedResource[]> {
  const answers = await Promise.all(
    ['/api', '/apis'].map((path) => kube.get<DiscoveryList>(path, { accept: ACCEPT, signal })),
  )
  return answers.flatMap(({ items }) => items).flatMap(resourcesOf)
}

const resourcesOf = ({ metadata: { name: group = '' }, versions }: DiscoveryList['items'][number]): ServedResource[] =>
  versions.flatMap(({ version, resources = [] }) =>
    resources.flatMap(({ resource, responseKind, scope, singularResource = '', shortNames = [] }) => {
      if (responseKind === undefined) return []
      const aliases = [singularResource, responseKind.kind.toLowerCase(), ...shortNames].filter((alias) => alias !== '')
      return { group, version, resource, kind: responseKind.kind, namespaced: scope === 'Namespaced', aliases }
    }),
  )
