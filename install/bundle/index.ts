import type { KubeObject } from '#contracts'
import { UsageError } from '#host/exit'
import { definitionsOf, type Reconciler } from '#sdk'
import { yamlOf } from '../yaml.ts'
import { type CsvOptions, clusterServiceVersion } from './csv.ts'
import { examplesOf } from './descriptors.ts'
import { bundledFunction } from './rights.ts'
import { serviceFor } from './workload.ts'

export { bundlePackage, type PackageJson } from './package.ts'

export interface BundleOptions extends CsvOptions {
  /** The first is the default. */
  channels: readonly string[]
}

/** Values that catalogs know. */
export const CAPABILITIES = ['Basic Install', 'Seamless Upgrades', 'Full Lifecycle', 'Deep Insights', 'Auto Pilot']
export const CATEGORIES = [
  'AI/Machine Learning',
  'Application Runtime',
  'Big Data',
  'Cloud Provider',
  'Database',
  'Developer Tools',
  'Integration & Delivery',
  'Logging & Tracing',
  'Modernization & Migration',
  'Monitoring',
  'Networking',
  'Observability',
  'OpenShift Optional',
  'Security',
  'Storage',
  'Streaming & Messaging',
]

/**
 * A bundle of the format registry+v1 with all functions, by the paths in it; beside manifests and metadata also the
 * Reconcilers, which OLM does not install, a Dockerfile of the bundle, and a file for Artifact Hub.
 */
export async function olmBundle(
  functions: readonly Reconciler[],
  options: BundleOptions,
): Promise<Map<string, string>> {
  const { about, namespace, channels } = options
  const examples = examplesOf(functions, options.examples)
  const definitions = definitionsOf(functions)
  const bare = definitions.find(({ spec }) => !examples.some(({ kind }) => kind === spec.names.kind))
  if (bare)
    throw new UsageError(
      `there is no example of ${bare.spec.names.kind}: give a file or a folder that has one, --examples`,
    )
  const bundled = functions.map((one) => [one, bundledFunction(one, namespace)] as const)
  const csv = clusterServiceVersion(bundled, { ...options, examples })
  const annotations = bundleAnnotations(about.name, channels)
  const objects = [csv, ...definitions, ...bundled.flatMap(([one, { objects: more }]) => [serviceFor(one), ...more])]
  const manifests = objects.map(
    async (object) => [`manifests/${fileOf(object, about.name)}`, await yamlOf(object)] as const,
  )
  return new Map([
    ...(await Promise.all(manifests)),
    ['metadata/annotations.yaml', await yamlOf({ annotations })],
    ['reconcilers.yaml', await yamlOf(bundled.map(([, { reconciler }]) => reconciler))],
    ['bundle.Dockerfile', dockerfile(annotations)],
    ['artifacthub-repo.yml', await yamlOf({ owners: about.maintainers })],
  ])
}

const PREFIX = 'operators.operatorframework.io.bundle'

const bundleAnnotations = (name: string, channels: readonly string[]): Record<string, string> => ({
  [`${PREFIX}.mediatype.v1`]: 'registry+v1',
  [`${PREFIX}.manifests.v1`]: 'manifests/',
  [`${PREFIX}.metadata.v1`]: 'metadata/',
  [`${PREFIX}.package.v1`]: name,
  [`${PREFIX}.channels.v1`]: channels.join(','),
  [`${PREFIX}.channel.default.v1`]: channels[0] ?? '',
})

const dockerfile = (labels: Record<string, string>): string =>
  [
    'FROM scratch',
    ...Object.entries(labels).map(([name, value]) => `LABEL ${name}=${value}`),
    'COPY manifests /manifests/',
    'COPY metadata /metadata/',
    '',
  ].join('\n')

function fileOf({ kind, metadata: { name } }: KubeObject, packageName: string): string {
  if (kind === 'ClusterServiceVersion') return `${packageName}.clusterserviceversion.yaml`
  if (kind === 'CustomResourceDefinition') return `${name}.crd.yaml`
  return `${name}_${kind.toLowerCase()}.yaml`
}
