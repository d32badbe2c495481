import type { KubeObject, ResourceRef } from '#contracts'
import { isNotFound, type KubeClient, resourcePath, servedResources } from '#kube'
import { UsageError } from '#process/exit'

/** The namespace of objects of a kind; undefined for a cluster-scoped kind. */
export async function namespaceFor(
  kube: KubeClient,
  { group, version, resource }: ResourceRef,
  namespace: string,
): Promise<string | undefined> {
  const served = await servedResources(kube)
  const found = served.find((one) => one.group === group && one.version === version && one.resource === resource)
  return found?.namespaced === false ? undefined : namespace
}

/** Reads an object that a command names. Throws a UsageError if there is none. */
export function existing(
  kube: KubeClient,
  kind: ResourceRef & { kind: string },
  { namespace, name }: { namespace: string | undefined; name: string },
  signal?: AbortSignal,
): Promise<KubeObject> {
  return kube.get(resourcePath(kind, namespace, name), signal && { signal }).catch((cause: unknown) => {
    if (!isNotFound(cause)) throw cause
    const where = namespace === undefined ? '' : ` in namespace ${namespace}; -n names another one`
    throw new UsageError(`there is no ${kind.kind} ${name}${where}`, { cause })
  })
}
