import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Kind, type Reconciler, reconciler, shortName } from '#sdk'
import { readChart } from './chart.ts'
import { FORMER } from './former.ts'
import { expanded } from './go.ts'
import { ownedKinds, readDefinitions, resourceOf } from './kinds.ts'
import { type Operator, released, uninstalled } from './release.ts'
import { call, RenderError, type Rendered, type Rendering, render } from './render.ts'
import { readWatches, type Watch } from './watches.ts'

/**
 * The options of `helmFunctions()`.
 *
 * @example
 * import { Ingress } from 'fairlead'
 * import type { HelmOptions } from 'fairlead/helm'
 * const options: HelmOptions = { kinds: { Nginx: [Ingress] }, definitions: 'config/crd/bases' }
 * options.kinds?.['Nginx']?.length // => 1
 */
export interface HelmOptions {
  /**
   * The program of Helm, or its path.
   *
   * @default 'helm'
   */
  helm?: string
  /**
   * Kinds that templates make with other values than those of `values.yaml`, keyed by the kind that is watched. A kind
   * with a strategy or another plural than the usual one is declared here too.
   *
   * @default the kinds that the chart makes with its own values
   */
  kinds?: Readonly<Record<string, readonly Kind<unknown>[]>>
  /**
   * The file or the folder with the CustomResourceDefinitions of the watched kinds, which stay as they are.
   *
   * @default a definition that admits each spec
   */
  definitions?: string
  /**
   * The version of Kubernetes that templates see.
   *
   * @default that of the program
   */
  kubeVersion?: string
  /**
   * API versions that templates see beside those of Kubernetes: `['monitoring.coreos.com/v1']`.
   *
   * @default []
   */
  apiVersions?: readonly string[]
  /**
   * Only objects in these namespaces are released.
   *
   * @default all namespaces
   */
  namespaces?: string[]
}

/** What operator-sdk and helm-operator-plugins leave on objects. */
const FORMER_FINALIZERS = ['helm.sdk.operatorframework.io/uninstall-release', 'uninstall-helm-release']

/**
 * Returns a function for each entry of a watches.yaml of operator-sdk: it renders the chart of the entry with the spec of
 * an object, and returns what the chart makes. Paths of charts are relative to the file. Renders each chart once, with its
 * own values, to learn the kinds that the function owns.
 *
 * Rejects with an Error that names the field or the chart for what is wrong or not offered.
 *
 * @example
 * import { helmFunctions } from 'fairlead/helm'
 * const error = await helmFunctions('no/watches.yaml').catch(({ message }) => message)
 * error // => 'cannot read no/watches.yaml: there is no such file'
 */
export async function helmFunctions(watches: string | URL, options: HelmOptions = {}): Promise<Reconciler[]> {
  const file = typeof watches === 'string' ? watches : fileURLToPath(watches)
  const entries = await readWatches(file)
  const unknown = Object.keys(options.kinds ?? {}).find((kind) => !entries.some((one) => one.kind === kind))
  if (unknown !== undefined)
    throw new Error(`helmFunctions: kinds.${unknown} is for no entry of ${file}: give the kind of an entry`)
  const definitions = options.definitions === undefined ? [] : await readDefinitions(resolve(options.definitions))
  return Promise.all(entries.map(async (watch) => functionOf(watch, definitions, options)))
}

async function functionOf(
  watch: Watch,
  definitions: Awaited<ReturnType<typeof readDefinitions>>,
  { helm = 'helm', kinds = {}, kubeVersion, apiVersions = [], namespaces }: HelmOptions,
): Promise<Reconciler> {
  const chart = await readChart(watch.chart)
  const overrides = await overridesOf(watch, helm)
  const rendering: Rendering = { helm, kubeVersion, apiVersions, overrides }
  const declared = kinds[watch.kind] ?? []
  const rendered = await render(chart, { name: 'release-name', namespace: 'default', values: {} }, rendering).catch(
    (error: unknown): Rendered => {
      if (!(error instanceof RenderError)) throw error
      if (declared.length > 0) return { objects: [], notes: '' }
      throw new Error(
        `the kinds of chart ${chart.name} are not known, because it needs values: declare them in kinds.${watch.kind}: ${error.message}`,
        { cause: error },
      )
    },
  )
  const objects = rendered.objects.map(({ object }) => object)
  const primary = resourceOf(watch, definitions)
  const operator: Operator = { watch, for: primary, chart, rendering, owns: ownedKinds(chart, objects, declared) }
  const { kind, group, selector, concurrency } = watch
  const made = reconciler({
    name: shortName(`${kind}-${group}`.toLowerCase().replaceAll('.', '-'), 63),
    for: primary,
    owns: operator.owns,
    formerFinalizers: FORMER_FINALIZERS,
    ...(selector !== undefined && { selector }),
    ...(concurrency !== undefined && { concurrency }),
    ...(namespaces !== undefined && { namespaces }),
    reconcile: (run) => released(operator, run),
    finalize: (run) => uninstalled(operator, run),
  })
  return Object.freeze({ ...made, succeeds: FORMER })
}

/** Returns the overrides with variables of the environment, and then with templates, as operator-sdk reads them. */
async function overridesOf({ overrides, kind }: Watch, helm: string): Promise<Record<string, string>> {
  const values = Object.entries(overrides).map(([path, text]) => [path, expanded(text, process.env)] as const)
  if (!values.some(([, text]) => text.includes('{{'))) return Object.fromEntries(values)
  const folder = await mkdtemp(join(tmpdir(), 'fairlead-overrides-'))
  try {
    const defined = values.map(([, text], index) => `{{- define "${index}" }}${text}{{ end }}`)
    const made = values.map(([path], index) => `${JSON.stringify(path)} (include "${index}" .)`)
    await mkdir(join(folder, 'templates'))
    await writeFile(join(folder, 'Chart.yaml'), 'apiVersion: v2\nname: overrides\nversion: 0.0.0\n')
    const template = `${defined.join('')}\nvalues: {{ dict ${made.join(' ')} | toJson }}\n`
    await writeFile(join(folder, 'templates/values.yaml'), template)
    const args = ['template', 'overrides', folder, '--values', '-']
    const text = await call(args, { values: {} }, { helm, overrides: {} })
    const [, json = ''] = /^values: (.*)$/m.exec(text) ?? []
    return JSON.parse(json) as Record<string, string>
  } catch (cause) {
    throw new Error(`overrideValues of ${kind} cannot be evaluated: ${(cause as Error).message}`, { cause })
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
