import type { KubeObject } from '#contracts'
import { get, set, type Templated } from './templated.ts'

const POD = 'spec/template/spec'

/**
 * Mounts the Secret with the file of clusters, and the certificates of their users of NATS, in one folder, and returns the
 * variable with the path of the file.
 */
export function clustersIn(deployment: KubeObject, part: 'bridge' | 'dispatcher', template: Templated): string {
  const [volumes, mounts] = [`${POD}/volumes`, `${POD}/containers/0/volumeMounts`]
  const volume = template.items(
    '{{- with .Values.clusters.secret }}',
    '- name: clusters',
    '  projected:',
    '    defaultMode: 0440',
    '    sources:',
    '      - secret: { name: {{ . | quote }} }',
    '      {{- range $.Values.clusters.users }}',
    '      - secret:',
    `          name: fairlead-nats-${part}.{{ . }}`,
    '          items:',
    '            - { key: tls.crt, path: nats/{{ . }}/tls.crt }',
    '            - { key: tls.key, path: nats/{{ . }}/tls.key }',
    '      {{- end }}',
    '{{- end }}',
  )
  const mount = template.items(
    '{{- if .Values.clusters.secret }}',
    '- name: clusters',
    '  mountPath: /etc/fairlead',
    '{{- end }}',
  )
  set(deployment, volumes, [...(get(deployment, volumes) as object[]), volume])
  set(deployment, mounts, [...(get(deployment, mounts) as object[]), mount])
  return template.items(
    '{{- if .Values.clusters.secret }}',
    '- name: FAIRLEAD_CLUSTERS',
    '  value: /etc/fairlead/clusters.yaml',
    '{{- end }}',
  )
}
