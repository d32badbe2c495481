import type { V1EndpointSlice } from '@kubernetes/client-node'
import { kind, type ObjectMeta, type ObservedBy } from '#sdk'

/** The fields of an EtcdCluster that a restore reads. */
export interface ReplacedCluster {
  metadata: ObjectMeta
  spec: { version?: string }
  status?: {
    /** The UID of the EtcdRestore by which its members are being replaced. */
    restoring?: string
    /** The UID of the EtcdRestore whose snapshot its members have. */
    restoredFrom?: string
    members?: { ready: readonly string[] }
    serviceName?: string
  }
}

const Cluster = kind<ReplacedCluster>({
  group: 'etcd.database.coreos.com',
  version: 'v1beta2',
  kind: 'EtcdCluster',
  plural: 'etcdclusters',
})

/** The cluster that is replaced. */
export const Replaced = { ...Cluster, byName: 'spec.etcdCluster.name' } as const

/** The addresses to which the Services of EtcdClusters lead. They have the labels of their Service. */
export const Endpoints = {
  ...kind<V1EndpointSlice>({
    group: 'discovery.k8s.io',
    version: 'v1',
    kind: 'EndpointSlice',
    plural: 'endpointslices',
  }),
  selector: 'app=etcd,etcd_cluster',
} as const
type EndpointsObject = ObservedBy<typeof Endpoints>

/** Whether a member is ready, and the Service for clients leads to it. */
export const isServed = ({ status }: ReplacedCluster, endpoints: readonly EndpointsObject[]): boolean =>
  endpoints
    .filter(({ metadata }) => metadata.labels?.['kubernetes.io/service-name'] === status?.serviceName)
    .flatMap((slice) => slice.endpoints ?? [])
    .some(
      ({ conditions, targetRef }) =>
        conditions?.ready === true && status?.members?.ready.includes(targetRef?.name ?? '') === true,
    )
