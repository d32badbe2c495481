import { kind, type ObjectMeta } from '#sdk'

/** The fields of an EtcdCluster that a restore reads. */
export interface ReplacedCluster {
  metadata: ObjectMeta
  spec: { version?: string }
  status?: {
    /** The UID of the EtcdRestore by which its members are being replaced. */
    restoring?: string
    /** The UID of the EtcdRestore whose snapshot its members have. */
    restoredFrom?: string
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
