import { cp, mkdtemp, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { resourcePath } from '#kube'
import { base64, callEtcd } from '../support/cluster-etcd.ts'
import { Item } from './clusters-functions.ts'
import { changedKubeConfig, type Site } from './clusters-world.ts'

const ACCOUNTS = { group: '', version: 'v1', resource: 'serviceaccounts' }
const BINDINGS = { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'clusterrolebindings' }
const NAMESPACE = 'default'

export const itemPath = (name: string): string => resourcePath(Item, NAMESPACE, name)

/** Writes a kubeconfig with the token of a ServiceAccount that may do everything. */
export async function grant(
  site: Site,
  account: string,
  { to, server }: { to: string; server: string },
): Promise<string> {
  const { kube, cluster } = site
  const metadata = { name: account, namespace: NAMESPACE }
  await kube.create(resourcePath(ACCOUNTS, NAMESPACE), { apiVersion: 'v1', kind: 'ServiceAccount', metadata })
  await kube.create(resourcePath(BINDINGS), {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRoleBinding',
    metadata: { name: account },
    roleRef: { apiGroup: BINDINGS.group, kind: 'ClusterRole', name: 'cluster-admin' },
    subjects: [{ kind: 'ServiceAccount', ...metadata }],
  })
  const { status } = await kube.create<{ status: { token: string } }>(
    resourcePath(ACCOUNTS, NAMESPACE, account, 'token'),
    { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} },
  )
  return changedKubeConfig(cluster.kubeconfig, to, { server, user: { token: status.token } })
}

/** The API server does not accept the token of the account any more. */
export async function revoke({ kube }: Site, account: string): Promise<void> {
  await kube.delete(resourcePath(ACCOUNTS, NAMESPACE, account))
}

/** While it is full, etcd refuses writes, as it does when its quota is used up. */
export async function setFull({ cluster }: Site, isFull: boolean): Promise<void> {
  const action = isFull ? 'ACTIVATE' : 'DEACTIVATE'
  await callEtcd(cluster.dir, 'maintenance/alarm', { action, memberID: '0', alarm: 'NOSPACE' })
}

const PUTS_AT_ONCE = 20

/**
 * Creates Items as fast as etcd stores them, each by a transaction of its own: objects of one transaction would have the same
 * resource version, which no API server gives, and a watch that continues after the first of them would miss the others.
 */
export async function seed({ cluster }: Site, names: readonly string[], spec: object): Promise<void> {
  const left = names.values()
  const put = async () => {
    for (const name of left) {
      const metadata = {
        name,
        namespace: NAMESPACE,
        uid: crypto.randomUUID(),
        creationTimestamp: new Date().toISOString().replace(/\.\d+/, ''),
        generation: 1,
      }
      const value = JSON.stringify({ apiVersion: `${Item.group}/${Item.version}`, kind: Item.kind, metadata, spec })
      const key = `/registry/${Item.group}/${Item.resource}/${NAMESPACE}/${name}`
      await callEtcd(cluster.dir, 'kv/put', { key: base64(key), value: base64(value) })
    }
  }
  await Promise.all(Array.from({ length: PUTS_AT_ONCE }, put))
}

/** Each change of etcd is a resource version. */
export async function age({ cluster }: Site, changes: number): Promise<void> {
  for (let change = 0; change < changes; change++)
    await callEtcd(cluster.dir, 'kv/put', { key: base64('/change'), value: base64(String(change)) })
}

const storeOf = ({ cluster }: Site): string => join(cluster.dir, 'etcd')

/** Kills the API server and etcd, and starts them again after the act. */
export async function down<T>({ cluster }: Site, act: () => Promise<T>): Promise<T> {
  await cluster.processes.kill('kube-apiserver')
  await cluster.processes.kill('etcd')
  const given = await act()
  await cluster.recover()
  return given
}

/** Copies the store while the servers are down. */
export const snapshot = (site: Site, to: string): Promise<void> => cp(storeOf(site), to, { recursive: true })

/** Replaces the store by a copy, while the servers are down: an older one, or that of another site. Returns where it was moved. */
export async function replaceStore(site: Site, from: string): Promise<string> {
  const replaced = await mkdtemp(`${storeOf(site)}-`)
  await rename(storeOf(site), replaced)
  await cp(from, storeOf(site), { recursive: true })
  return replaced
}

/** The watches of Items that the API server has accepted so far. */
export const watchesOf = async (site: Site): Promise<number> =>
  (await counted(site, /^apiserver_longrunning_requests\{/, isOfItems)) +
  (await counted(site, /^apiserver_request_total\{/, isOfItems))

const isOfItems = (labels: string): boolean =>
  ['resource="items"', 'verb="WATCH"'].every((label) => labels.includes(label))

async function counted({ kube }: Site, name: RegExp, isCounted: (labels: string) => boolean): Promise<number> {
  const lines = (await kube.text('/metrics')).split('\n').filter((line) => name.test(line) && isCounted(line))
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0)
}
