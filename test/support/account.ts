import { readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { parse, stringify } from 'yaml'
import { type KubeClient, resourcePath } from '#kube'

const ACCOUNTS = { group: '', version: 'v1', resource: 'serviceaccounts' }

/** Writes a kubeconfig beside the given one, with the identity of that service account only. */
export async function kubeconfigOf(
  kube: KubeClient,
  kubeconfig: string,
  { namespace, name }: { namespace: string; name: string },
): Promise<string> {
  const path = resourcePath(ACCOUNTS, namespace, name, 'token')
  const { status } = await kube.create<{ status: { token: string } }>(path, {
    apiVersion: 'authentication.k8s.io/v1',
    kind: 'TokenRequest',
    spec: {},
  })
  const config = parse(await readFile(kubeconfig, 'utf8')) as { users: { name: string; user: object }[] }
  const users = config.users.map((entry) => ({ name: entry.name, user: { token: status.token } }))
  const file = join(dirname(kubeconfig), `${name}.kubeconfig`)
  await writeFile(file, stringify({ ...config, users }))
  return file
}
