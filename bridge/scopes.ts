import { type ResourceRef, resourceName } from '#contracts'
import { isNotFound, type KubeClient } from '#kube'

interface ResourceList {
  resources: { name: string; namespaced: boolean }[]
}

/** Which resources are cluster-scoped, as the API server's discovery says; asked once per resource. */
export class Scopes {
  readonly #kube: KubeClient
  readonly #clusterScoped = new Map<string, boolean>()

  constructor(kube: KubeClient) {
    this.#kube = kube
  }

  /** Answers from what learn() has found; a resource that is not served counts as namespaced. */
  isClusterScoped = (ref: ResourceRef): boolean => this.#clusterScoped.get(resourceName(ref)) === true

  async learn(refs: readonly ResourceRef[], signal: AbortSignal): Promise<void> {
    for (const ref of refs) {
      if (this.#clusterScoped.has(resourceName(ref))) continue
      const found = await this.#ask(ref, signal)
      if (found !== undefined) this.#clusterScoped.set(resourceName(ref), found)
    }
  }

  /** A definition that was removed may come back with another scope. */
  forget(ref: ResourceRef): void {
    this.#clusterScoped.delete(resourceName(ref))
  }

  async #ask({ group, version, resource }: ResourceRef, signal: AbortSignal): Promise<boolean | undefined> {
    try {
      const path = group === '' ? `/api/${version}` : `/apis/${group}/${version}`
      const { resources } = await this.#kube.request<ResourceList>({ method: 'GET', path, signal })
      const found = resources.find(({ name }) => name === resource)
      return found && !found.namespaced
    } catch (error) {
      if (isNotFound(error)) return undefined
      throw error
    }
  }
}
