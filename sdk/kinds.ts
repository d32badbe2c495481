import type {
  V1ConfigMap,
  V1CronJob,
  V1Deployment,
  V1Ingress,
  V1Job,
  V1Namespace,
  V1NetworkPolicy,
  V1PersistentVolumeClaim,
  V1Pod,
  V1ResourceQuota,
  V1RoleBinding,
  V1Secret,
  V1Service,
  V1ServiceAccount,
  V1StatefulSet,
} from '@kubernetes/client-node'
import { apiVersionOf, type KubeObject, kindName, type ObjectMeta, type ResourceRef } from '#contracts'
import type { OwnedResource } from '#spec'
import { keysOf, refuseUnknown } from './options.ts'

/** A resource type as a function uses it: what to watch, how to write it, and the type of its objects. */
export interface Kind<Observed = KubeObject> extends ResourceRef {
  readonly kind: string
  readonly strategy: OwnedResource['strategy']
  /** What has the name of an object that the function returns, and no controller, is taken over. */
  readonly adopt?: OwnedResource['adopt']
  /** The object as its type. Throws a TerminalError that names path and value where the kind has a schema. */
  parse(object: KubeObject): Observed
}

/** The type of the objects of a kind. */
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

/** A kind without a schema of its own: its objects are trusted to be what the API server admitted. */
export interface PlainKind<Observed> extends Kind<Observed> {
  /** An object of this kind, to be applied. A `status` is for tests: nobody applies one. */
  of(body: Omit<Observed, 'apiVersion' | 'kind'>): Observed
}

export interface KindOptions {
  group: string
  version: string
  kind: string
  plural: string
  strategy?: OwnedResource['strategy']
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

/** A resource type that is not in the list below. `Model` is a type of @kubernetes/client-node, or any object type. */
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

/** `Pod.v1`, `Deployment.v1.apps`: where a run's input has the objects of this kind. */
export const inputKey = (kind: Pick<Kind, 'group' | 'version' | 'kind'>): string =>
  kindName(kind.kind, apiVersionOf(kind))

// The API server refuses changes to the specs of these three.
export const Pod = kind<V1Pod>({ group: '', version: 'v1', kind: 'Pod', plural: 'pods', strategy: 'CreateOnly' })
export const PersistentVolumeClaim = kind<V1PersistentVolumeClaim>({
  group: '',
  version: 'v1',
  kind: 'PersistentVolumeClaim',
  plural: 'persistentvolumeclaims',
  strategy: 'CreateOnly',
})
export const Job = kind<V1Job>({ group: 'batch', version: 'v1', kind: 'Job', plural: 'jobs', strategy: 'CreateOnly' })

export const ConfigMap = kind<V1ConfigMap>({ group: '', version: 'v1', kind: 'ConfigMap', plural: 'configmaps' })
export const Secret = kind<V1Secret>({ group: '', version: 'v1', kind: 'Secret', plural: 'secrets' })
export const Service = kind<V1Service>({ group: '', version: 'v1', kind: 'Service', plural: 'services' })
export const ServiceAccount = kind<V1ServiceAccount>({
  group: '',
  version: 'v1',
  kind: 'ServiceAccount',
  plural: 'serviceaccounts',
})
export const Deployment = kind<V1Deployment>({
  group: 'apps',
  version: 'v1',
  kind: 'Deployment',
  plural: 'deployments',
})
export const StatefulSet = kind<V1StatefulSet>({
  group: 'apps',
  version: 'v1',
  kind: 'StatefulSet',
  plural: 'statefulsets',
})
export const CronJob = kind<V1CronJob>({ group: 'batch', version: 'v1', kind: 'CronJob', plural: 'cronjobs' })
export const Ingress = kind<V1Ingress>({
  group: 'networking.k8s.io',
  version: 'v1',
  kind: 'Ingress',
  plural: 'ingresses',
})

export const Namespace = kind<V1Namespace>({ group: '', version: 'v1', kind: 'Namespace', plural: 'namespaces' })
export const ResourceQuota = kind<V1ResourceQuota>({
  group: '',
  version: 'v1',
  kind: 'ResourceQuota',
  plural: 'resourcequotas',
})
export const NetworkPolicy = kind<V1NetworkPolicy>({
  group: 'networking.k8s.io',
  version: 'v1',
  kind: 'NetworkPolicy',
  plural: 'networkpolicies',
})
export const RoleBinding = kind<V1RoleBinding>({
  group: 'rbac.authorization.k8s.io',
  version: 'v1',
  kind: 'RoleBinding',
  plural: 'rolebindings',
})
