import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

/** Calls a method of an etcd: `kv/range`. Keys and values are in base64. */
export type EtcdCall = <Answer>(method: string, body: object) => Promise<Answer>

export async function etcdOf(clusterDir: string): Promise<EtcdCall> {
  const { args } = JSON.parse(await readFile(join(clusterDir, 'pid', 'etcd.json'), 'utf8')) as { args: string[] }
  const url = args.find((arg) => arg.startsWith('--advertise-client-urls='))?.split('=')[1]
  return async <Answer>(method: string, body: object) => {
    const response = await fetch(`${url}/v3/${method}`, { method: 'POST', body: JSON.stringify(body) })
    if (!response.ok) throw new Error(`etcd answers ${method} with ${response.status}: ${await response.text()}`)
    return (await response.json()) as Answer
  }
}

/** Calls a method of the etcd of a test cluster. */
export const callEtcd = async <Answer>(clusterDir: string, method: string, body: object): Promise<Answer> =>
  (await etcdOf(clusterDir))<Answer>(method, body)

/** All that an API server has stored: values by key. */
export type Contents = ReadonlyMap<string, string>

export const base64 = (text: string): string => Buffer.from(text).toString('base64')
const ALL = { key: base64('/registry/'), range_end: base64('/registry0') }
/** The most in one transaction of etcd is 128. */
const MOST_OPERATIONS = 100
/** The API server writes these by itself, at any time. */
const OF_THE_SERVER =
  /^\/registry\/(leases|masterleases|ranges|ipaddresses|endpointslices|apiregistration\.k8s\.io|services\/\w+\/default\/kubernetes$)|\/kube-system\//

export async function contentsOf(clusterDir: string): Promise<Contents> {
  const { kvs } = await callEtcd<{ kvs: { key: string; value: string }[] }>(clusterDir, 'kv/range', ALL)
  return new Map(kvs.map(({ key, value }) => [Buffer.from(key, 'base64').toString(), value]))
}

/** Sets all objects back to these contents. The API server learns of it by its watches, as of any other change. */
export async function setContents(clusterDir: string, wanted: Contents): Promise<void> {
  const present = await contentsOf(clusterDir)
  const surplus = [...present.keys()].filter((key) => !wanted.has(key) && !OF_THE_SERVER.test(key))
  const other = [...wanted].filter(([key, value]) => present.get(key) !== value && !OF_THE_SERVER.test(key))
  const operations = [
    ...surplus.map((key) => ({ request_delete_range: { key: base64(key) } })),
    ...other.map(([key, value]) => ({ request_put: { key: base64(key), value } })),
  ]
  for (let at = 0; at < operations.length; at += MOST_OPERATIONS)
    await callEtcd(clusterDir, 'kv/txn', { success: operations.slice(at, at + MOST_OPERATIONS) })
}
