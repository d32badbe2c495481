import type { CustomResourceDefinition } from '#sdk'
import { Templated } from './templated.ts'

/**
 * Definitions as templates, since Helm never upgrades what is in crds/. They stay when the chart is uninstalled: with them
 * all objects would go.
 */
export function definitionTemplates(crds: readonly CustomResourceDefinition[]): Promise<string> {
  const template = new Templated()
  const kept = template.items(
    '{{- if .Values.crds.keep }}',
    'annotations:',
    '  helm.sh/resource-policy: keep',
    '{{- end }}',
  )
  const objects = crds.map((crd) => ({ ...crd, metadata: { ...crd.metadata, annotations: kept } }))
  return template.render(objects, '.Values.crds.enabled')
}
