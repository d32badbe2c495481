import type { KubeClient } from '#kube'

/** Returns the client with other methods, which the clients that it makes for accounts and for runs have as well. */
export function replacedMethods(kube: KubeClient, methods: (of: KubeClient) => Partial<KubeClient>): KubeClient {
  return {
    ...kube,
    ...methods(kube),
    as: (...user) => replacedMethods(kube.as(...user), methods),
    with: (...how) => replacedMethods(kube.with(...how), methods),
  }
}
