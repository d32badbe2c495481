import type { KubeObject } from '#contracts'
import { get, objectOf, set } from './sources.ts'
import type { Templated } from './templated.ts'

export const IS_CLUSTER = 'gt (int .Values.nats.replicas) 1'
const SUFFIX = 'empty .Values.shard | ternary "" (printf "-%s" .Values.shard)'
export const POD = 'spec/template/spec'
export const CONTAINER = `${POD}/containers/0`

/** Returns the Deployment and PodDisruptionBudget of a part, with additional environment variables. */
export async function processOf(
  part: 'bridge' | 'dispatcher' | 'console',
  objects: readonly KubeObject[],
  template: Templated,
  variables: string[],
): Promise<string> {
  const values = `.Values.${part}`
  const deployment = objectOf(objects, 'Deployment', `fairlead-${part}`)
  set(deployment, 'spec/replicas', template.value(`${values}.replicas`))
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
  return `${await template.render([deployment])}---\n${await template.render([budget], `and ${values}.disruption.enabled (not .Values.shard)`)}`
}

/** Adds the scheduling settings of the cluster to the pods of a part. */
export function inCluster(object: KubeObject, values: string, template: Templated): void {
  set(object, `${POD}/nodeSelector`, template.optional(`${values}.nodeSelector`))
  set(object, `${POD}/tolerations`, template.optional(`${values}.tolerations`))
  set(object, `${POD}/imagePullSecrets`, template.optional('.Values.imagePullSecrets'))
  set(object, `${CONTAINER}/resources`, template.structure(`${values}.resources`))
  const policy = ['{{- with .Values.image.pullPolicy }}', 'imagePullPolicy: {{ . }}', '{{- end }}']
  set(object, `${CONTAINER}/imagePullPolicy`, template.items(...policy))
}
