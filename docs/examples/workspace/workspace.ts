import {
  type ConditionUpdate,
  ConfigMap,
  type KubeObject,
  Namespace,
  NetworkPolicy,
  Pod,
  ResourceQuota,
  RoleBinding,
  type Run,
  reconciler,
} from 'fairlead'
import { Workspace } from './resource.ts'

const owns = [Namespace, ResourceQuota, RoleBinding, NetworkPolicy, ConfigMap] as const
/** The label is the consent of the ConfigMap's owner: a Workspace copies only ConfigMaps with it. */
const Template = {
  ...ConfigMap,
  selector: 'tenancy.example.com/template',
  namespacePath: 'spec.template.namespace',
  byName: 'spec.template.name',
} as const
const NOT_ENDED = 'status.phase!=Succeeded,status.phase!=Failed'
const RunningPod = { ...Pod, fieldSelector: NOT_ENDED, namespacePath: 'metadata.name' } as const
type WorkspaceRun = Run<typeof Workspace, (typeof owns)[number], typeof Template | typeof RunningPod>

export const workspace = reconciler({
  name: 'workspace',
  for: Workspace,
  owns,
  related: [Template, RunningPod],
  binds: ['admin', 'view'].map((name) => ({ kind: 'ClusterRole', name })),
  writes: ['Deletion'],
  reconcile(run) {
    const expiresAt = expiryOf(run)
    const isExpired = expiresAt !== undefined && run.now >= expiresAt
    if (isExpired && run.object.spec.onExpiry === 'Delete') return { deleteObject: true }
    const apply = isExpired ? partsOf(run, 'view').map((part) => ({ ...part, retain: true })) : partsOf(run, 'admin')
    const outcome = { apply, ...statusOf(run, apply, isExpired ? 'Archived' : 'Active') }
    return expiresAt === undefined || isExpired ? outcome : { ...outcome, requeueAt: expiresAt }
  },
  finalize(run) {
    const running = runningPods(run)
    // The other parts are deleted, except those that an archived Workspace retains.
    if (running.length === 0) return { apply: [{ ...recordOf(run), retain: true }] }
    const message = `waits for ${running.length} running pods, for example ${running[0]?.metadata.name}`
    return { conditions: [{ type: 'Ready', status: 'False', reason: 'PodsRunning', message }], requeueAfter: 3600 }
  },
})

function expiryOf({ object: { metadata, spec } }: WorkspaceRun): Date | undefined {
  if (spec.expiresAfterSeconds === undefined) return undefined
  return new Date(Date.parse(metadata.creationTimestamp ?? '') + spec.expiresAfterSeconds * 1000)
}

/**
 * Returns the running pods in the namespace of the Workspace; an empty list if the namespace belongs to another owner.
 */
const runningPods = ({ owned, related }: WorkspaceRun) => owned(Namespace).flatMap(() => related(RunningPod))

/** Renders the settings from the template. If the template is missing, the Workspace keeps its current settings. */
function settingsOf(run: WorkspaceRun): Record<string, string> | undefined {
  const { metadata, spec } = run.object
  const [template] = run.related(Template)
  if (template === undefined) return run.owned(ConfigMap).find((one) => one.metadata.name === 'settings')?.data
  const render = (text: string) =>
    text.replaceAll('{{name}}', metadata.name).replaceAll('{{admins}}', () => spec.admins)
  return Object.fromEntries(Object.entries(template.data ?? {}).map(([key, text]) => [key, render(text)]))
}

function partsOf(run: WorkspaceRun, role: 'admin' | 'view'): KubeObject[] {
  const { metadata, spec } = run.object
  const inside = (name: string) => ({ name, namespace: metadata.name })
  const hard = role === 'admin' ? spec.quota : { ...spec.quota, pods: '0' }
  const policy = { podSelector: {}, policyTypes: ['Ingress'], ingress: [{ from: [{ podSelector: {} }] }] }
  const data = settingsOf(run)
  return [
    Namespace.of({ metadata: { name: metadata.name, labels: { 'tenancy.example.com/workspace': metadata.name } } }),
    ResourceQuota.of({ metadata: inside('limits'), spec: { hard } }),
    // The API server refuses another role in the same RoleBinding, so each role has its own.
    RoleBinding.of({
      metadata: inside(`${role}s`),
      roleRef: { apiGroup: RoleBinding.group, kind: 'ClusterRole', name: role },
      subjects: [{ apiGroup: RoleBinding.group, kind: 'Group', name: spec.admins }],
    }),
    NetworkPolicy.of({ metadata: inside('same-namespace'), spec: policy }),
    ...(data === undefined ? [] : [ConfigMap.of({ metadata: inside('settings'), data })]),
  ]
}

/**
 * The record is stored beside the template. Its name contains the uid, so that a later Workspace of that name gets
 * another record.
 */
function recordOf({ object: { metadata, spec } }: WorkspaceRun): KubeObject {
  const { name: workspace, uid, creationTimestamp = '', deletionTimestamp = '' } = metadata
  return ConfigMap.of({
    metadata: { name: `workspace-${workspace}-${uid}`, namespace: spec.template.namespace },
    data: { workspace, creationTimestamp, deletionTimestamp, spec: JSON.stringify(spec) },
  })
}

/** The status lists the parts that the run has observed: the parts in `apply` may still be refused. */
function statusOf(run: WorkspaceRun, parts: KubeObject[], phase: 'Active' | 'Archived') {
  const idOf = ({ kind, metadata }: KubeObject) => `${kind} ${metadata.name}`
  const found = new Set(owns.flatMap<KubeObject>((one) => run.owned(one)).map(idOf))
  const isComplete = found.size === parts.length && parts.every((part) => found.has(idOf(part)))
  const expiresAt = expiryOf(run)?.toISOString()
  const status = { phase: isComplete ? phase : 'Pending', runningPods: runningPods(run).length, expiresAt } as const
  return { status, conditions: [readiness(run, isComplete, phase)] }
}

function readiness(run: WorkspaceRun, isComplete: boolean, phase: string): ConditionUpdate {
  const no = (reason: string, message: string) => ({ type: 'Ready', status: 'False', reason, message }) as const
  const { namespace, name } = run.object.spec.template
  const [refusal] = owns.flatMap((one) => run.refused(one))
  if (refusal !== undefined) return no(refusal.reason, `without ${refusal.name}: ${refusal.message}`)
  if (run.related(Template).length === 0)
    return no('TemplateMissing', `no ConfigMap ${namespace}/${name} has the label ${Template.selector}`)
  return isComplete ? { type: 'Ready', status: 'True', reason: phase } : no('Pending', 'not all parts exist')
}
