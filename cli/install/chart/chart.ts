import { readdir, readFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import type { KubeObject } from '#contracts'
import { manifest, type Reconciler } from '#sdk'
import { SHARD_LABEL } from '#spec'
import { functionPolicies } from '../policies.ts'
import { configRoleOf, consoleRbac, consoleWritesRbac, functionRbac, platformRbac } from '../rbac.ts'
import { reconcilerCrd } from '../reconciler.ts'
import { sortedDefinitions } from '../webhook.ts'
import { clustersIn } from './clusters.ts'
import { ratesOf, withTeams } from './teams.ts'
import {
  type ChartFile,
  chartFile,
  DEPLOY,
  definitionTemplates,
  get,
  manifestsIn,
  objectOf,
  optionOf,
  patched,
  set,
  Templated,
  textOf,
  yamlOf,
} from './templated.ts'

/** The value `small`, as text: "true", "false" or "move". */
const SMALL = '(include "fairlead.small" .)'
const IS_CLUSTER = 'gt (int .Values.nats.replicas) 1'
const SUFFIX =
  'empty .Values.shard | ternary (empty .Values.team | ternary "" (printf "-team-%v" .Values.team)) (printf "-%s" .Values.shard)'
const POD = 'spec/template/spec'
const CONTAINER = `${POD}/containers/0`
const SIDECAR = `${POD}/initContainers/0`

/** Returns the Deployment and PodDisruptionBudget of a part that the small installation does not have, with additional environment variables. */
async function processOf(
  part: 'bridge' | 'dispatcher' | 'console',
  objects: readonly KubeObject[],
  template: Templated,
  variables: string[],
): Promise<string> {
  const values = `.Values.${part}`
  const deployment = objectOf(objects, 'Deployment', `fairlead-${part}`)
  const count = `eq ${SMALL} "move" | ternary 0 (int ${values}.replicas)`
  set(deployment, 'spec/replicas', template.value(count))
  set(deployment, 'spec/template/metadata/annotations', template.optional('.Values.monitoring.podAnnotations'))
  inCluster(deployment, values, template)
  set(deployment, `${POD}/affinity`, template.optional(`${values}.affinity`))
  set(deployment, `${CONTAINER}/image`, template.value('include "fairlead.image" .Values.image'))
  const given = get(deployment, `${CONTAINER}/env`) as { name: string; value?: string }[]
  const kept = given.filter(({ name }) => !name.endsWith('_MAX_BYTES'))
  for (const one of kept) if (one.name === 'NATS_URL') one.value = template.value('include "fairlead.natsUrl" .')
  const more = template.items(`{{- with ${values}.env }}`, '{{- toYaml . | nindent 12 }}', '{{- end }}')
  set(deployment, `${CONTAINER}/env`, [...kept, ...variables, more])
  set(deployment, 'metadata/name', `fairlead-${part}${template.value(SUFFIX)}`)
  const budget = objectOf(objects, 'PodDisruptionBudget', `fairlead-${part}`)
  set(budget, 'spec/maxUnavailable', template.value(`${values}.disruption.maxUnavailable`))
  const budgets = await template.render(
    [budget],
    `and ${values}.disruption.enabled (not .Values.shard) (not .Values.team)`,
  )
  return `{{- if ne ${SMALL} "true" }}\n${await template.render([deployment])}---\n${budgets}{{- end }}\n`
}

/** Adds the scheduling settings of the cluster to the pods of a part. */
function inCluster(object: KubeObject, values: string, template: Templated): void {
  set(object, `${POD}/nodeSelector`, template.optional(`${values}.nodeSelector`))
  set(object, `${POD}/tolerations`, template.optional(`${values}.tolerations`))
  set(object, `${POD}/imagePullSecrets`, template.optional('.Values.imagePullSecrets'))
  ofContainer(object, CONTAINER, values, template)
}

function ofContainer(object: KubeObject, container: string, values: string, template: Templated): void {
  set(object, `${container}/resources`, template.structure(`${values}.resources`))
  const policy = ['{{- with .Values.image.pullPolicy }}', 'imagePullPolicy: {{ . }}', '{{- end }}']
  set(object, `${container}/imagePullPolicy`, template.items(...policy))
}

const FOLDER = 'chart/fairlead'
const FILES: Record<string, string> = {
  'nats.conf': 'nats/nats.conf',
  'users.conf': 'nats/users.conf',
  'cluster.conf': 'nats/cluster.conf',
  'ha-cluster.conf': 'fairlead-ha/cluster.conf',
  'small.conf': 'fairlead-small/pod/nats.conf',
  'alerts.yaml': 'monitoring/alerts.yaml',
}

/**
 * Returns the chart `fairlead`, keyed by path: the objects of deploy/fairlead, deploy/fairlead-ha and deploy/fairlead-small,
 * with chart values for the settings that differ between clusters, and the files that are written by hand.
 */
export async function platformChart(version: string): Promise<Map<string, string>> {
  const sources = await manifestsIn('nats/nats.yaml', 'processes/bridge.yaml', 'processes/dispatcher.yaml')
  const single = await patched(sources, 'fairlead/kustomization.yaml')
  const ofThree = await patched(sources, 'fairlead-ha/kustomization.yaml')
  const [, ...accounts] = platformRbac()
  const description = 'Serverless reconcilers of Kubernetes objects, on NATS JetStream'
  const texts: Record<string, string> = {
    ...(await byHand()),
    'Chart.yaml': await chartFile({ name: 'fairlead', version, description }),
    'templates/nats.yaml': withoutShard(await nats(single, ofThree)),
    'templates/bridge.yaml': await bridge(single),
    'templates/dispatcher.yaml': withTeams(await dispatcher(single)),
    'templates/small.yaml': withoutShard(await small()),
    'templates/console.yaml': withoutShard(await consoleTemplate()),
    'templates/network.yaml': withoutShard(await network()),
    'templates/rbac.yaml': withoutShard(await new Templated().render(accounts)),
    'templates/crds.yaml': withoutShard(await definitionTemplates([reconcilerCrd()])),
  }
  for (const [path, source] of Object.entries(FILES)) texts[`files/${path}`] = await textOf(source)
  return new Map(Object.entries(texts))
}

async function byHand(): Promise<Record<string, string>> {
  const entries = await readdir(join(DEPLOY, FOLDER), { recursive: true, withFileTypes: true })
  const files = entries.filter((one) => one.isFile()).map(({ parentPath, name }) => join(parentPath, name))
  const texts = files.map(async (file) => [relative(join(DEPLOY, FOLDER), file), await readFile(file, 'utf8')] as const)
  return Object.fromEntries(await Promise.all(texts))
}

/** A shard uses what the release without a shard has. */
const withoutShard = (text: string): string => `{{- if not .Values.shard }}\n${text.trimEnd()}\n{{- end }}\n`

function bridge(objects: readonly KubeObject[]): Promise<string> {
  const template = new Templated()
  const clusters = clustersIn(objectOf(objects, 'Deployment', 'fairlead-bridge'), 'bridge', template)
  const variables = [limitsOf(template), replicasOf(template), shardIn(objects, 'bridge', template), clusters]
  return processOf('bridge', objects, template, variables)
}

const limitsOf = (template: Templated): string =>
  template.items(
    '{{- with .Values.nats.eventsMaxBytes }}',
    '- name: FAIRLEAD_EVENTS_MAX_BYTES',
    '  value: {{ . }}',
    '{{- end }}',
    '{{- if .Values.nats.enabled }}',
    '- name: FAIRLEAD_STORAGE_MAX_BYTES',
    '  value: {{ trimSuffix "B" .Values.nats.storage.maxFile }}',
    '{{- end }}',
  )

function dispatcher(objects: readonly KubeObject[]): Promise<string> {
  const template = new Templated()
  const deployment = objectOf(objects, 'Deployment', 'fairlead-dispatcher')
  set(deployment, `${CONTAINER}/args/-`, modulesOf(template))
  const clusters = clustersIn(objectOf(objects, 'Deployment', 'fairlead-dispatcher'), 'dispatcher', template)
  const variables = [replicasOf(template), shardIn(objects, 'dispatcher', template), ratesOf(template), clusters]
  return processOf('dispatcher', objects, template, variables)
}

const modulesOf = (template: Templated): string =>
  template.items(
    '{{- range .Values.dispatcher.functions }}',
    '- -f',
    '- {{ . | quote }}',
    '{{- end }}',
    ...optionOf('--builtin', 'dispatcher.builtin'),
    ...optionOf('--adapter', 'dispatcher.adapters'),
  )

/**
 * Gives the Deployment of a shard or a team a name and a label of its own, and returns the variable. The
 * PodDisruptionBudget without them covers the pods of all: a pod with two budgets could not be evicted.
 */
function shardIn(objects: readonly KubeObject[], part: 'bridge' | 'dispatcher', template: Templated): string {
  const deployment = objectOf(objects, 'Deployment', `fairlead-${part}`)
  const label = template.items(
    '{{- with .Values.shard }}',
    `${SHARD_LABEL}: {{ . | quote }}`,
    '{{- end }}',
    '{{- with .Values.team }}',
    'fairlead.dev/team: {{ . | quote }}',
    '{{- end }}',
  )
  const spread = `${POD}/topologySpreadConstraints/0/labelSelector/matchLabels`
  for (const path of ['metadata/labels', 'spec/selector/matchLabels', 'spec/template/metadata/labels', spread])
    set(deployment, path, { ...(get(deployment, path) as object), shard: label })
  return template.items('{{- with .Values.shard }}', '- name: FAIRLEAD_SHARD', '  value: {{ . | quote }}', '{{- end }}')
}

const replicasOf = (template: Templated): string =>
  template.items(
    `{{- if ${IS_CLUSTER} }}`,
    '- name: FAIRLEAD_REPLICAS',
    '  value: {{ .Values.nats.replicas | quote }}',
    '{{- end }}',
  )

async function nats(single: readonly KubeObject[], ofThree: readonly KubeObject[]): Promise<string> {
  const template = new Templated()
  const [servers, three] = [single, ofThree].map((objects) => objectOf(objects, 'StatefulSet', 'fairlead-nats'))
  const service = objectOf(single, 'Service', 'fairlead-nats')
  if (servers === undefined || three === undefined) throw new TypeError('deploy/nats has no StatefulSet')
  set(servers, 'spec/replicas', template.value('.Values.nats.replicas'))
  // A change of the configuration restarts the servers, as the hashed name of the ConfigMap does in the kustomization.
  const checksum = template.value('include "fairlead.natsConfig" . | sha256sum')
  set(servers, 'spec/template/metadata/annotations', { 'checksum/config': checksum })
  inCluster(servers, '.Values.nats', template)
  const apart = await new Templated().render([{ affinity: get(three, `${POD}/affinity`) as object }])
  const affinity = template.items(
    '{{- if .Values.nats.affinity }}',
    'affinity:',
    '  {{- toYaml .Values.nats.affinity | nindent 8 }}',
    `{{- else if ${IS_CLUSTER} }}`,
    ...apart.trimEnd().split('\n'),
    '{{- end }}',
  )
  set(servers, `${POD}/affinity`, affinity)
  const key = `${POD}/topologySpreadConstraints/0/topologyKey`
  const [alone, among] = [get(servers, key), get(three, key)]
  set(servers, key, template.value(`${IS_CLUSTER} | ternary "${String(among)}" "${String(alone)}"`))
  server(servers, CONTAINER, template)
  const budget = await manifestsIn('fairlead-ha/disruption.yaml')
  const budgets = await template.render(budget, `and .Values.nats.disruption.enabled (${IS_CLUSTER})`)
  const text = await template.render([service, servers])
  const condition = `and .Values.nats.enabled (ne ${SMALL} "true")`
  return `{{- if ${condition} }}\n{{ include "fairlead.natsConfig" . }}\n---\n${text}---\n${budgets}{{- end }}\n`
}

/** Sets image, memory and storage of a nats-server. */
function server(pods: KubeObject, container: string, template: Templated): void {
  const limit = template.items(
    '{{- with .Values.nats.resources | default dict | dig "limits" "memory" "" }}',
    '- name: GOMEMLIMIT',
    '  value: {{ include "fairlead.goMemoryLimit" . }}',
    '{{- end }}',
  )
  const variables = get(pods, `${container}/env`) as { name: string }[]
  set(pods, `${container}/env`, [...variables.filter(({ name }) => name !== 'GOMEMLIMIT'), limit])
  set(pods, `${container}/image`, template.value('include "fairlead.image" .Values.nats.image'))
  const claim = 'spec/volumeClaimTemplates/0/spec'
  const storageClass = ['{{- with .Values.nats.storage.className }}', 'storageClassName: {{ . }}', '{{- end }}']
  set(pods, `${claim}/storageClassName`, template.items(...storageClass))
  set(pods, `${claim}/resources/requests/storage`, template.value('.Values.nats.storage.size'))
}

/** Returns the pod of deploy/fairlead-small, or that of its step to other servers. */
async function small(): Promise<string> {
  const all = await manifestsIn('fairlead-small/pod/small.yaml')
  const pods = objectOf(all, 'StatefulSet', 'fairlead-small')
  const moving = objectOf(await patched(all, 'fairlead-small/move/kustomization.yaml'), 'StatefulSet', 'fairlead-small')
  const template = new Templated()
  for (const one of [pods, moving]) {
    const checksum = template.value('include "fairlead.smallConfig" . | sha256sum')
    const annotations = template.items(
      '{{- with .Values.monitoring.podAnnotations }}',
      '{{- toYaml . | nindent 8 }}',
      '{{- end }}',
    )
    set(one, 'spec/template/metadata/annotations', { 'checksum/config': checksum, more: annotations })
    inCluster(one, '.Values.dispatcher', template)
    ofContainer(one, SIDECAR, '.Values.nats', template)
    server(one, SIDECAR, template)
    set(one, `${POD}/affinity`, template.optional('.Values.dispatcher.affinity'))
    set(one, `${CONTAINER}/image`, template.value('include "fairlead.image" .Values.image'))
  }
  set(pods, `${CONTAINER}/args/-`, modulesOf(template))
  const own = (get(pods, `${CONTAINER}/env`) as { name: string }[]).filter(({ name }) => !name.endsWith('_MAX_BYTES'))
  const more = template.items('{{- with .Values.dispatcher.env }}', '{{- toYaml . | nindent 12 }}', '{{- end }}')
  set(pods, `${CONTAINER}/env`, [...own, limitsOf(template), ratesOf(template), more])
  const given = get(moving, `${CONTAINER}/env`) as { name: string; value?: string }[]
  const kept = given.filter(({ name }) => name !== 'FAIRLEAD_REPLICAS')
  for (const one of kept) if (one.name === 'NATS_URL') one.value = template.value('include "fairlead.natsUrl" .')
  set(moving, `${CONTAINER}/env`, [...kept, replicasOf(template)])
  const [there, left] = [await template.render([pods]), await template.render([moving])]
  const either = `{{- if eq ${SMALL} "true" }}\n${there}{{- else }}\n${left}{{- end }}\n`
  return `{{- if ne ${SMALL} "false" }}\n{{ include "fairlead.smallConfig" . }}\n---\n${either}{{- end }}\n`
}

async function network(): Promise<string> {
  const template = new Templated()
  const policies = await manifestsIn('network/policies.yaml')
  const metrics = objectOf(policies, 'NetworkPolicy', 'fairlead-metrics')
  const readers = 'spec/ingress/0/from/0/namespaceSelector/matchExpressions/0/values'
  set(metrics, readers, template.structure('.Values.monitoring.namespaces'))
  const ports = template.items(
    '{{- range .Values.networkPolicy.apiServerPorts }}',
    '- protocol: TCP',
    '  port: {{ . }}',
    '{{- end }}',
  )
  const processes = objectOf(policies, 'NetworkPolicy', 'fairlead-processes')
  set(processes, 'spec/egress/1/ports', [ports])
  set(processes, 'spec/egress/0', await toNats(get(processes, 'spec/egress/0') as object, template))
  const ofEtcd = await template.render(await manifestsIn('network/etcd/policies.yaml'), '.Values.networkPolicy.etcd')
  const all = await template.render(policies)
  return `{{- if .Values.networkPolicy.enabled }}\n${all}---\n${ofEtcd}{{- end }}\n`
}

/** Allows the pods of this chart's NATS, or the ports of another NATS, since a NetworkPolicy cannot name a host. */
async function toNats(own: object, template: Templated): Promise<string> {
  const [first, ...others] = (await new Templated().render([own])).trimEnd().split('\n')
  return template.items(
    '{{- if .Values.nats.enabled }}',
    `- ${first}`,
    ...others.map((line) => `  ${line}`),
    '{{- else }}',
    '- ports:',
    '    {{- include "fairlead.natsPorts" . | nindent 8 }}',
    '  {{- with .Values.networkPolicy.natsCidrs }}',
    '  to:',
    '    {{- range . }}',
    '    - ipBlock:',
    '        cidr: {{ . | quote }}',
    '    {{- end }}',
    '  {{- end }}',
    '{{- end }}',
  )
}

const NAME = 'fairlead-console'
const WRITES = '.Values.console.writes'
const SECRET = `${POD}/volumes/0/secret/secretName`

/** Returns the objects of deploy/console, with the component deploy/console/writes if the values enable it. */
async function consoleTemplate(): Promise<string> {
  const reads = await manifestsIn('console/console.yaml')
  const writes = objectOf(await patched(reads, 'console/writes/kustomization.yaml'), 'Deployment', NAME)
  const template = new Templated()
  const deployment = objectOf(reads, 'Deployment', NAME)
  const [reader, writer] = [deployment, writes].map((one) => String(get(one, SECRET)))
  set(deployment, SECRET, template.value(`${WRITES} | ternary "${writer}" "${reader}"`))
  const added = (get(writes, `${CONTAINER}/env`) as { name: string; value: string }[]).at(-1)
  const variables = [
    template.items(`{{- if ${WRITES} }}`, `- name: ${added?.name}`, `  value: "${added?.value}"`, '{{- end }}'),
    listed(template, 'FAIRLEAD_CONSOLE_HOSTS', 'hosts'),
    listed(template, 'FAIRLEAD_CONSOLE_AUDIENCES', 'audiences'),
  ]
  const service = objectOf(reads, 'Service', NAME)
  const texts = [
    await processOf('console', reads, template, variables),
    await template.render([service, ...consoleRbac()]),
    await template.render(consoleWritesRbac(), WRITES),
    await template.render(await manifestsIn('console/network.yaml'), '.Values.networkPolicy.enabled'),
  ]
  return `{{- if .Values.console.enabled }}\n${texts.join('---\n')}{{- end }}\n`
}

const listed = (template: Templated, variable: string, value: string): string =>
  template.items(
    `{{- with .Values.console.${value} }}`,
    `- name: ${variable}`,
    '  value: {{ join "," . | quote }}',
    '{{- end }}',
  )

/** Files that are written by hand, and are the same in each chart of functions. */
const COMMON = ['templates/check.yaml', 'templates/_helpers.tpl', 'templates/NOTES.txt', 'values.schema.json']

export interface FunctionsChart extends ChartFile {
  /** The image of the functions: `registry/name:tag@digest`, some parts of which may be empty. */
  image: { repository: string; tag: string; digest: string }
  /** The modules in the image that export the functions. */
  modules: readonly string[]
  /** Built-in functions, by the names that `--builtin` takes. */
  builtin: readonly string[]
  /** Whether the chart installs a function only if the values enable it. */
  optIn?: boolean
  /** The value `shard`, unless a user gives another one. Left out: none. */
  shard?: string | undefined
}

/** Returns a chart of functions, keyed by path: the objects that `fairlead install` applies for each of them. */
export async function functionsChart(
  functions: readonly Reconciler[],
  chart: FunctionsChart,
): Promise<Map<string, string>> {
  const templates = await Promise.all(
    functions.map(async (one) => [`templates/${one.name}.yaml`, await templateOf(one, functions)] as const),
  )
  const common = await Promise.all(
    COMMON.map(async (path) => [path, await readFile(join(DEPLOY, 'chart/fairlead-functions', path), 'utf8')] as const),
  )
  return new Map([
    ['Chart.yaml', await chartFile(chart)],
    ['values.yaml', await yamlOf(valuesOf(functions, chart))],
    ...common,
    ...templates,
    ['templates/check-role.yaml', await checkRole(functions)],
  ])
}

const valuesOf = (
  functions: readonly Reconciler[],
  { image, modules, builtin, optIn = false, shard = '' }: FunctionsChart,
): object => ({
  image: { ...image, pullPolicy: '' },
  imagePullSecrets: [],
  crds: { enabled: true, keep: true },
  check: { enabled: true, modules, builtin, apiServerPorts: [443, 6443] },
  shard,
  functions: Object.fromEntries(functions.map(({ name }) => [name, { enabled: !optIn, url: '', revision: '' }])),
})

/**
 * The permissions of `install --check`: to read the existing definitions, and whether objects are stored under them.
 */
async function checkRole(functions: readonly Reconciler[]): Promise<string> {
  const template = new Templated()
  const { plain, converted } = sortedDefinitions(functions)
  const definitions = [...plain, ...converted]
  const role = {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRole',
    metadata: {
      name: template.value('.Chart.Name').concat('-check'),
      labels: { 'app.kubernetes.io/part-of': 'fairlead' },
      annotations: {
        'helm.sh/hook': 'pre-install,pre-upgrade',
        'helm.sh/hook-weight': '-5',
        'helm.sh/hook-delete-policy': 'before-hook-creation,hook-succeeded',
      },
    },
    rules: [
      {
        apiGroups: ['apiextensions.k8s.io'],
        resources: ['customresourcedefinitions'],
        resourceNames: definitions.map(({ metadata }) => metadata.name),
        verbs: ['get'],
      },
      ...definitions.map(({ spec: { group, names } }) => ({
        apiGroups: [group],
        resources: [names.plural],
        verbs: ['list'],
      })),
    ],
  }
  return definitions.length === 0 ? '' : template.render([role], 'and .Values.check.enabled .Values.crds.enabled')
}

async function templateOf(one: Reconciler, functions: readonly Reconciler[]): Promise<string> {
  const values = valuesAt(one)
  const template = new Templated()
  const reconciler = manifest(one)
  const invoke = template.items(
    `{{- with ${values}.url }}`,
    'invoke:',
    '  http:',
    '    url: {{ . }}',
    '{{- else }}',
    'invoke:',
    '  pull: {}',
    '{{- end }}',
    `{{- with ${values}.revision }}`,
    'revision: {{ . | quote }}',
    '{{- end }}',
  )
  const labels = template.items(
    '{{- with .Values.shard }}',
    'labels:',
    `  ${SHARD_LABEL}: {{ . | quote }}`,
    '{{- end }}',
  )
  const metadata = { ...reconciler.metadata, labels }
  const isOfConfig = ({ metadata }: KubeObject) => metadata.name === configRoleOf(one.name)
  const rights = functionRbac(reconciler)
  const ofConfig = rights.filter(isOfConfig)
  const objects = [
    ...rights.filter((object) => !isOfConfig(object)),
    { ...reconciler, metadata, spec: { ...reconciler.spec, invoke } },
  ]
  // A function over HTTP has its configuration in its pod.
  const config = ofConfig.length === 0 ? '' : `---\n${await template.render(ofConfig, `not ${values}.url`)}`
  const own = `{{- if ${values}.enabled }}\n${await template.render(objects)}${config}{{- end }}\n`
  // A definition and its policies are there once, while any of its functions is enabled.
  const { group, resource } = one.for
  const sharing = functions.filter((other) => other.for.group === group && other.for.resource === resource)
  if (sharing[0] !== one) return own
  const isEnabled = sharing.map((other) => `${valuesAt(other)}.enabled`)
  const condition = isEnabled.length === 1 ? isEnabled.join('') : `(or ${isEnabled.join(' ')})`
  const { plain: definitions } = sortedDefinitions(sharing)
  const policies = functionPolicies(sharing)
  const kinds = [
    ...(definitions.length > 0 ? [await definitionTemplates(definitions)] : []),
    ...(policies.length > 0 ? [await template.render(policies)] : []),
  ].map((text) => `{{- if ${condition} }}\n---\n${text.trimEnd()}\n{{- end }}\n`)
  const guards = definitions.map(({ metadata }) => guardOf(one.name, metadata.name, condition))
  return [own, ...kinds, ...guards].join('')
}

const valuesAt = ({ name }: Reconciler): string => `(index .Values.functions ${JSON.stringify(name)})`

/**
 * Fails where an upgrade would delete a definition of this release, and with it all objects: the values no longer have
 * it, perhaps because the defaults have changed, and Helm was not told to keep it.
 */
const guardOf = (name: string, crd: string, isEnabled: string): string => `\
{{- if and .Release.IsUpgrade (not (and ${isEnabled} .Values.crds.enabled)) }}
{{- $metadata := (lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" ${JSON.stringify(crd)}).metadata | default dict }}
{{- $annotations := $metadata.annotations | default dict }}
{{- $isOurs := eq (get $annotations "meta.helm.sh/release-name") .Release.Name }}
{{- if and $isOurs (ne (get $annotations "helm.sh/resource-policy") "keep") }}
{{- fail "this upgrade would delete the definition ${crd}, and all its objects: give --set functions.${name}.enabled=true,crds.enabled=true,crds.keep=true first" }}
{{- end }}
{{- end }}
`
