import { type RunningOperators, runOperators } from 'fairlead/testing/cluster'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ConfigMap, Deployment, type KubeObject, kind, Secret } from '#sdk'
import { functionOf, WEB, Web } from '../helm/charts.ts'

const Role = kind({ group: 'rbac.authorization.k8s.io', version: 'v1', kind: 'Role', plural: 'roles' })
const CHART = {
  ...WEB,
  'templates/auth.yaml': `
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-auth}
stringData: {password: {{ randAlphaNum 20 | quote }}}
`,
  'templates/kept.yaml': `
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-kept, annotations: {helm.sh/resource-policy: keep}}
`,
  'templates/role.yaml': `{{ if .Values.role }}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: {{ .Release.Name }}-role}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]
{{ end }}`,
  'templates/account.yaml': `{{ if .Values.account }}
apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .Release.Name }}-account}
{{ end }}`,
}
const NOTES = 'a has 1 replicas.'

let operators: RunningOperators
beforeAll(async () => {
  const one = await functionOf(CHART, {}, { kinds: { Web: [Role] } })
  operators = await runOperators([one], { controllers: true, node: 'kwok', timeoutSeconds: 120 })
})
afterAll(() => operators?.[Symbol.asyncDispose]())

interface Status {
  conditions?: { type: string; status: string; reason: string; message?: string }[]
  deployedRelease?: { manifest?: string }
}
const statusOf = (found: KubeObject | undefined) => (found?.status ?? {}) as Status
const has =
  (type: string, reason: string, message = '') =>
  (found: KubeObject | undefined) =>
    statusOf(found).conditions?.some(
      (one) => one.type === type && one.status === 'True' && one.reason === reason && one.message?.includes(message),
    ) === true
const passwordOf = async (name: string) => (await operators.get(Secret, `${name}-auth`))?.data?.['password']

describe('a chart on a real API server, with the rights that are generated', () => {
  it('is deployed, follows the spec and takes back what others change, with the password that was drawn first', async () => {
    await operators.create(Web, Web.of({ metadata: { name: 'a', namespace: 'default' }, spec: {} }))
    await operators.until(Web, 'a', has('Deployed', 'InstallSuccessful', NOTES))
    const password = await passwordOf('a')
    expect(atob(password ?? '')).toHaveLength(20)
    await operators.patch(Web, 'a', { spec: { replicas: 2 } })
    await operators.until(Web, 'a', has('Deployed', 'UpgradeSuccessful', 'a has 2 replicas.'))
    expect((await operators.get(Deployment, 'a'))?.spec?.replicas).toBe(2)
    await operators.patch(ConfigMap, 'a-config', { data: { text: 'of another' } })
    await operators.until(ConfigMap, 'a-config', (found) => found?.data?.['text'] === 'hi')
    expect(await passwordOf('a')).toBe(password)
    expect(JSON.stringify(statusOf(await operators.get(Web, 'a')))).not.toContain(password)
  })

  it('names what the API server refuses, and a kind that is not declared, and goes on when they are gone', async () => {
    await operators.patch(Web, 'a', { spec: { role: true } })
    await operators.until(Web, 'a', has('ReleaseFailed', 'UpgradeError', 'Role a-role: '))
    await operators.patch(Web, 'a', { spec: { role: null, account: true } })
    await operators.until(
      Web,
      'a',
      has('Irreconcilable', 'ReconcileError', 'ServiceAccount a-account is of a kind that is not declared'),
    )
    await operators.patch(Web, 'a', { spec: { account: null } })
    const isWell = (found: KubeObject | undefined) =>
      statusOf(found).conditions?.every(({ type }) => type !== 'Irreconcilable' && type !== 'ReleaseFailed') === true
    await operators.until(Web, 'a', isWell)
  })

  it('goes with its object, which waits for it with uninstall-wait, except for what Helm keeps', async () => {
    await operators.patch(Web, 'a', {
      metadata: { annotations: { 'helm.sdk.operatorframework.io/uninstall-wait': 'true' } },
    })
    await operators.delete(Web, 'a')
    await operators.until(Web, 'a', (found) => found === undefined)
    expect(
      (await operators.list(ConfigMap)).flatMap(({ metadata: { name } }) => (name.startsWith('a-') ? [name] : [])),
    ).toEqual(['a-kept'])
    expect([await operators.get(Deployment, 'a'), await operators.get(Secret, 'a-auth')]).toEqual([
      undefined,
      undefined,
    ])
  })
})
