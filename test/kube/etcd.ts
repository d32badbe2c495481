import { callEtcd } from '../support/cluster-etcd.ts'

/** Forgets all history of a test cluster up to now, as an API server does every five minutes by itself. */
export async function compactEtcd(clusterDir: string): Promise<void> {
  const { header } = await callEtcd<{ header: { revision: string } }>(clusterDir, 'kv/range', {
    key: 'AA==',
    count_only: true,
  })
  await callEtcd(clusterDir, 'kv/compaction', { revision: header.revision, physical: true })
}
