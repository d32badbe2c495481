import type { KubeObject, ObjectMeta } from '#contracts'
import { ownershipMark, RECONCILER_ANNOTATION } from '#reconcile'
import type { OwnedResource } from '#spec'
import type { World } from '../../reconcile/world.ts'

export const PODS: OwnedResource = { group: '', version: 'v1', resource: 'pods', kind: 'Pod', strategy: 'CreateOnly' }
export const CONFIG_MAPS: OwnedResource = {
  group: '',
  version: 'v1',
  resource: 'configmaps',
  kind: 'ConfigMap',
  strategy: 'Apply',
}
export const SECRETS: OwnedResource = { ...CONFIG_MAPS, resource: 'secrets', kind: 'Secret' }

export const JOBS: OwnedResource = {
  group: 'batch',
  version: 'v1',
  resource: 'jobs',
  kind: 'Job',
  strategy: 'Recreate',
}

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
  owned: owned.map((child) => ({
    resource: [PODS, CONFIG_MAPS, SECRETS, JOBS].find(({ kind }) => kind === child.kind)!,
    object: child,
  })),
})
