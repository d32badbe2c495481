import type { CustomResourceDefinition } from '#sdk'
import { Templated } from './templated.ts'

/**
 * Returns definitions as templates, since Helm never upgrades files in crds/. An uninstallation keeps them: deleting a
 * definition deletes all its objects.
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
