import type { KubeObject } from '#contracts'
import { functionRbac } from '#install/rbac'
import { ApiPathError, resourcePath } from '#kube'
import { RECONCILERS, type ReconcilerSpec, userNameOf } from '#spec'

/** What a request asks the API server for, in the terms of RBAC. */
export interface Asked {
  verb: string
  group: string
  /** With its subresource: `pods/eviction`. */
  resource: string
  namespace: string | undefined
  name: string | undefined
  path: string
  query: Record<string, string>
}

const VERBS = { GET: ['get', 'list'], POST: ['create', 'create'], PATCH: ['patch'], DELETE: ['delete'] } as const
export type Method = keyof typeof VERBS

/** The parameters that a dispatcher sends. */
const PARAMETERS = ['fieldManager', 'force', 'dryRun']
/** The subresources of namespaces, whose paths look like those of a resource in the namespace. */
const OF_NAMESPACES = ['status', 'finalize']

/** Returns what a request asks for, or why it is refused: its path has to be exactly as resourcePath() writes it. */
export function askedBy(method: Method, target: string): Asked | string {
  const [path = '', search = '', ...more] = target.split('?')
  const [empty, api, ...rest] = path.split('/').map(decoded)
  const [group = '', version = '', ...parts] = api === 'apis' ? rest : ['', ...rest]
  const isInside = parts[0] === 'namespaces' && parts.length > 2 && !OF_NAMESPACES.includes(parts[2] ?? '')
  const [namespace, [resource = '', name, subresource, ...deeper]] = isInside
    ? [parts[1], parts.slice(2)]
    : [undefined, parts]
  const query = new URLSearchParams(search)
  const isKnown = [...query.keys()].every((key, index, all) => PARAMETERS.includes(key) && all.indexOf(key) === index)
  if (empty !== '' || more.length > 0 || deeper.length > 0 || !isKnown || !isCanonical())
    return 'it is not the path of one resource or object'
  const verb = VERBS[method][name === undefined ? 1 : 0]
  if (verb === undefined) return 'it is for all objects of a resource'
  const asked = { verb, group, namespace, name, path, query: Object.fromEntries(query) }
  return { ...asked, resource: subresource === undefined ? resource : `${resource}/${subresource}` }

  function isCanonical(): boolean {
    try {
      return resourcePath({ group, version, resource }, namespace, name, subresource) === path
    } catch (error) {
      if (error instanceof ApiPathError) return false
      throw error
    }
  }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return ''
  }
}

/** The requests that a dispatcher sends for itself: who the cluster is, and the conditions of Reconcilers. */
export const isForItself = ({ verb, group, resource, name, namespace }: Asked): boolean =>
  namespace === undefined &&
  (group === ''
    ? verb === 'get' && resource === 'namespaces' && name === 'kube-system'
    : verb === 'patch' && group === RECONCILERS.group && resource === `${RECONCILERS.resource}/status`)

interface Declared {
  name: string
  spec: ReconcilerSpec
}

interface Rule {
  apiGroups: string[]
  resources: string[]
  verbs: string[]
  resourceNames?: string[]
}

interface Bound extends KubeObject {
  roleRef: { kind: string; name: string }
  subjects: { kind: string; name: string; namespace?: string }[]
}

/** What a Reconciler of another spec may do is not asked again. */
const generated = new WeakMap<ReconcilerSpec, KubeObject[]>()

/** Returns whether one of the Reconcilers whose account this is declares the request: by the RBAC that `install` makes of it. */
export const isDeclared = (reconcilers: readonly Declared[], user: string, asked: Asked): boolean =>
  // A token of an account would be a credential that leaves the cluster.
  asked.resource !== 'serviceaccounts/token' &&
  reconcilers.some(
    (one) => one.spec.serviceAccount && userNameOf(one.spec.serviceAccount) === user && allows(one, asked),
  )

function allows({ name, spec }: Declared, asked: Asked): boolean {
  const objects = generated.get(spec) ?? rbacOf({ name, spec })
  generated.set(spec, objects)
  const { name: account, namespace } = spec.serviceAccount ?? {}
  return (objects as Bound[]).some(({ kind, metadata, roleRef, subjects }) => {
    const reaches = kind === 'ClusterRoleBinding' || (kind === 'RoleBinding' && metadata.namespace === asked.namespace)
    if (!reaches || !subjects.some((one) => one.name === account && one.namespace === namespace)) return false
    const role: (KubeObject & { rules?: Rule[] }) | undefined = objects.find(
      (one) =>
        one.kind === roleRef.kind &&
        one.metadata.name === roleRef.name &&
        (one.kind === 'ClusterRole' || one.metadata.namespace === metadata.namespace),
    )
    return role?.rules?.some((rule) => matches(rule, asked)) === true
  })
}

/** A Reconciler may have a name for which nothing is installed. */
function rbacOf({ name, spec }: Declared): KubeObject[] {
  try {
    return functionRbac({ metadata: { name }, spec })
  } catch {
    return []
  }
}

const matches = (
  { apiGroups, resources, verbs, resourceNames }: Rule,
  { group, resource, verb, name }: Asked,
): boolean =>
  apiGroups.includes(group) &&
  resources.includes(resource) &&
  verbs.includes(verb) &&
  (resourceNames === undefined || resourceNames.includes(name ?? ''))
