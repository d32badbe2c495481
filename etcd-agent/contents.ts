import { Bolt, type ReadAt } from './bolt.ts'

/** The contents of a snapshot, as its pages show them. */
export interface Contents {
  revision: number
  /** The version of the cluster, such as `3.7.0`; members may run a later patch. Undefined: it was never set. */
  clusterVersion: string | undefined
}

/**
 * Returns the contents of a snapshot after reading about ten pages. Throws a SnapshotError if it is not an etcd
 * database.
 */
export async function contentsOf(read: ReadAt): Promise<Contents> {
  const bolt = await Bolt.open(read)
  const [last, version] = [await bolt.lastKey('key'), await bolt.get('cluster', 'clusterVersion')]
  // A cluster without a single write is at revision 1. A key consists of the revision, a separator and a number within
  // it.
  return { revision: last === undefined ? 1 : Number(last.readBigUInt64BE(0)), clusterVersion: version?.toString() }
}
