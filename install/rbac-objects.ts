import type { KubeObject } from '#contracts'
import { SYSTEM_NAMESPACE } from '#spec'

export interface Rule {
  apiGroups: string[]
  resources: string[]
  verbs: string[]
  resourceNames?: string[]
}

export interface Account {
  name: string
  namespace: string
}

/**
 * The label of all installed objects. An object without any applied field would be written again by a repeated
 * server-side apply.
 */
export const LABELS = { 'app.kubernetes.io/part-of': 'fairlead' }

/**
 * Enforces the restricted Pod Security Standard in the namespace, and warns about workloads whose pods would violate
 * it.
 */
export const RESTRICTED = {
  'pod-security.kubernetes.io/enforce': 'restricted',
  'pod-security.kubernetes.io/warn': 'restricted',
}

export const RBAC = 'rbac.authorization.k8s.io'
export const inSystemNamespace = (name: string): Account => ({ name, namespace: SYSTEM_NAMESPACE })

export const serviceAccount = (name: string, namespace: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ServiceAccount',
  metadata: { name, namespace, labels: LABELS },
})

export const clusterRole = (name: string, rules: Rule[], labels?: Record<string, string>): KubeObject => ({
  apiVersion: `${RBAC}/v1`,
  kind: 'ClusterRole',
  metadata: { name, labels: { ...LABELS, ...labels } },
  rules,
})

/** Returns an aggregated ClusterRole. The controller manager fills in its rules. */
export const aggregated = (name: string, label: string): KubeObject => ({
  apiVersion: `${RBAC}/v1`,
  kind: 'ClusterRole',
  metadata: { name, labels: LABELS },
  aggregationRule: { clusterRoleSelectors: [{ matchLabels: { [label]: 'true' } }] },
})

export const clusterBinding = (role: string, accounts: Account[]): KubeObject => ({
  apiVersion: `${RBAC}/v1`,
  kind: 'ClusterRoleBinding',
  metadata: { name: role, labels: LABELS },
  ...bound(role, accounts),
})

export const binding = (role: string, namespace: string, accounts: Account[]): KubeObject => ({
  apiVersion: `${RBAC}/v1`,
  kind: 'RoleBinding',
  metadata: { name: role, namespace, labels: LABELS },
  ...bound(role, accounts),
})

const bound = (role: string, accounts: Account[]) => ({
  roleRef: { apiGroup: RBAC, kind: 'ClusterRole', name: role },
  subjects: accounts.map((account) => ({ kind: 'ServiceAccount', ...account })),
})
