import type { KubeObject, ObjectMeta } from '#contracts'
import { ownershipMark, RECONCILER_ANNOTATION } from '#reconcile'
import type { OwnedResource } from '#spec'
import type { World } from '../../reconcile/world.ts'

export const WIDGETS = { group: 'test.fairlead.dev', version: 'v1', resource: 'widgets', kind: 'Widget' }
export const PODS = { group: '', version: 'v1', resource: 'pods', kind: 'Pod', strategy: 'CreateOnly' } as const
const APPLIED = { group: '', version: 'v1', strategy: 'Apply' } as const
export const CONFIG_MAPS = { ...APPLIED, resource: 'configmaps', kind: 'ConfigMap' }
export const SECRETS = { ...APPLIED, resource: 'secrets', kind: 'Secret' }
export const BINDINGS = {
  ...APPLIED,
  group: 'rbac.authorization.k8s.io',
  resource: 'rolebindings',
  kind: 'RoleBinding',
}
export const JOBS = { group: 'batch', version: 'v1', resource: 'jobs', kind: 'Job', strategy: 'Recreate' } as const

export const pod = (name: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name },
  spec: { containers: [{ name: 'c', image: 'busybox' }] },
})

export const configMap = (name: string, data: Record<string, string> = {}): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name },
  data,
})

export const secret = (name: string, stringData: Record<string, string>): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name },
  stringData,
})

export const widget = (more: { metadata?: Partial<ObjectMeta>; status?: unknown } = {}): KubeObject => ({
  apiVersion: 'test.fairlead.dev/v1',
  kind: 'Widget',
  ...more,
  metadata: {
    name: 'w',
    namespace: 'default',
    uid: 'uid-w',
    resourceVersion: '100',
    generation: 1,
    ...more.metadata,
  },
})

export const ownedByWidget = (uid = 'uid-w') => ({
  apiVersion: 'test.fairlead.dev/v1',
  kind: 'Widget',
  name: 'w',
  uid,
  controller: true,
  blockOwnerDeletion: true,
})

/** The object as the reconciler creates it for this owner. */
export function createdFor(owner: KubeObject, reconciler: string, object: KubeObject): KubeObject {
  const { name, namespace = '', uid } = owner.metadata
  const metadata = { ...object.metadata, namespace, ownerReferences: [{ ...ownedByWidget(uid), name }] }
  const annotations = { [RECONCILER_ANNOTATION]: ownershipMark(reconciler, owner, { ...object, metadata }) }
  return { ...object, metadata: { ...metadata, annotations } }
}

/** A child as the API server would have it. */
export const child = (kind: string, name: string, more: { metadata?: object; [field: string]: unknown } = {}) =>
  ({
    apiVersion: 'v1',
    kind,
    ...more,
    metadata: {
      name,
      namespace: 'default',
      uid: `uid-${name}`,
      resourceVersion: '200',
      ownerReferences: [ownedByWidget()],
      ...more.metadata,
    },
  }) as KubeObject

export const world = (object: KubeObject, ...owned: KubeObject[]): World => ({
  object,
  related: [],
  patched: [],
  owned: owned.map((child) => ({
    resource: [PODS, CONFIG_MAPS, SECRETS, JOBS, BINDINGS].find(({ kind }) => kind === child.kind)! as OwnedResource,
    object: child,
  })),
})
