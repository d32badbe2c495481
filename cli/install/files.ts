import { builtins } from '#functions'
import { version } from '#process/version'
import { funcPack } from '#scaffold'
import { definitionsOf, manifest } from '#sdk'
import { functionsChart, platformChart } from './chart/chart.ts'
import { yamlOf } from './chart/templated.ts'
import { knativeManifests } from './knative.ts'
import { consoleRbac, consoleWritesRbac, functionRbac, platformRbac } from './rbac.ts'
import { reconcilerCrd } from './reconciler.ts'

const HEADER = '# Generated from the schemas in the code: change those, then npm run generate.\n'

/** Placeholders for the user's own values, which `fairlead generate knative --image` sets. */
const KNATIVE = { image: 'fairlead:latest', namespace: 'fairlead-functions' }

/** Returns the contents of all generated manifests, keyed by their paths from the root of the repository. */
export async function generatedFiles(): Promise<Map<string, string>> {
  const crds = [reconcilerCrd(), ...definitionsOf(builtins)]
  const files: [string, object | readonly object[]][] = [
    ...crds.map((crd): [string, object] => [`crds/${crd.spec.group}_${crd.spec.names.plural}.yaml`, crd]),
    ...builtins.map((builtin): [string, object] => [
      `functions/${builtin.name.replace('-', '/')}/reconciler.yaml`,
      manifest(builtin),
    ]),
    ['deploy/rbac/fairlead.yaml', platformRbac()],
    ['deploy/console/rbac.yaml', consoleRbac()],
    ['deploy/console/writes/rbac.yaml', consoleWritesRbac()],
    ...builtins.map((one): [string, object[]] => [`deploy/rbac/${one.name}.yaml`, functionRbac(manifest(one))]),
    ...builtins.map((one): [string, object[]] => [`deploy/knative/${one.name}.yaml`, knativeManifests(one, KNATIVE)]),
  ]
  const manifests = files.map(async ([path, content]) => [path, HEADER + (await yamlOf(content))] as const)
  return new Map([...(await Promise.all(manifests)), ...(await charts()), ...(await languagePack())])
}

/** `func` identifies a repository of language packs by its manifest.yaml. */
async function languagePack(): Promise<Map<string, string>> {
  const folder = 'deploy/func'
  const repository = HEADER + (await yamlOf({ name: 'fairlead', version, templates: folder }))
  const pack = [...(await funcPack(version))].map(([path, text]) => [`${folder}/${path}`, text] as const)
  return new Map([['manifest.yaml', repository], ...pack])
}

/** Returns the generated files of both charts; their other files are written by hand. */
async function charts(): Promise<Map<string, string>> {
  const folder = 'deploy/chart/fairlead-functions'
  const own = await functionsChart(builtins, {
    name: 'fairlead-functions',
    version,
    description:
      'The functions that are built into Fairlead, with their kinds and rights. The values enable each of them',
    image: { repository: 'fairlead', tag: 'latest', digest: '' },
    modules: [],
    builtin: ['all'],
    optIn: true,
  })
  const functions = [...own].map(([path, text]) => [`${folder}/${path}`, text] as const)
  return new Map([...(await platformChart(version)), ...functions])
}
