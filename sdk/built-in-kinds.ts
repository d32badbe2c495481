import type {
  V1CertificateSigningRequest,
  V1ConfigMap,
  V1CronJob,
  V1Deployment,
  V1Ingress,
  V1Job,
  V1Namespace,
  V1NetworkPolicy,
  V1Node,
  V1PersistentVolumeClaim,
  V1Pod,
  V1ResourceQuota,
  V1RoleBinding,
  V1Secret,
  V1Service,
  V1ServiceAccount,
  V1StatefulSet,
} from '@kubernetes/client-node'
import { kind, type ObservedBy } from './kinds.ts'

/**
 * Pods (`v1`). Written once: the API server rejects changes of its spec.
 *
 * @example
 * import { Pod } from 'fairlead'
 * Pod.strategy // => 'CreateOnly'
 */
export const Pod = kind<V1Pod>({ group: '', version: 'v1', kind: 'Pod', plural: 'pods', strategy: 'CreateOnly' })

/**
 * PersistentVolumeClaims (`v1`). Written once: the API server rejects changes of its spec.
 *
 * @example
 * import { PersistentVolumeClaim } from 'fairlead'
 * PersistentVolumeClaim.strategy // => 'CreateOnly'
 */
export const PersistentVolumeClaim = kind<V1PersistentVolumeClaim>({
  group: '',
  version: 'v1',
  kind: 'PersistentVolumeClaim',
  plural: 'persistentvolumeclaims',
  strategy: 'CreateOnly',
})

/**
 * Jobs (`batch/v1`). Written once: the API server rejects changes of its spec.
 *
 * @example
 * import { Job } from 'fairlead'
 * Job.strategy // => 'CreateOnly'
 */
export const Job = kind<V1Job>({ group: 'batch', version: 'v1', kind: 'Job', plural: 'jobs', strategy: 'CreateOnly' })

/**
 * ConfigMaps (`v1`). Written by server-side apply.
 *
 * @example
 * import { ConfigMap } from 'fairlead'
 * ConfigMap.of({ metadata: { name: 'a' }, data: { key: 'value' } }) // => { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a' }, data: { key: 'value' } }
 */
export const ConfigMap = kind<V1ConfigMap>({ group: '', version: 'v1', kind: 'ConfigMap', plural: 'configmaps' })

/**
 * Secrets (`v1`). Written by server-side apply. Their contents reach neither streams nor logs.
 *
 * @example
 * import { Secret } from 'fairlead'
 * Secret.of({ metadata: { name: 'a' }, stringData: { password: 'x' } }) // => { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'a' }, stringData: { password: 'x' } }
 */
export const Secret = kind<V1Secret>({ group: '', version: 'v1', kind: 'Secret', plural: 'secrets' })

/**
 * Services (`v1`). Written by server-side apply.
 *
 * @example
 * import { Service } from 'fairlead'
 * Service.of({ metadata: { name: 'a' }, spec: { ports: [{ port: 80 }] } }) // => { apiVersion: 'v1', kind: 'Service', metadata: { name: 'a' }, spec: { ports: [{ port: 80 }] } }
 */
export const Service = kind<V1Service>({ group: '', version: 'v1', kind: 'Service', plural: 'services' })

/**
 * ServiceAccounts (`v1`). Written by server-side apply.
 *
 * @example
 * import { ServiceAccount } from 'fairlead'
 * ServiceAccount.of({ metadata: { name: 'a' }, automountServiceAccountToken: false }) // => { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'a' }, automountServiceAccountToken: false }
 */
export const ServiceAccount = kind<V1ServiceAccount>({
  group: '',
  version: 'v1',
  kind: 'ServiceAccount',
  plural: 'serviceaccounts',
})

/**
 * Deployments (`apps/v1`). Written by server-side apply. `rolloutOf()` returns their progress.
 *
 * @example
 * import { Deployment } from 'fairlead'
 * Deployment.of({ metadata: { name: 'a' }, spec: { selector: { matchLabels: { app: 'a' } }, template: {} } }) // => { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'a' }, spec: { selector: { matchLabels: { app: 'a' } }, template: {} } }
 */
export const Deployment = kind<V1Deployment>({
  group: 'apps',
  version: 'v1',
  kind: 'Deployment',
  plural: 'deployments',
})

/**
 * StatefulSets (`apps/v1`). Written by server-side apply. `rolloutOf()` returns their progress.
 *
 * @example
 * import { StatefulSet } from 'fairlead'
 * StatefulSet.of({ metadata: { name: 'a' }, spec: { selector: { matchLabels: { app: 'a' } }, template: {} } }) // => { apiVersion: 'apps/v1', kind: 'StatefulSet', metadata: { name: 'a' }, spec: { selector: { matchLabels: { app: 'a' } }, template: {} } }
 */
export const StatefulSet = kind<V1StatefulSet>({
  group: 'apps',
  version: 'v1',
  kind: 'StatefulSet',
  plural: 'statefulsets',
})

/**
 * CronJobs (`batch/v1`). Written by server-side apply.
 *
 * @example
 * import { CronJob } from 'fairlead'
 * CronJob.of({ metadata: { name: 'a' }, spec: { schedule: '0 * * * *', jobTemplate: {} } }) // => { apiVersion: 'batch/v1', kind: 'CronJob', metadata: { name: 'a' }, spec: { schedule: '0 * * * *', jobTemplate: {} } }
 */
export const CronJob = kind<V1CronJob>({ group: 'batch', version: 'v1', kind: 'CronJob', plural: 'cronjobs' })

/**
 * Ingresses (`networking.k8s.io/v1`). Written by server-side apply.
 *
 * @example
 * import { Ingress } from 'fairlead'
 * Ingress.of({ metadata: { name: 'a' }, spec: { ingressClassName: 'nginx' } }) // => { apiVersion: 'networking.k8s.io/v1', kind: 'Ingress', metadata: { name: 'a' }, spec: { ingressClassName: 'nginx' } }
 */
export const Ingress = kind<V1Ingress>({
  group: 'networking.k8s.io',
  version: 'v1',
  kind: 'Ingress',
  plural: 'ingresses',
})

/**
 * Namespaces (`v1`). Written by server-side apply.
 *
 * @example
 * import { Namespace } from 'fairlead'
 * Namespace.of({ metadata: { name: 'a', labels: { team: 'a' } } }) // => { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'a', labels: { team: 'a' } } }
 */
export const Namespace = kind<V1Namespace>({ group: '', version: 'v1', kind: 'Namespace', plural: 'namespaces' })

/**
 * Nodes (`v1`). They belong to others: declare them in `patches` to set fields, or in `related` to read them.
 *
 * @example
 * import { fieldsOf, Node } from 'fairlead'
 * fieldsOf(Node, { metadata: { name: 'a' }, spec: { unschedulable: true } }) // => { apiVersion: 'v1', kind: 'Node', metadata: { name: 'a' }, spec: { unschedulable: true } }
 */
export const Node = kind<V1Node>({ group: '', version: 'v1', kind: 'Node', plural: 'nodes' })

/**
 * CertificateSigningRequests (`certificates.k8s.io/v1`). Declare them in `for` or `related`, and in `acts` to approve or
 * deny them.
 *
 * @example
 * import { CertificateSigningRequest } from 'fairlead'
 * CertificateSigningRequest.resource // => 'certificatesigningrequests'
 */
export const CertificateSigningRequest = kind<V1CertificateSigningRequest>({
  group: 'certificates.k8s.io',
  version: 'v1',
  kind: 'CertificateSigningRequest',
  plural: 'certificatesigningrequests',
})

/**
 * ResourceQuotas (`v1`). Written by server-side apply.
 *
 * @example
 * import { ResourceQuota } from 'fairlead'
 * ResourceQuota.of({ metadata: { name: 'a' }, spec: { hard: { pods: '50' } } }) // => { apiVersion: 'v1', kind: 'ResourceQuota', metadata: { name: 'a' }, spec: { hard: { pods: '50' } } }
 */
export const ResourceQuota = kind<V1ResourceQuota>({
  group: '',
  version: 'v1',
  kind: 'ResourceQuota',
  plural: 'resourcequotas',
})

/**
 * NetworkPolicies (`networking.k8s.io/v1`). Written by server-side apply.
 *
 * @example
 * import { NetworkPolicy } from 'fairlead'
 * NetworkPolicy.of({ metadata: { name: 'a' }, spec: { podSelector: {}, policyTypes: ['Ingress'] } }) // => { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy', metadata: { name: 'a' }, spec: { podSelector: {}, policyTypes: ['Ingress'] } }
 */
export const NetworkPolicy = kind<V1NetworkPolicy>({
  group: 'networking.k8s.io',
  version: 'v1',
  kind: 'NetworkPolicy',
  plural: 'networkpolicies',
})

/**
 * RoleBindings (`rbac.authorization.k8s.io/v1`). Written by server-side apply. The reconciler names the roles in
 * `binds`.
 *
 * @example
 * import { RoleBinding } from 'fairlead'
 * RoleBinding.of({ metadata: { name: 'a' }, roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: 'b' } }) // => { apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'RoleBinding', metadata: { name: 'a' }, roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: 'b' } }
 */
export const RoleBinding = kind<V1RoleBinding>({
  group: 'rbac.authorization.k8s.io',
  version: 'v1',
  kind: 'RoleBinding',
  plural: 'rolebindings',
})

/**
 * The progress of a Deployment or a StatefulSet towards its latest spec.
 *
 * @example
 * import { type Rollout, rolloutOf } from 'fairlead'
 * const missing: Rollout = rolloutOf(undefined)
 * missing.isComplete // => false
 */
export interface Rollout {
  /** Ready replicas, those of older templates included. */
  ready: number
  /**
   * All replicas are ready and have the latest template. A StatefulSet with a partition counts from its partition on.
   */
  isComplete: boolean
  /** The Deployment has exceeded its progress deadline. Always false for a StatefulSet, which has no deadline. */
  isStuck: boolean
}

/**
 * Returns the progress of a Deployment or a StatefulSet. `undefined`, an object that does not exist yet, is not
 * complete and has 0 ready replicas.
 *
 * @example
 * import { rolloutOf } from 'fairlead'
 * rolloutOf(undefined) // => { ready: 0, isComplete: false, isStuck: false }
 */
export function rolloutOf(
  workload: ObservedBy<typeof Deployment> | ObservedBy<typeof StatefulSet> | undefined,
): Rollout {
  const { metadata, spec, status } = workload ?? {}
  const replicas = spec?.replicas ?? 1
  const ready = status?.readyReplicas ?? 0
  const isSeen = metadata !== undefined && (status?.observedGeneration ?? 0) >= (metadata.generation ?? 0)
  const updated = (status?.updatedReplicas ?? 0) + partitionOf(spec)
  const isUpdated = updated >= replicas && (status?.replicas ?? 0) <= replicas
  const progressing = status?.conditions?.find(({ type }) => type === 'Progressing')
  return {
    ready,
    isComplete: isSeen && isUpdated && ready >= replicas,
    isStuck: progressing?.reason === 'ProgressDeadlineExceeded',
  }
}

/** The number of replicas that keep the older template. */
const partitionOf = (spec: ObservedBy<typeof Deployment>['spec'] | ObservedBy<typeof StatefulSet>['spec']): number =>
  (spec !== undefined && 'updateStrategy' in spec && spec.updateStrategy?.rollingUpdate?.partition) || 0
