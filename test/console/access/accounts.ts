import { createSign } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { type KubeClient, resourcePath } from '#kube'
import { until } from '../../support/wait.ts'

export const ACCOUNTS = { group: '', version: 'v1', resource: 'serviceaccounts' }
export const RBAC = (resource: string) => ({ group: 'rbac.authorization.k8s.io', version: 'v1', resource })

export interface Rule {
  apiGroups: string[]
  resources: string[]
  verbs: string[]
  resourceNames?: string[]
}

const REVIEWS = { group: 'authorization.k8s.io', version: 'v1', resource: 'subjectaccessreviews' }

/** Rights in that namespace, for the account of that name there. The API server knows of them: it has its rules in a cache. */
export async function grant(kube: KubeClient, namespace: string, name: string, ...rules: Rule[]): Promise<void> {
  const metadata = { name, namespace }
  await kube.create(resourcePath(RBAC('roles'), namespace), { metadata, rules })
  await kube.create(resourcePath(RBAC('rolebindings'), namespace), {
    metadata,
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name },
    subjects: [{ kind: 'ServiceAccount', name, namespace }],
  })
  const user = `system:serviceaccount:${namespace}:${name}`
  for (const { verbs, apiGroups, resources, resourceNames } of rules) {
    const [[verb], [group], [named = ''], [only]] = [verbs, apiGroups, resources, resourceNames ?? []]
    const [resource, subresource] = named.split('/')
    const resourceAttributes = { namespace, verb, group, resource, subresource, name: only }
    await until(async () => {
      const review = { spec: { user, resourceAttributes } }
      return (await kube.create<{ status: { allowed: boolean } }>(resourcePath(REVIEWS), review)).status.allowed
    })
  }
}

export async function tokenOf(
  kube: KubeClient,
  namespace: string,
  name: string,
  audiences?: string[],
): Promise<string> {
  const review = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: { audiences } }
  const path = resourcePath(ACCOUNTS, namespace, name, 'token')
  const { status } = await kube.create<{ status: { token: string } }>(path, review)
  return status.token
}

/** A token as the API server of that kubeconfig signs them, but with another end. */
export async function endingAt(token: string, seconds: number, kubeconfig: string): Promise<string> {
  const [header, payload = ''] = token.split('.')
  const claims = JSON.parse(Buffer.from(payload, 'base64url').toString()) as { iat: number; nbf: number }
  const past = { ...claims, iat: claims.iat - 7200, nbf: claims.nbf - 7200, exp: Math.floor(seconds) }
  const signed = `${header}.${Buffer.from(JSON.stringify(past)).toString('base64url')}`
  const key = await readFile(join(dirname(kubeconfig), 'pki/service-accounts.key'))
  return `${signed}.${createSign('SHA256').update(signed).sign({ key, dsaEncoding: 'ieee-p1363' }, 'base64url')}`
}
