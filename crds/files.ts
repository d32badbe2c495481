import { stringify } from 'yaml'
import { builtinReconcilers, customResourceDefinitions } from './index.ts'

const HEADER = '# Generated from the schemas in the code: change those, then npm run generate.\n'

/** Path, from the root of the repository, and content of every generated manifest. */
export function generatedFiles(): Map<string, string> {
  const crds = customResourceDefinitions().map(
    (crd) => [`crds/${crd.spec.group}_${crd.spec.names.plural}.yaml`, crd] as const,
  )
  const reconcilers = builtinReconcilers().map(
    (reconciler) => [`functions/${reconciler.metadata.name}/reconciler.yaml`, reconciler] as const,
  )
  return new Map(
    [...crds, ...reconcilers].map(([path, object]) => [path, HEADER + stringify(object, { lineWidth: 0 })]),
  )
}
