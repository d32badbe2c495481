import { ConfigMap, kind, manifest, reconciler, resource, z } from 'fairlead'
import { type RunningOperators, runOperators } from 'fairlead/testing/cluster'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { functionRbac } from '#install'
import { isNotFound, resourcePath } from '#kube'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { until } from '../support/wait.ts'

const RBAC = 'rbac.authorization.k8s.io'
const Namespace = kind({ group: '', version: 'v1', kind: 'Namespace', plural: 'namespaces' })
const ResourceQuota = kind({ group: '', version: 'v1', kind: 'ResourceQuota', plural: 'resourcequotas' })
const RoleBinding = kind({ group: RBAC, version: 'v1', kind: 'RoleBinding', plural: 'rolebindings' })
const NetworkPolicy = kind({
  group: 'networking.k8s.io',
  version: 'v1',
  kind: 'NetworkPolicy',
  plural: 'networkpolicies',
})
const Workspace = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Workspace',
  plural: 'workspaces',
  scope: 'Cluster',
  spec: z.object({ pods: z.string() }),
  status: z.object({ phase: z.string(), parts: z.int32() }),
})
const ADMINS = 'workspace-admin'
const SAID =
  /^cannot apply RoleBinding new\/admins: system:serviceaccount:fairlead-system:fairlead-workspaces would grant rights that it does not have: \{APIGroups:\["apps"\], Resources:\["things0"\], Verbs:\["create" "get"\]\} and 39 more\. Add \{ kind: 'ClusterRole', name: 'workspace-admin' \} to "binds"[^\n]*$/
const KINDS = [Namespace, ResourceQuota, RoleBinding, NetworkPolicy, ConfigMap] as const

/** As an author writes it who does not think of refusals. */
const workspaces = reconciler({
  name: 'workspaces',
  for: Workspace,
  owns: KINDS,
  backoff: { initialSeconds: 0.2, maxSeconds: 1 },
  reconcile({ object: { metadata, spec }, owned }) {
    const { name } = metadata
    const inside = (name: string) => ({ name, namespace: metadata.name })
    const parts = KINDS.flatMap<{ kind: string }>((one) => owned(one)).length
    const isReady = owned(ConfigMap).length > 0
    return {
      apply: [
        Namespace.of({ metadata: { name } }),
        ResourceQuota.of({ metadata: inside('limits'), spec: { hard: { pods: spec.pods } } }),
        RoleBinding.of({
          metadata: inside('admins'),
          roleRef: { apiGroup: RBAC, kind: 'ClusterRole', name: ADMINS },
          subjects: [{ apiGroup: RBAC, kind: 'Group', name: name }],
        }),
        NetworkPolicy.of({ metadata: inside('deny-all'), spec: { podSelector: {} } }),
        ConfigMap.of({ metadata: inside('workspace'), data: { name } }),
      ],
      status: { phase: isReady ? 'Active' : 'Pending', parts },
      conditions: [{ type: 'Ready', status: isReady ? 'True' : 'False', reason: 'Counted' }],
    }
  },
})

let operators: RunningOperators
let kubectl: Kubectl
beforeAll(async () => {
  operators = await runOperators([workspaces])
  kubectl = await kubectlFor(operators.cluster!)
  const rules = Array.from({ length: 40 }, (_, index) => ({
    apiGroups: ['apps'],
    resources: [`things${index}`],
    verbs: ['create', 'get'],
  }))
  await kubectl(['create', '-f', '-'], {
    apiVersion: `${RBAC}/v1`,
    kind: 'ClusterRole',
    metadata: { name: ADMINS },
    rules,
  })
}, 60_000)
afterAll(() => operators?.[Symbol.asyncDispose]())

const create = (name: string, pods = '10') =>
  operators.kube.create(resourcePath(Workspace), Workspace.of({ metadata: { name }, spec: { pods } }))
const statusOf = async (name: string) =>
  Workspace.parse(await operators.kube.get(resourcePath(Workspace, undefined, name))).status
const condition = async (name: string, type: string) =>
  (await statusOf(name)).conditions?.find((one) => one.type === type)
const untilRefused = (name: string) => until(async () => (await condition(name, 'Reconciled'))?.status === 'False')
const waitForReady = (name: string, seconds: number) =>
  kubectl(['wait', '--for=condition=Ready', `workspace/${name}`, `--timeout=${seconds}s`])
const isThere = (one: (typeof KINDS)[number], name: string, namespace: string) =>
  operators.kube.get(resourcePath(one, namespace, name)).then(
    () => true,
    (error: unknown) => !isNotFound(error),
  )

/** By what the function declares, as `fairlead install` would give it. */
async function mayBind(binds: { kind: 'ClusterRole'; name: string }[] = [{ kind: 'ClusterRole', name: ADMINS }]) {
  const generated = functionRbac(manifest({ ...workspaces, ...(binds.length > 0 && { binds }) }))
  const role = generated.find(({ kind, metadata }) => kind === 'ClusterRole' && metadata.name === 'fairlead-workspaces')
  await kubectl(['replace', '-f', '-'], role)
}
const mayNotBind = () => mayBind([])

describe('a Workspace whose RoleBinding is forbidden', () => {
  it('has everything else, the status of its function, and is not ready', async () => {
    await create('new')
    await untilRefused('new')
    const there = await Promise.all([
      isThere(ResourceQuota, 'limits', 'new'),
      isThere(NetworkPolicy, 'deny-all', 'new'),
      isThere(ConfigMap, 'workspace', 'new'),
      isThere(RoleBinding, 'admins', 'new'),
    ])
    expect(there).toEqual([true, true, true, false])
    expect(await statusOf('new')).toMatchObject({ phase: 'Active', parts: 4, observedGeneration: 1 })
    expect(await condition('new', 'Ready')).toMatchObject({
      status: 'False',
      reason: 'Forbidden',
      observedGeneration: 1,
    })
    await expect(waitForReady('new', 1)).rejects.toThrow('timed out')
    expect((await condition('new', 'Reconciled'))?.message).toMatch(SAID)
  })

  it('takes later edits', async () => {
    await operators.kube.patch(resourcePath(Workspace, undefined, 'new'), { spec: { pods: '20' } }, 'merge')
    await operators.until(ResourceQuota, 'limits', (found) => JSON.stringify(found).includes('"pods":"20"'), 'new')
    await until(async () => (await condition('new', 'Ready'))?.observedGeneration === 2)
    expect(await condition('new', 'Ready')).toMatchObject({ status: 'False', reason: 'Forbidden' })
  })

  it('is ready when its account may bind the role', async () => {
    await mayBind()
    await waitForReady('new', 20)
    expect(await isThere(RoleBinding, 'admins', 'new')).toBe(true)
    expect(await statusOf('new')).toMatchObject({ phase: 'Active', parts: 5 })
  })

  it('is not ready any more when the right is gone and the RoleBinding was deleted', async () => {
    await mayNotBind()
    await operators.delete(RoleBinding, 'admins', 'new')
    await untilRefused('new')
    expect(await condition('new', 'Ready')).toMatchObject({
      status: 'False',
      reason: 'Forbidden',
      observedGeneration: 2,
    })
    await expect(waitForReady('new', 1)).rejects.toThrow('timed out')
    await mayBind()
    await waitForReady('new', 20)
  })

  it('says that its namespace is being deleted', async () => {
    // Without its controller it never goes.
    await kubectl(['delete', 'namespace', 'new', '--wait=false'])
    await operators.delete(ResourceQuota, 'limits', 'new')
    await until(async () => (await condition('new', 'Reconciled'))?.reason === 'NamespaceTerminating')
    expect(await condition('new', 'Ready')).toMatchObject({ status: 'False' })
  })
})

it('a Workspace whose namespace is somebody else’s has a status, and writes nothing into that namespace', async () => {
  await operators.kube.create('/api/v1/namespaces', { metadata: { name: 'taken' } })
  await create('taken')
  await untilRefused('taken')
  expect(await statusOf('taken')).toMatchObject({ phase: 'Pending', parts: 0, observedGeneration: 1 })
  expect(await condition('taken', 'Ready')).toMatchObject({ status: 'False' })
  expect(await condition('taken', 'Reconciled')).toMatchObject({
    reason: 'NameTaken',
    message: expect.stringMatching(
      /^Namespace taken exists.*; cannot apply ConfigMap taken\/workspace: it needs Namespace taken/,
    ),
  })
  expect(await isThere(ConfigMap, 'workspace', 'taken')).toBe(false)
})
