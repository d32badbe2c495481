import { kind, type ObjectMeta } from '#sdk'

/** An EtcdCluster, as far as a restore looks at it. */
interface ReplacedCluster {
  metadata: ObjectMeta
  spec: { version?: string }
  status?: {
    /** UID of the EtcdRestore whose snapshot its members have. */
    restoredFrom?: string
  }
}

const Cluster = kind<ReplacedCluster>({
  group: 'etcd.database.coreos.com',
  version: 'v1beta2',
  kind: 'EtcdCluster',
  plural: 'etcdclusters',
})

/** The one that is replaced. */
export const Replaced = { ...Cluster, byName: 'spec.etcdCluster.name' } as const
