import { apiVersionOf, type KubeObject } from '#contracts'
import { version as fairlead } from '#host/version'
import { definitionsOf, type Reconciler } from '#sdk'
import { RECONCILERS } from '#spec'
import { ownedBy } from './descriptors.ts'
import type { BundlePackage } from './package.ts'
import type { BundledFunction } from './rights.ts'
import { deploymentOf, type Workload } from './workload.ts'

export interface CsvOptions extends Workload {
  about: BundlePackage
  namespace: string
  /** Objects of the kinds that the functions define. */
  examples: readonly KubeObject[]
  category: string
  capabilities: string
  /** An icon in Base64, and its media type. */
  icon?: { base64data: string; mediatype: string }
  /** The earlier version from which OLM upgrades. */
  replaces?: string
  createdAt: string
}

const PLATFORM = 'https://www.npmjs.com/package/fairlead'
const KUBERNETES = '1.30.0'

/**
 * Returns the ClusterServiceVersion that OLM installs: the functions as Deployments, and the RBAC of their accounts.
 */
export function clusterServiceVersion(
  functions: readonly (readonly [Reconciler, BundledFunction])[],
  options: CsvOptions,
): KubeObject {
  const { about, image, replaces, icon } = options
  const [group, version, kind] = [RECONCILERS.group, RECONCILERS.version, 'Reconciler']
  return {
    apiVersion: 'operators.coreos.com/v1alpha1',
    kind: 'ClusterServiceVersion',
    metadata: {
      name: csvName(about),
      namespace: 'placeholder',
      labels: {
        'operatorframework.io/os.linux': 'supported',
        'operatorframework.io/arch.amd64': 'supported',
        'operatorframework.io/arch.arm64': 'supported',
      },
      annotations: annotationsOf(options),
    },
    spec: {
      displayName: titleOf(about.name),
      description: descriptionOf(functions, options),
      version: about.version,
      ...(replaces !== undefined && { replaces: csvName({ ...about, version: replaces }) }),
      maturity: about.version.startsWith('0.') ? 'alpha' : 'stable',
      minKubeVersion: KUBERNETES,
      keywords: about.keywords.length > 0 ? about.keywords : ['fairlead', about.name],
      maintainers: about.maintainers,
      provider: { name: about.provider.name, ...(about.provider.url && { url: about.provider.url }) },
      links: linksOf(about),
      ...(icon && { icon: [icon] }),
      installModes: ['OwnNamespace', 'SingleNamespace', 'MultiNamespace', 'AllNamespaces'].map((type) => ({
        type,
        supported: type === 'AllNamespaces',
      })),
      // The platform: OLM waits with the installation until the API server has this kind.
      nativeAPIs: [{ group, version, kind }],
      customresourcedefinitions: { owned: functions.flatMap(([one]) => ownedBy(one)) },
      relatedImages: [{ name: 'function', image }],
      install: {
        strategy: 'deployment',
        spec: {
          deployments: functions.map(([one]) => deploymentOf(one, options)),
          clusterPermissions: functions.map(([, { permissions }]) => permissions),
        },
      },
    },
  }
}

const csvName = ({ name, version }: Pick<BundlePackage, 'name' | 'version'>): string => `${name}.v${version}`

function annotationsOf(options: CsvOptions): Record<string, string> {
  const { about, image, namespace, examples, category, capabilities, createdAt } = options
  return {
    'alm-examples': JSON.stringify(examples, null, 2),
    capabilities,
    categories: category,
    containerImage: image,
    createdAt,
    description: about.description,
    ...(about.repository !== undefined && { repository: about.repository }),
    ...(about.support !== undefined && { support: about.support }),
    'operatorframework.io/suggested-namespace': namespace,
    'operatorframework.io/suggested-namespace-template': JSON.stringify({
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name: namespace, labels: { 'fairlead.dev/functions': 'true' } },
    }),
    'operators.operatorframework.io/builder': `fairlead-${fairlead}`,
    'artifacthub.io/category': 'integration-delivery',
    'artifacthub.io/install': installation(namespace),
    ...(about.license !== undefined && { 'artifacthub.io/license': about.license }),
    ...(/^0\.|-/.test(about.version) && { 'artifacthub.io/prerelease': 'true' }),
  }
}

function descriptionOf(
  functions: readonly (readonly [Reconciler, BundledFunction])[],
  { about, namespace }: CsvOptions,
): string {
  const kinds = definitionsOf(functions.map(([one]) => one)).map(({ spec }) => `${spec.names.kind} (${spec.group})`)
  return `${about.description}

${kinds.length > 0 ? `It defines ${kinds.join(', ')}.\n\n` : ''}${installation(namespace)}`
}

/** Returns instructions for administrators, as Markdown. */
const installation = (namespace: string): string => `## Before

Fairlead has to run on the cluster: ${PLATFORM}. Its dispatchers call the functions of this operator, and write what these return. OLM does
not install it, and waits until the API server has the kind Reconciler (${apiVersionOf(RECONCILERS)}).

Install the operator in the namespace \`${namespace}\`, for all namespaces. Give that namespace the label \`fairlead.dev/functions=true\`, so
that dispatchers reach it.

## After

OLM makes no Reconcilers. Apply those of the bundle's sources, \`kubectl apply -f reconcilers.yaml\`: from then on Fairlead calls the functions.
`

function linksOf({ homepage, repository }: BundlePackage): { name: string; url: string }[] {
  const links = { Homepage: homepage, Source: repository, Fairlead: PLATFORM }
  return Object.entries(links).flatMap(([name, url]) => (url?.startsWith('http') ? [{ name, url }] : []))
}

const titleOf = (name: string): string =>
  name
    .split('-')
    .map((word) => `${word.charAt(0).toUpperCase()}${word.slice(1)}`)
    .join(' ')
