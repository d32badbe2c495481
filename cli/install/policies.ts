import type { KubeObject } from '#contracts'
import { ApiError, isForbidden, isNotFound, type KubeClient } from '#kube'
import { webhookResources } from '#process/webhooks/probe'
import { type ConversionClient, isResource, manifest, policiesOf, type Reconciler } from '#sdk'
import { policyNameOf, type ReconcilerSpec, SYSTEM_NAMESPACE, userNameOf } from '#spec'
import { found, pathOf, type StoredReconciler } from './installed-objects.ts'
import { LABELS } from './rbac.ts'
import { WEBHOOKS } from './webhook-certificates.ts'

type Exempt = Pick<ReconcilerSpec, 'for' | 'serviceAccount'> & Partial<Pick<ReconcilerSpec, 'owns' | 'patches'>>

/**
 * Returns the policies of the rules of the functions' resources. `exempt`: the functions whose writes they do not check,
 * as far as these are for the same resource.
 */
export const functionPolicies = (
  functions: readonly Reconciler[],
  exempt: readonly Exempt[] = functions.map((one) => manifest(one).spec),
): KubeObject[] =>
  policiesOf(functions, exempt).map((object) => ({ ...object, metadata: { ...object.metadata, labels: LABELS } }))

/** Where the API server asks `validate`, for rehearsals and comparisons: it has no authority. */
const ELSEWHERE: ConversionClient = { caBundle: '', service: { namespace: SYSTEM_NAMESPACE, name: WEBHOOKS } }

/**
 * Returns the configurations by which the API server asks the webhook about writes. `exempt`: the functions whose writes it
 * does not ask about, as far as they write this resource. So no run waits for the webhook.
 */
export const functionWebhooks = (
  functions: readonly Reconciler[],
  exempt: readonly Exempt[],
  { caBundle, service } = ELSEWHERE,
): KubeObject[] =>
  webhookResources(functions).flatMap((one) => {
    const writes = ({ for: primary, owns = [], patches = [] }: Exempt): boolean =>
      [primary, ...owns, ...patches].some((ref) => policyNameOf(ref) === policyNameOf(one))
    const users = exempt.filter(writes).flatMap(({ serviceAccount: of }) => (of ? [userNameOf(of)] : []))
    const client = { caBundle, ...(service && { service: { ...service, path: '/validate' } }) }
    const webhook = one.validatingWebhook?.(client, [...new Set(users)].sort())
    return webhook ? [{ ...webhook, metadata: { ...webhook.metadata, labels: LABELS } }] : []
  })

/**
 * Returns the stored Reconcilers that policies may exempt: those with an account of fairlead-system. Whoever may write a
 * Reconciler could name another account, of his own.
 */
export const exemptOf = (stored: readonly StoredReconciler[]): Exempt[] =>
  stored.flatMap(({ metadata, spec }) => {
    const account = { name: `fairlead-${metadata.name}`, namespace: SYSTEM_NAMESPACE }
    const { for: primary, serviceAccount = account, owns, patches } = spec ?? {}
    return primary !== undefined && serviceAccount.namespace === SYSTEM_NAMESPACE
      ? [{ for: primary, serviceAccount, ...(owns && { owns }), ...(patches && { patches }) }]
      : []
  })

/** Returns the functions and the stored Reconcilers of others that policies may exempt. */
export const exemptFrom = (
  functions: readonly Reconciler[],
  stored: ReadonlyMap<string, StoredReconciler>,
): Exempt[] => {
  const others = [...stored.values()].filter(({ metadata }) => !functions.some(({ name }) => name === metadata.name))
  return [...functions.map((one) => manifest(one).spec), ...exemptOf(others)]
}

/** Whether the Reconciler is for the resource that the policy guards. */
export const isGuarded = ({ spec }: StoredReconciler, policy: string): boolean =>
  spec?.for !== undefined && policyNameOf(spec.for) === policy

export const WEBHOOK = 'ValidatingWebhookConfiguration'

/** In the order of their removal. */
const KINDS = [
  WEBHOOK,
  'ValidatingAdmissionPolicyBinding',
  'ValidatingAdmissionPolicy',
  'MutatingAdmissionPolicyBinding',
  'MutatingAdmissionPolicy',
]

/**
 * Returns the policies that an earlier installation of these functions has left, and that are not in `generated`: of
 * resources that have fewer rules now, or that the functions are not for any more, unless another Reconciler is. They are
 * of these kinds, and read by name. If no policy is generated, a user who may not read policies has none; nor configurations.
 */
export async function earlierPolicies(
  kube: KubeClient,
  functions: readonly Reconciler[],
  generated: readonly KubeObject[],
  stored: ReadonlyMap<string, StoredReconciler>,
  kinds: readonly string[] = KINDS,
): Promise<KubeObject[]> {
  const now = functions.map((one) => one.for)
  const former = functions.flatMap(({ name }) => stored.get(name)?.spec?.for ?? []).map(policyNameOf)
  const current = now.map(policyNameOf)
  const others = [...stored.values()].filter(({ metadata }) => !functions.some(({ name }) => name === metadata.name))
  const isLeft = (name: string): boolean => !current.includes(name) && !others.some((one) => isGuarded(one, name))
  const names = new Set([...now.filter(isResource).map(policyNameOf), ...former.filter(isLeft)])
  const earlier: KubeObject[] = []
  for (const name of names)
    for (const kind of kinds) {
      if (generated.some((one) => one.kind === kind && one.metadata.name === name)) continue
      const there = await found<KubeObject>(kube, pathOf(kind, undefined, name)).catch((error: unknown) => {
        const isSort = (one: KubeObject) => (one.kind === WEBHOOK) === (kind === WEBHOOK)
        if (!isForbidden(error) || generated.some(isSort)) throw refusedPolicy({ kind, metadata: { name } }, error)
      })
      if (there !== undefined && Object.entries(LABELS).every(([key, value]) => there.metadata.labels?.[key] === value))
        earlier.push(there)
    }
  return earlier
}

/** A policy cannot be installed, and so nothing was changed. */
class RefusedPolicyError extends Error {
  override readonly name = 'RefusedPolicyError'
}

/** Returns the error for a policy that the API server does not have, or has refused to the user. Others stay as they are. */
export function refusedPolicy({ kind, metadata }: Pick<KubeObject, 'kind' | 'metadata'>, error: unknown): unknown {
  const because = (why: string) =>
    new RefusedPolicyError(`${kind} ${metadata.name} is refused, and nothing is changed: ${why}`, { cause: error })
  if (isNotFound(error))
    return because(`the API server has no ${kind}. Rules of defaultFrom() need Kubernetes 1.36: leave them out`)
  if (!(error instanceof ApiError) || !isForbidden(error)) return error
  return because(
    kind === WEBHOOK
      ? `the webhook needs the rights list, get, create, patch and delete on validatingwebhookconfigurations (admissionregistration.k8s.io). Have a user install it who has them. The API server: ${error.said}`
      : `rules need the rights get, create, patch and delete on validatingadmissionpolicies, mutatingadmissionpolicies and their bindings (admissionregistration.k8s.io). Have a user install it who has them, or leave the rules out. The API server: ${error.said}`,
  )
}
