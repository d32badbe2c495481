import type { KubeObject, ResourceRef } from '#contracts'
import { isRefused, type OwnedResource, RECONCILERS, type SelectedResource } from '#spec'
import { parseReconciler, type Reconciler } from '../../bridge/reconcilers.ts'

export const widgets = { group: 'example.com', version: 'v1', resource: 'widgets', kind: 'Widget' }
export const configMaps = { group: '', version: 'v1', resource: 'configmaps', kind: 'ConfigMap' }
export const secrets = { group: '', version: 'v1', resource: 'secrets', kind: 'Secret' }
export const pods = { group: '', version: 'v1', resource: 'pods', kind: 'Pod' }

type Primary = ResourceRef & SelectedResource & { kind: string }
type Spec = { for: Primary; owns?: Partial<OwnedResource>[]; [field: string]: unknown }

export const reconcilerObject = (name: string, spec: Spec): KubeObject => ({
  apiVersion: `${RECONCILERS.group}/${RECONCILERS.version}`,
  kind: 'Reconciler',
  metadata: { name },
  spec: { invoke: { pull: {} }, ...spec },
})

export function reconciler(name: string, spec: Spec): Reconciler {
  const entry = parseReconciler(reconcilerObject(name, spec))
  if (isRefused(entry)) throw new Error(entry.message)
  return entry
}

export function object(kind: string, name: string, metadata: Partial<KubeObject['metadata']> = {}): KubeObject {
  return { apiVersion: 'v1', kind, metadata: { name, namespace: 'default', ...metadata } }
}

export const controlledBy = (kind: string, name: string, apiVersion = 'example.com/v1') => ({
  ownerReferences: [{ apiVersion, kind, name, uid: `uid-${name}`, controller: true }],
})
