import { execFile } from 'node:child_process'
import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { stringify } from 'yaml'
import type { KubeObject } from '#contracts'
import { ensureBinaries, silentProgress } from '#lab'
import { blocksOf } from '../docs/blocks.ts'
import { type ChartFiles, helm, projectOf } from '../helm/charts.ts'
import { BIN, type FairleadProcess, startFairlead } from '../support/fairlead.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { startTestCluster } from '../support/servers.ts'
import { until } from '../support/wait.ts'

const FORMER = 'helm.sdk.operatorframework.io/uninstall-release'
const FINALIZER = 'fairlead.dev/web-demo-example-com'
const ROOT = join(import.meta.dirname, '../..')

/** As operator-sdk makes it. */
const DEFINITION = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'webs.demo.example.com' },
  spec: {
    group: 'demo.example.com',
    names: { kind: 'Web', listKind: 'WebList', plural: 'webs', singular: 'web' },
    scope: 'Namespaced',
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        subresources: { status: {} },
        schema: {
          openAPIV3Schema: {
            type: 'object',
            properties: {
              spec: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
              status: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
            },
          },
        },
      },
    ],
  },
}

/** A password that is drawn, its checksum in the pods, a volume that is kept, and a field that is there for some values. */
const CHART: ChartFiles = {
  'values.yaml': 'text: one\nextra: ""\naccount: false\n',
  'templates/config.yaml': `
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-config}
data:
  text: {{ .Values.text }}
  {{- if .Values.extra }}
  extra: {{ .Values.extra }}
  {{- end }}
`,
  'templates/auth.yaml': `
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-auth}
stringData: {password: {{ randAlphaNum 20 | quote }}}
`,
  'templates/data.yaml': `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: {{ .Release.Name }}-data, annotations: {helm.sh/resource-policy: keep}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`,
  'templates/service.yaml': `
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec: {selector: {app: {{ .Release.Name }}}, ports: [{port: 80}]}
`,
  'templates/account.yaml': `{{ if .Values.account }}
apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .Release.Name }}-account}
{{ end }}`,
  'templates/deployment.yaml': `
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: 2
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata:
      labels: {app: {{ .Release.Name }}}
      annotations: {checksum/auth: {{ include (print $.Template.BasePath "/auth.yaml") . | sha256sum }}}
    spec:
      containers:
        - name: web
          image: registry.example.com/web:1
          env:
            - {name: TEXT, value: fixed}
            {{- if .Values.extra }}
            - {name: EXTRA, value: {{ .Values.extra }}}
            {{- end }}
`,
  'templates/migrate.yaml': `
apiVersion: batch/v1
kind: Job
metadata: {name: {{ .Release.Name }}-first, annotations: {helm.sh/hook: pre-install}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: registry.example.com/job:1}]}}}
`,
}

type Seen = KubeObject & { items?: Seen[]; data?: Record<string, string> }

const stack = new AsyncDisposableStack()
let kubectl: Kubectl
let dir: string
let env: Record<string, string>
let commands: Record<'over' | 'back', string>
beforeAll(async () => {
  const cluster = stack.use(await startTestCluster({ nats: true, controllers: true, node: 'kwok' }))
  kubectl = await kubectlFor(cluster)
  dir = await projectOf(CHART)
  await mkdir(join(dir, 'crds'))
  await mkdir(join(dir, 'node_modules'))
  await symlink(ROOT, join(dir, 'node_modules/fairlead'))
  await writeFile(join(dir, 'crds/web.yaml'), stringify(DEFINITION))
  await writeFile(
    join(dir, 'functions.ts'),
    `import { ServiceAccount } from 'fairlead'
import { helmFunctions } from 'fairlead/helm'
export const functions = await helmFunctions(new URL('watches.yaml', import.meta.url), {
  definitions: new URL('crds', import.meta.url).pathname, helm: '${helm}', kinds: { Web: [ServiceAccount] },
})
`,
  )
  await writeFile(join(dir, 'npx'), `#!/bin/sh\nshift\nexec "${process.execPath}" "${BIN}" "$@"\n`)
  await chmod(join(dir, 'npx'), 0o755)
  const programs = dirname((await ensureBinaries(['kubectl'], silentProgress))('kubectl'))
  const path = [dir, programs, dirname(process.execPath), process.env['PATH']].join(':')
  const homes = ['CONFIG', 'CACHE', 'DATA'].map((one) => [`HELM_${one}_HOME`, join(dir, 'helm')])
  env = { PATH: path, KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', ...Object.fromEntries(homes) }
  const found = (await blocksOf('adapters/helm')).map(({ text }) => text)
  const block = (words: string) => found.find((text) => text.includes(words)) ?? expect.fail(`no block with ${words}`)
  commands = { over: block('fairlead diff'), back: block('fairlead uninstall') }
  await kubectl(['apply', '-f', join(dir, 'crds')])
  await kubectl(['wait', '--for=condition=Established', 'crd/webs.demo.example.com', '--timeout=240s'])
})
afterAll(() => stack.disposeAsync())

const run = (file: string, args: string[]) => promisify(execFile)(file, args, { cwd: dir, env })
/** Runs commands of the page in the folder of the project, whatever their exit code: a difference has one. */
const shell = async (script: string): Promise<string> => {
  const { stdout, stderr } = await run('sh', ['-uc', script]).catch(
    (error: { stdout: string; stderr: string }) => error,
  )
  return stdout + stderr
}
const read = async (what: string): Promise<Seen> => JSON.parse(await kubectl(['get', what, '-o', 'json'])) as Seen
const patch = (what: string, change: object, ...others: string[]) =>
  kubectl(['patch', what, '--type=merge', '-p', JSON.stringify(change), ...others])
const web = (name: string): string =>
  JSON.stringify({ apiVersion: 'demo.example.com/v1', kind: 'Web', metadata: { name } })
const isGone = (what: string) =>
  read(what).then(
    () => false,
    (error: Error) => error.message.includes('NotFound'),
  )

const MADE = ['deployment/a', 'configmap/a-config', 'secret/a-auth', 'service/a', 'pvc/a-data']

/** What helm-operator does: Helm's own installation, with an owner for what is not kept, and its annotations for the rest. */
async function helmOperator(spec: object, ...action: string[]): Promise<void> {
  await writeFile(join(dir, 'values.json'), JSON.stringify(spec))
  const client = ['--server-side=false', '--values', 'values.json', '--namespace', 'default']
  await run(helm, [...action, 'a', 'helm-charts/web', ...client, '--timeout', '5m'])
  const { metadata } = await read('web/a')
  const owner = { apiVersion: 'demo.example.com/v1', kind: 'Web', name: 'a', uid: metadata.uid, controller: true }
  const ownerReferences = [{ ...owner, blockOwnerDeletion: true }]
  const labels = { 'helm.sdk.operatorframework.io/chart': 'web' }
  const annotations = {
    'operator-sdk/primary-resource': 'default/a',
    'operator-sdk/primary-resource-type': 'Web.demo.example.com',
  }
  for (const what of MADE)
    await patch(
      what,
      { metadata: { labels, ...(what === 'pvc/a-data' ? { annotations } : { ownerReferences }) } },
      '--field-manager=helm',
    )
  const secrets = await kubectl(['get', 'secrets', '-l', 'owner=helm', '-o', 'name'])
  for (const what of secrets.trim().split('\n')) await patch(what, { metadata: { ownerReferences } })
  const { stdout: manifest } = await run(helm, ['get', 'manifest', 'a', '--namespace', 'default'])
  const conditions = [
    { type: 'Initialized', status: 'True', lastTransitionTime: new Date().toISOString() },
    { type: 'Deployed', status: 'True', reason: 'InstallSuccessful', lastTransitionTime: new Date().toISOString() },
  ]
  await patch('web/a', { status: { conditions, deployedRelease: { name: 'a', manifest } } }, '--subresource=status')
  await patch('web/a', { metadata: { finalizers: [FORMER] } })
}

/**
 * All of what was made that must stay, with ReplicaSets and pods. The API server counts a mark of a Deployment as a new generation,
 * so that its spec and its ReplicaSet tell that it is the same.
 */
async function stateOf(): Promise<unknown[]> {
  const objects = await Promise.all(MADE.map(read))
  const { items: pods = [] } = await read('replicasets,pods')
  return [...objects, ...pods.toSorted((one, other) => (one.metadata.name < other.metadata.name ? -1 : 1))].map(
    ({ kind, metadata: { name, uid, generation, labels, ownerReferences }, spec, data }) => ({
      kind,
      name,
      uid,
      generation: kind === 'Deployment' ? undefined : generation,
      labels,
      ownerReferences,
      data,
      spec: kind === 'PersistentVolumeClaim' || kind === 'Pod' ? undefined : spec,
    }),
  )
}

/** All pods are those of the last template, and no others are left. */
async function isRolledOut(): Promise<boolean> {
  const { metadata, status } = (await read('deployment/a')) as Seen & { status?: Record<string, number> }
  const counts = [status?.['replicas'], status?.['updatedReplicas'], status?.['availableReplicas']]
  const { items = [] } = await read('pods')
  const isSeen = metadata.generation === status?.['observedGeneration']
  return (
    isSeen &&
    counts.every((count) => count === 2) &&
    items.filter(({ spec }) => (spec as { nodeName?: string } | undefined)?.nodeName !== undefined).length === 2
  )
}

const start = () => startFairlead(['up', '-f', join(dir, 'functions.ts')], env)
async function stop(up: FairleadProcess): Promise<void> {
  up.kill('SIGTERM')
  await up.exited
}
const isServed = async () => (await read('web/a')).metadata.finalizers?.includes(FINALIZER) === true
/** The last release is written, by a run after which nothing is left to write. */
const isDeployed = async () => {
  const { status } = (await read('web/a')) as Seen & { status?: { deployedRelease?: { digest?: string } } }
  return status?.deployedRelease?.digest !== undefined
}

it('what helm-operator has made changes hands by install alone: nothing restarts, and the difference is empty', async () => {
  await kubectl(['create', '-f', '-'], web('a'))
  await patch('web/a', { spec: { extra: 'more' } })
  await helmOperator({ extra: 'more' }, 'install')
  await kubectl(['delete', 'job/a-first'])
  await kubectl(['create', '-f', '-'], web('waiting'))
  await patch('web/waiting', { metadata: { finalizers: [FORMER] } })
  await kubectl(['delete', 'web/waiting', '--wait=false'])
  await until(() => isGone('job/a-first'))
  await until(isRolledOut)
  const before = await stateOf()
  const printed = await shell(commands.over)
  expect(printed).toContain('5 objects that were made before are marked')
  expect(printed).not.toMatch(/\d (Deployment|ConfigMap|Secret|Service|PersistentVolumeClaim)/)
  await using up = start()
  await until(isServed)
  await until(isDeployed)
  await until(() => isGone('web/waiting'))
  expect(await stateOf()).toEqual(before)
  expect((await read('web/a')).metadata.finalizers).toEqual([FORMER, FINALIZER])
  // The hook of an installation does not run for a release that exists.
  expect(await isGone('job/a-first')).toBe(true)

  // What the former operator has set goes with the value that made it.
  await patch('web/a', { spec: { extra: null, account: true, text: 'two' } })
  await until(async () => (await read('configmap/a-config')).data?.['text'] === 'two')
  await until(async () => !(await isGone('serviceaccount/a-account')))
  expect((await read('configmap/a-config')).data).toEqual({ text: 'two' })
  expect(JSON.stringify((await read('deployment/a')).spec)).not.toContain('EXTRA')
  await stop(up)
})

it('helm-operator takes them back, with what Fairlead has made meanwhile', async () => {
  await until(isRolledOut)
  const before = await stateOf()
  await shell(commands.back)
  expect((await read('web/a')).metadata.finalizers).toEqual([FORMER])
  expect(await stateOf()).toEqual(before)
  await helmOperator({ account: true, text: 'three' }, 'upgrade')
  expect((await read('configmap/a-config')).data).toEqual({ text: 'three' })
  expect((await read('pvc/a-data')).metadata.uid).toBe((before as { uid?: string }[])[4]?.uid)
})

it('after another move, a release goes with its object and its Secrets, except for what is kept', async () => {
  await patch('web/a', { spec: { text: 'three' } })
  await shell(commands.over)
  await using up = start()
  await until(isServed)
  await until(isDeployed)
  await kubectl(['delete', 'web/a', '--wait=false'])
  await until(() => isGone('web/a'))
  for (const what of ['deployment/a', 'configmap/a-config', 'secret/a-auth', 'secret/sh.helm.release.v1.a.v1'])
    await until(() => isGone(what), { what: `${what} is gone` })
  expect((await read('pvc/a-data')).metadata.deletionTimestamp).toBeUndefined()
  await stop(up)
})
