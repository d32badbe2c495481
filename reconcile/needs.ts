import { groupOf, isRecord, type KubeObject } from '#contracts'

/**
 * The fields of Kubernetes' built-in kinds that name an object, each with the kind. A field has its parent where that
 * is necessary.
 */
const NAMED_IN: Record<string, string> = {
  'configMap.name': 'ConfigMap',
  'configMapRef.name': 'ConfigMap',
  'configMapKeyRef.name': 'ConfigMap',
  secretName: 'Secret',
  'secret.name': 'Secret',
  'secrets.name': 'Secret',
  'secretRef.name': 'Secret',
  'secretKeyRef.name': 'Secret',
  'imagePullSecrets.name': 'Secret',
  claimName: 'PersistentVolumeClaim',
  serviceAccountName: 'ServiceAccount',
  serviceName: 'Service',
  'service.name': 'Service',
}

/**
 * Returns the objects that this object needs: its namespace, the definition of its kind, the volumes that it mounts,
 * and the objects that it refers to by kind and name, such as the role and the subjects of a binding.
 */
export function neededBy({ apiVersion, kind, metadata, ...content }: KubeObject): Set<string> {
  const { namespace } = metadata
  const needed = new Set([typeOf(groupOf(apiVersion), kind)])
  if (namespace !== undefined) needed.add(keyOf('Namespace', undefined, namespace))
  collect('', { ...content, status: undefined })
  return needed

  function collect(parent: string, value: unknown): void {
    if (Array.isArray(value)) for (const item of value) collect(parent, item)
    if (!isRecord(value)) return
    const { kind: other, name, namespace: where = namespace } = value
    if (typeof other === 'string' && typeof name === 'string') add(other, name, where)
    for (const [field, inner] of Object.entries(value)) {
      const named = NAMED_IN[field] ?? NAMED_IN[`${parent}.${field}`]
      if (named !== undefined && typeof inner === 'string') add(named, inner, namespace)
      collect(field, inner)
    }
  }

  /** Adds both keys, because it is not known here whether the kind is namespaced. */
  function add(other: string, name: string, where: unknown): void {
    needed.add(keyOf(other, where, name)).add(keyOf(other, undefined, name))
  }
}

/** Returns what the object is in the needs of others: itself, or the type that it defines. */
export function providedIn({ kind, metadata, ...content }: KubeObject): string {
  const spec = content.spec as { group?: unknown; names?: { kind?: unknown } } | undefined
  if (kind === 'CustomResourceDefinition') return typeOf(spec?.group, spec?.names?.kind)
  return keyOf(kind, metadata.namespace, metadata.name)
}

const typeOf = (group: unknown, kind: unknown): string => `${String(group)}/${String(kind)}`

const keyOf = (kind: string, namespace: unknown, name: string): string => JSON.stringify([kind, namespace ?? '', name])
