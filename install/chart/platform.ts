import type { KubeObject } from '#contracts'
import { SHARD_LABEL } from '#spec'
import { platformRbac } from '../rbac.ts'
import { reconcilerCrd } from '../reconciler.ts'
import { chartFile } from './chart-file.ts'
import { consoleTemplate } from './console.ts'
import { definitionTemplates } from './definitions.ts'
import { CONTAINER, IS_CLUSTER, inCluster, POD, processOf } from './process.ts'
import { get, manifestsIn, objectOf, patched, set, textOf } from './sources.ts'
import { Templated } from './templated.ts'

const FOLDER = 'deploy/chart/fairlead'
const FILES: Record<string, string> = {
  'nats.conf': 'nats/nats.conf',
  'users.conf': 'nats/users.conf',
  'cluster.conf': 'nats/cluster.conf',
  'ha-cluster.conf': 'fairlead-ha/cluster.conf',
  'alerts.yaml': 'monitoring/alerts.yaml',
}

/**
 * Returns the generated files of the chart `fairlead`, keyed by path: the objects of deploy/fairlead and
 * deploy/fairlead-ha, with chart values for the settings that differ between clusters.
 */
export async function platformChart(version: string): Promise<Map<string, string>> {
  const sources = await manifestsIn('nats/nats.yaml', 'processes/bridge.yaml', 'processes/dispatcher.yaml')
  const single = await patched(sources, 'fairlead/kustomization.yaml')
  const ofThree = await patched(sources, 'fairlead-ha/kustomization.yaml')
  const [, ...accounts] = platformRbac()
  const description = 'Serverless reconcilers of Kubernetes objects, on NATS JetStream'
  const texts: Record<string, string> = {
    'Chart.yaml': await chartFile({ name: 'fairlead', version, description }),
    'templates/nats.yaml': withoutShard(await nats(single, ofThree)),
    'templates/bridge.yaml': await bridge(single),
    'templates/dispatcher.yaml': await dispatcher(single),
    'templates/console.yaml': withoutShard(await consoleTemplate()),
    'templates/network.yaml': withoutShard(await network()),
    'templates/rbac.yaml': withoutShard(await new Templated().render(accounts)),
    'templates/crds.yaml': withoutShard(await definitionTemplates([reconcilerCrd()])),
  }
  for (const [path, source] of Object.entries(FILES)) texts[`files/${path}`] = await textOf(source)
  return new Map(Object.entries(texts).map(([path, text]) => [`${FOLDER}/${path}`, text]))
}

/** A shard uses what the release without a shard has. */
const withoutShard = (text: string): string => `{{- if not .Values.shard }}\n${text.trimEnd()}\n{{- end }}\n`

function bridge(objects: readonly KubeObject[]): Promise<string> {
  const template = new Templated()
  const limits = template.items(
    '{{- with .Values.nats.eventsMaxBytes }}',
    '- name: FAIRLEAD_EVENTS_MAX_BYTES',
    '  value: {{ . }}',
    '{{- end }}',
    '{{- if .Values.nats.enabled }}',
    '- name: FAIRLEAD_STORAGE_MAX_BYTES',
    '  value: {{ trimSuffix "B" .Values.nats.storage.maxFile }}',
    '{{- end }}',
  )
  return processOf('bridge', objects, template, [limits, replicasOf(template), shardIn(objects, 'bridge', template)])
}

function dispatcher(objects: readonly KubeObject[]): Promise<string> {
  const template = new Templated()
  const deployment = objectOf(objects, 'Deployment', 'fairlead-dispatcher')
  const modules = template.items(
    '{{- range .Values.dispatcher.functions }}',
    '- -f',
    '- {{ . | quote }}',
    '{{- end }}',
    '{{- with .Values.dispatcher.builtin }}',
    '- --builtin',
    '- {{ join "," . | quote }}',
    '{{- end }}',
  )
  set(deployment, `${CONTAINER}/args/-`, modules)
  return processOf('dispatcher', objects, template, [replicasOf(template), shardIn(objects, 'dispatcher', template)])
}

/**
 * Gives the Deployment of a shard a name and a label of its own, and returns the variable. The PodDisruptionBudget without
 * a shard covers the pods of all shards: a pod with two budgets could not be evicted.
 */
function shardIn(objects: readonly KubeObject[], part: 'bridge' | 'dispatcher', template: Templated): string {
  const deployment = objectOf(objects, 'Deployment', `fairlead-${part}`)
  const label = template.items('{{- with .Values.shard }}', `${SHARD_LABEL}: {{ . | quote }}`, '{{- end }}')
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
  const limit = template.items(
    '{{- with .Values.nats.resources | default dict | dig "limits" "memory" "" }}',
    '- name: GOMEMLIMIT',
    '  value: {{ include "fairlead.goMemoryLimit" . }}',
    '{{- end }}',
  )
  const variables = get(servers, `${CONTAINER}/env`) as { name: string }[]
  set(servers, `${CONTAINER}/env`, [...variables.filter(({ name }) => name !== 'GOMEMLIMIT'), limit])
  set(servers, `${CONTAINER}/image`, template.value('include "fairlead.image" .Values.nats.image'))
  const claim = 'spec/volumeClaimTemplates/0/spec'
  const storageClass = ['{{- with .Values.nats.storage.className }}', 'storageClassName: {{ . }}', '{{- end }}']
  set(servers, `${claim}/storageClassName`, template.items(...storageClass))
  set(servers, `${claim}/resources/requests/storage`, template.value('.Values.nats.storage.size'))
  const budget = await manifestsIn('fairlead-ha/disruption.yaml')
  const budgets = await template.render(budget, `and .Values.nats.disruption.enabled (${IS_CLUSTER})`)
  const text = await template.render([service, servers])
  return `{{- if .Values.nats.enabled }}\n{{ include "fairlead.natsConfig" . }}\n---\n${text}---\n${budgets}{{- end }}\n`
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
