import { stringify } from 'yaml'
import { builtins } from '#functions'
import { manifest } from '#sdk'
import { reconcilerCrd } from './reconciler.ts'

const HEADER = '# Generated from the schemas in the code: change those, then npm run generate.\n'

/** Path, from the root of the repository, and content of every generated manifest. */
export function generatedFiles(): Map<string, string> {
  const crds = [reconcilerCrd(), ...builtins.map((builtin) => builtin.for.crd())]
  const files: [string, object][] = [
    ...crds.map((crd): [string, object] => [`crds/${crd.spec.group}_${crd.spec.names.plural}.yaml`, crd]),
    ...builtins.map((builtin): [string, object] => [`functions/${builtin.name}/reconciler.yaml`, manifest(builtin)]),
  ]
  return new Map(files.map(([path, object]) => [path, HEADER + stringify(object, { lineWidth: 0 })]))
}
