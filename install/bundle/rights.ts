import type { KubeObject } from '#contracts'
import { UsageError } from '#host/exit'
import { manifest, type Reconciler, type ReconcilerManifest } from '#sdk'
import { functionRbac } from '../rbac.ts'

export interface BundledFunction {
  /** Calls the function where the bundle runs it. */
  reconciler: ReconcilerManifest
  /** The account's rights, which OLM binds to it. */
  permissions: { serviceAccountName: string; rules: object[] }
  /** What bridge and dispatcher need beside. */
  objects: KubeObject[]
}

/** Parts of a function whose account OLM creates in this namespace, with the rights that the bundle names. */
export function bundledFunction(one: Reconciler, namespace: string): BundledFunction {
  if (one.namespaces !== undefined)
    throw new UsageError(
      `function ${one.name} is for some namespaces alone, and OLM binds rights in all of them or in that of the operator: install it by a chart, fairlead generate chart`,
    )
  const url = `http://${serviceOf(one)}.${namespace}.svc`
  const plain = manifest(one, { invoke: { http: { url } } })
  const account = { name: `fairlead-${one.name}`, namespace }
  const reconciler = { ...plain, spec: { ...plain.spec, serviceAccount: account } }
  const all = functionRbac(reconciler)
  const isOwn = ({ kind, metadata }: KubeObject) => kind.startsWith('ClusterRole') && metadata.name === account.name
  const own = all.find((object) => isOwn(object) && object.kind === 'ClusterRole') as KubeObject & { rules: object[] }
  return {
    reconciler,
    permissions: { serviceAccountName: account.name, rules: own.rules },
    objects: all.filter((object) => !isOwn(object)).map(withoutNamespace),
  }
}

export const serviceOf = ({ name }: Reconciler): string => `${name}-function`

/** OLM puts objects into the namespace of the operator, and refuses those that name another one. */
function withoutNamespace(object: KubeObject): KubeObject {
  const { namespace: _, ...metadata } = object.metadata
  return { ...object, metadata }
}
