import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { definitionsOf, manifest, type Reconciler } from '#sdk'
import { SHARD_LABEL } from '#spec'
import { functionRbac } from '../rbac.ts'
import { yamlOf } from '../yaml.ts'
import { type ChartFile, chartFile } from './chart-file.ts'
import { definitionTemplates } from './definitions.ts'
import { DEPLOY } from './sources.ts'
import { Templated } from './templated.ts'

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
}

/** Returns a chart of functions, keyed by path: the objects that `fairlead install` applies for each of them. */
export async function functionsChart(
  functions: readonly Reconciler[],
  chart: FunctionsChart,
): Promise<Map<string, string>> {
  const templates = await Promise.all(
    functions.map(async (one) => [`templates/${one.name}.yaml`, await templateOf(one)] as const),
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
  { image, modules, builtin, optIn = false }: FunctionsChart,
): object => ({
  image: { ...image, pullPolicy: '' },
  imagePullSecrets: [],
  crds: { enabled: true, keep: true },
  check: { enabled: true, modules, builtin, apiServerPorts: [443, 6443] },
  shard: '',
  functions: Object.fromEntries(functions.map(({ name }) => [name, { enabled: !optIn, url: '', revision: '' }])),
})

/**
 * The permissions of `install --check`: to read the existing definitions, and whether objects are stored under them.
 */
async function checkRole(functions: readonly Reconciler[]): Promise<string> {
  const template = new Templated()
  const definitions = definitionsOf(functions)
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

async function templateOf(one: Reconciler): Promise<string> {
  const values = `(index .Values.functions ${JSON.stringify(one.name)})`
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
  const objects = [...functionRbac(reconciler), { ...reconciler, metadata, spec: { ...reconciler.spec, invoke } }]
  const definitions = definitionsOf([one])
  const kinds = definitions.length === 0 ? '' : `---\n${await definitionTemplates(definitions)}`
  return `{{- if ${values}.enabled }}\n${await template.render(objects)}${kinds}{{- end }}\n`
}
