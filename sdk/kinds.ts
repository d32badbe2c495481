import { createHash } from 'node:crypto'
import { type Act, apiVersionOf, type KubeObject, kindName, type ObjectMeta, type ResourceRef } from '#contracts'
import type { ActedResource, OwnedResource } from '#spec'
import { keysOf, refuseUnknown } from './options.ts'

/**
 * A resource type as a function uses it: its names in the API, the strategy by which its objects are written, and the
 * type of its objects.
 *
 * @example
 * import { type Kind, Pod } from 'fairlead'
 * const apiNameOf = ({ resource, group }: Kind<unknown>) => (group === '' ? resource : `${resource}.${group}`)
 * apiNameOf(Pod) // => 'pods'
 */
export interface Kind<Observed = KubeObject> extends ResourceRef {
  readonly kind: string
  readonly strategy: OwnedResource['strategy']
  /** Whether the function adopts an object that has no controller and the name of an object that it returns. */
  readonly adopt?: OwnedResource['adopt']
  /**
   * Returns the object with its type. Throws a TerminalError with path and value if the kind has a schema and the
   * object violates it.
   */
  parse(object: KubeObject): Observed
}

/**
 * A kind on whose objects a function acts, by what it returns in `act`. It observes them: the kind is in `owns` or
 * `related` too, or is what the function is for.
 *
 * @example
 * import { type ActedKind, Pod, reconciler } from 'fairlead'
 * import { outcomeOf } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const Evicted: ActedKind = { ...Pod, act: 'Evict' }
 * const Old = { ...Pod, selector: 'old' } as const
 * const cleaner = reconciler({
 *   name: 'cleaner', for: Website, related: [Old], acts: [Evicted],
 *   reconcile: ({ related }) => ({ act: related(Old).map((pod) => ({ act: 'Evict', on: pod })) }),
 * })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const pod = Pod.of({ metadata: { name: 'web-0', namespace: 'default', labels: { old: '' } } })
 * const { act } = await outcomeOf(cleaner, { object, others: [pod] })
 * act?.map(({ on }) => on.metadata.name) // => ['web-0']
 */
export interface ActedKind extends Kind<unknown> {
  readonly act: Act['act']
  /**
   * The signers whose CertificateSigningRequests may be approved or denied: `example.com/serving`, or `example.com/*` for
   * all of a domain. For `Approve` and `Deny` alone, which need it.
   *
   * @default none
   */
  readonly signers?: readonly string[]
  /**
   * Cluster: objects in all namespaces. Namespace: those in the namespace of the object, and cluster-scoped ones.
   *
   * @default 'Namespace'
   */
  readonly within?: ActedResource['within']
}

/**
 * The type of the objects of a kind.
 *
 * @example
 * import { type ObservedBy, Pod } from 'fairlead'
 * const phaseOf = (pod: ObservedBy<typeof Pod>) => pod.status?.phase ?? 'Unknown'
 * phaseOf(Pod.of({ metadata: { name: 'a' } })) // => 'Unknown'
 */
export type ObservedBy<K> = K extends Kind<infer Observed> ? Observed : never

/**
 * The JSON of a model of @kubernetes/client-node: its models are classes with Dates and underscored keywords,
 * objects here are as the API server sends them.
 */
type Json<T> = T extends Date
  ? string
  : T extends readonly (infer Item)[]
    ? Json<Item>[]
    : T extends object
      ? { [K in keyof T as K extends `_${infer Name}` ? Name : K]: Json<T[K]> }
      : T

export type TypedObject<Model> = Omit<Json<Model>, 'apiVersion' | 'kind' | 'metadata'> & {
  apiVersion: string
  kind: string
  metadata: ObjectMeta
}

/**
 * A kind without a schema: Fairlead does not validate its objects beyond what the API server has admitted.
 *
 * @example
 * import { kind, type PlainKind } from 'fairlead'
 * const Role: PlainKind<any> = kind({ group: 'rbac.authorization.k8s.io', version: 'v1', kind: 'Role', plural: 'roles' })
 * Role.of({ metadata: { name: 'reader' } }).apiVersion // => 'rbac.authorization.k8s.io/v1'
 */
export interface PlainKind<Observed> extends Kind<Observed> {
  /** Returns an object of this kind for `apply`. `status` is for tests: functions cannot apply a status. */
  of(body: Omit<Observed, 'apiVersion' | 'kind'>): Observed
}

export interface KindOptions {
  /** The API group: `''` for the kinds of the core. */
  group: string
  version: string
  kind: string
  /** The plural name in lower case, as in API paths. */
  plural: string
  /**
   * How owned objects are written. Apply: by server-side apply. CreateOnly: once. Recreate: deleted and created again.
   *
   * @default 'Apply'
   */
  strategy?: OwnedResource['strategy']
  /**
   * Whether the function takes over an object that has no controller and the name of an object that it returns.
   *
   * @default false
   */
  adopt?: boolean
}

const KIND_OPTIONS = keysOf<KindOptions>({
  group: true,
  version: true,
  kind: true,
  plural: true,
  strategy: true,
  adopt: true,
})

/**
 * Declares a resource type that is not among the built-in kinds. `Model` is a type of @kubernetes/client-node, or any
 * object type. The default strategy is `Apply`. Throws an Error that names an unknown option.
 *
 * @example
 * import { kind } from 'fairlead'
 * const Role = kind({ group: 'rbac.authorization.k8s.io', version: 'v1', kind: 'Role', plural: 'roles' })
 * Role.strategy // => 'Apply'
 */
export function kind<Model = KubeObject>(options: KindOptions): PlainKind<TypedObject<Model>> {
  refuseUnknown(options, KIND_OPTIONS, `kind ${options.kind}`)
  const { group, version, kind, plural, strategy = 'Apply', adopt } = options
  const apiVersion = apiVersionOf(options)
  return Object.freeze({
    group,
    version,
    resource: plural,
    kind,
    strategy,
    ...(adopt !== undefined && { adopt }),
    parse: (object: KubeObject) => object as unknown as TypedObject<Model>,
    of: (body: object) => ({ apiVersion, kind, ...body }) as TypedObject<Model>,
  })
}

/** The fields of an object, of which any may be left out. */
type Some<T> = T extends readonly (infer Item)[]
  ? readonly Some<Item>[]
  : T extends object
    ? { [Field in keyof T]?: Some<T[Field]> }
    : T

/**
 * Returns some fields of an object of this kind, for `patch`. Unlike `of` of a kind, no field but the name is required.
 *
 * @example
 * import { Deployment, fieldsOf } from 'fairlead'
 * const { kind, spec } = fieldsOf(Deployment, { metadata: { name: 'web', namespace: 'shop' }, spec: { replicas: 3 } })
 * kind // => 'Deployment'
 * spec // => { replicas: 3 }
 */
export const fieldsOf = <K extends Kind<unknown>>(
  kind: K,
  fields: Some<Omit<ObservedBy<K>, 'apiVersion' | 'kind' | 'metadata'>> & {
    metadata: Pick<ObjectMeta, 'name' | 'namespace' | 'labels' | 'annotations'>
  },
): KubeObject => ({ ...(fields as Pick<KubeObject, 'metadata'>), apiVersion: apiVersionOf(kind), kind: kind.kind })

/** The key of this kind's objects in the input of a run: `Pod.v1`, `Deployment.v1.apps`. */
export const inputKey = (kind: Pick<Kind, 'group' | 'version' | 'kind'>): string =>
  kindName(kind.kind, apiVersionOf(kind))

const HASH_LENGTH = 10

const hashOf = (name: string): string => createHash('sha256').update(name).digest('hex').slice(0, HASH_LENGTH)

/**
 * Returns a name within `limit` characters: 253 for objects, 63 for values of labels. A shorter name stays as it is. A
 * longer name is cut and gets a hash of the whole, so that different names stay different.
 *
 * @example
 * import { shortName } from 'fairlead'
 * shortName('web', 63) // => 'web'
 * shortName('a'.repeat(100), 63).length // => 63
 */
export function shortName(name: string, limit = 253): string {
  if (name.length <= limit) return name
  const head = name.slice(0, limit - HASH_LENGTH - 1).replace(/[-.]+$/, '')
  return `${head}-${hashOf(name)}`
}

/**
 * Returns a name for a Deployment, 242 characters at most: names of its ReplicaSets have eleven more, and 253 at most.
 *
 * @example
 * import { deploymentName } from 'fairlead'
 * deploymentName('a'.repeat(253)).length // => 242
 */
export const deploymentName = (name: string): string => shortName(name, 242)

/**
 * Returns a name for a Service: a DNS label of 63 characters at most that begins with a letter. Different names stay
 * different.
 *
 * @example
 * import { serviceName } from 'fairlead'
 * serviceName('web') // => 'web'
 * serviceName('my.site').startsWith('s-my-site-') // => true
 */
export function serviceName(name: string): string {
  if (/^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$/.test(name)) return name
  const words = `s-${name.replaceAll(/[^a-z0-9-]/g, '-')}`
  return `${words.slice(0, 63 - HASH_LENGTH - 1).replace(/-+$/, '')}-${hashOf(name)}`
}
