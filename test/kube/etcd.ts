import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

/** Forgets all history of a test cluster up to now, as an API server does every five minutes by itself. */
export async function compactEtcd(clusterDir: string): Promise<void> {
  const { args } = JSON.parse(await readFile(join(clusterDir, 'pid', 'etcd.json'), 'utf8')) as { args: string[] }
  const url = args.find((arg) => arg.startsWith('--advertise-client-urls='))?.split('=')[1]
  const call = async (path: string, body: object): Promise<{ header: { revision: string } }> => {
    const response = await fetch(`${url}/v3/kv/${path}`, { method: 'POST', body: JSON.stringify(body) })
    if (!response.ok) throw new Error(`etcd answers ${path} with ${response.status}: ${await response.text()}`)
    return (await response.json()) as { header: { revision: string } }
  }
  const { header } = await call('range', { key: 'AA==', count_only: true })
  await call('compaction', { revision: header.revision, physical: true })
}
