import { Bolt, type ReadAt } from './bolt.ts'

/** What a snapshot holds, by its own pages. */
export interface Contents {
  revision: number
  /** Of the cluster, e.g. `3.7.0`; members may have been patched further. Undefined: it was never set. */
  clusterVersion: string | undefined
}

/** Reads some ten pages. Throws a SnapshotError for what is no database of etcd. */
export async function contentsOf(read: ReadAt): Promise<Contents> {
  const bolt = await Bolt.open(read)
  const [last, version] = [await bolt.lastKey('key'), await bolt.get('cluster', 'clusterVersion')]
  // A cluster without a single write is at revision 1. A key is the revision, a sign and a number within it.
  return { revision: last === undefined ? 1 : Number(last.readBigUInt64BE(0)), clusterVersion: version?.toString() }
}
