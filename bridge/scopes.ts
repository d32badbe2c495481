import { type ResourceRef, resourceName } from '#contracts'
import { isNotFound, type KubeClient } from '#kube'

interface ResourceList {
  resources: { name: string; namespaced: boolean }[]
}

/** The cluster-scoped resources, from the API server's discovery, which is asked once. */
export class Scopes {
  readonly #kube: KubeClient
  readonly #clusterScoped = new Map<string, boolean>()

  constructor(kube: KubeClient) {
    this.#kube = kube
  }

  /** Answers from the results of learn(). A resource that is not served counts as namespaced. */
  isClusterScoped = (ref: ResourceRef): boolean => this.#clusterScoped.get(resourceName(ref)) === true

  /** Sends one request for each unknown API group and version. */
  async learn(refs: readonly ResourceRef[], signal: AbortSignal): Promise<void> {
    const unknown = refs.filter((ref) => !this.#clusterScoped.has(resourceName(ref)))
    for (const [path, asked] of Map.groupBy(unknown, discoveryPath)) {
      const served = await this.#ask(path, signal)
      for (const ref of asked) {
        const found = served.find(({ name }) => name === ref.resource)
        if (found) this.#clusterScoped.set(resourceName(ref), !found.namespaced)
      }
    }
  }

  /** Forgets a resource: a definition that was removed may be installed again with another scope. */
  forget(ref: ResourceRef): void {
    this.#clusterScoped.delete(resourceName(ref))
  }

  async #ask(path: string, signal: AbortSignal): Promise<ResourceList['resources']> {
    try {
      return (await this.#kube.request<ResourceList>({ method: 'GET', path, signal })).resources
    } catch (error) {
      if (isNotFound(error)) return []
      throw error
    }
  }
}

const discoveryPath = ({ group, version }: ResourceRef): string =>
  group === '' ? `/api/${version}` : `/apis/${group}/${version}`
