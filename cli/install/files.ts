import { builtins } from '#functions'
import { version } from '#process/version'
import { definitionsOf, manifest } from '#sdk'
import { functionsChart, platformChart } from './chart/chart.ts'
import { yamlOf } from './chart/templated.ts'
import { consoleRbac, consoleWritesRbac } from './rbac.ts'
import { reconcilerCrd } from './reconciler.ts'

const HEADER = '# Generated from the schemas in the code: change those, then npm run generate.\n'

/** Returns the contents of all generated files that are committed, keyed by their paths from the root of the repository. */
export async function generatedFiles(): Promise<Map<string, string>> {
  const functions = await builtins()
  const crds = [reconcilerCrd(), ...definitionsOf(functions)]
  const files: [string, object | readonly object[]][] = [
    ...crds.map((crd): [string, object] => [`crds/${crd.spec.group}_${crd.spec.names.plural}.yaml`, crd]),
    ...functions.map((one): [string, object] => [
      `functions/${one.name.replace('-', '/')}/reconciler.yaml`,
      manifest(one),
    ]),
    ['deploy/console/rbac.yaml', consoleRbac()],
    ['deploy/console/writes/rbac.yaml', consoleWritesRbac()],
  ]
  const manifests = files.map(async ([path, content]) => [path, HEADER + (await yamlOf(content))] as const)
  return new Map(await Promise.all(manifests))
}

/** Returns all files of both charts, keyed by their paths below the folder of the charts. */
export async function charts(): Promise<Map<string, string>> {
  const functions = await functionsChart(await builtins(), {
    name: 'fairlead-functions',
    version,
    description:
      'The functions that are built into Fairlead, with their kinds and rights. The values enable each of them',
    image: { repository: 'fairlead', tag: 'latest', digest: '' },
    modules: [],
    builtin: ['all'],
    optIn: true,
  })
  const both = { fairlead: await platformChart(version), 'fairlead-functions': functions }
  return new Map(
    Object.entries(both).flatMap(([name, files]) =>
      [...files].map(([path, text]) => [`${name}/${path}`, text] as const),
    ),
  )
}
