import { apiVersionOf, type KubeObject } from '#contracts'
import { UsageError } from '#process/exit'
import { version as fairlead } from '#process/version'
import { definitionsOf, isResource, manifest, policiesOf, type Reconciler, type ReconcilerManifest } from '#sdk'
import { RECONCILERS } from '#spec'
import { yamlOf } from './chart/templated.ts'
import { configVolume } from './config-volume.ts'
import { labelled } from './install.ts'
import { functionRbac } from './rbac.ts'
import { sortedDefinitions } from './webhook.ts'

/**
 * A bundle of the format registry+v1 with all functions, by the paths in it; beside manifests and metadata also the
 * Reconcilers, which OLM does not install, a Dockerfile of the bundle, and a file for Artifact Hub.
 */
export async function olmBundle(functions: readonly Reconciler[], options: CsvOptions): Promise<Map<string, string>> {
  const { about, namespace, shard } = options
  const examples = examplesOf(functions, options.examples)
  const { plain: definitions, converted } = sortedDefinitions(functions)
  if (converted[0] !== undefined)
    throw new UsageError(
      `${converted[0].spec.names.kind} has conversions, whose webhook OLM does not install: use fairlead install`,
    )
  const bare = definitions.find(({ spec }) => !examples.some(({ kind }) => kind === spec.names.kind))
  if (bare)
    throw new UsageError(
      `there is no example of ${bare.spec.names.kind}: give a file or a folder that has one, --examples`,
    )
  const bundled = functions.map((one) => [one, bundledFunction(one, namespace)] as const)
  const csv = clusterServiceVersion(bundled, { ...options, examples })
  const annotations = bundleAnnotations(about.name)
  const objects = [csv, ...definitions, ...bundled.flatMap(([one, { objects: more }]) => [serviceFor(one), ...more])]
  const manifests = objects.map(
    async (object) => [`manifests/${fileOf(object, about.name)}`, await yamlOf(object)] as const,
  )
  return new Map([
    ...(await Promise.all(manifests)),
    ['metadata/annotations.yaml', await yamlOf({ annotations })],
    ['reconcilers.yaml', await yamlOf(bundled.map(([, { reconciler }]) => labelled(reconciler, shard)))],
    ['bundle.Dockerfile', dockerfile(annotations)],
    ['artifacthub-repo.yml', await yamlOf({ owners: about.maintainers })],
  ])
}

const PREFIX = 'operators.operatorframework.io.bundle'
const CHANNEL = 'stable'

const bundleAnnotations = (name: string): Record<string, string> => ({
  [`${PREFIX}.mediatype.v1`]: 'registry+v1',
  [`${PREFIX}.manifests.v1`]: 'manifests/',
  [`${PREFIX}.metadata.v1`]: 'metadata/',
  [`${PREFIX}.package.v1`]: name,
  [`${PREFIX}.channels.v1`]: CHANNEL,
  [`${PREFIX}.channel.default.v1`]: CHANNEL,
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

interface CsvOptions extends Workload {
  about: BundlePackage
  namespace: string
  /** Objects of the kinds that the functions define. */
  examples: readonly KubeObject[]
  /** An icon in Base64, and its media type. */
  icon?: { base64data: string; mediatype: string } | undefined
  /** The earlier version from which OLM upgrades. */
  replaces?: string | undefined
  /** The shard that serves the Reconcilers. Left out: the installation without a shard. */
  shard: string | undefined
  createdAt: string
}

const PLATFORM = 'https://www.npmjs.com/package/fairlead'
const KUBERNETES = '1.30.0'

/**
 * Returns the ClusterServiceVersion that OLM installs: the functions as Deployments, and the RBAC of their accounts.
 */
function clusterServiceVersion(
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
  const { about, image, namespace, examples, createdAt } = options
  return {
    'alm-examples': JSON.stringify(examples, null, 2),
    capabilities: 'Basic Install',
    categories: 'Integration & Delivery',
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

interface Descriptor {
  path: string
  displayName: string
  description?: string
  'x-descriptors'?: string[]
}

/** The part of a schema that is read here. */
interface Schema {
  type?: string
  description?: string
  properties?: Record<string, Schema>
}

/** The definitions of a function as a ClusterServiceVersion owns them, one for each version that is served. */
function ownedBy(one: Reconciler): object[] {
  const resources = one.owns.map(({ kind, group, version }) => ({
    kind,
    name: '',
    version: group === '' ? version : `${group}/${version}`,
  }))
  return definitionsOf([one]).flatMap(({ metadata: { name }, spec: { names, versions } }) =>
    versions.map(({ name: version, schema: { openAPIV3Schema } }) => {
      const { description, properties = {} } = openAPIV3Schema as Schema
      return {
        name,
        kind: names.kind,
        version,
        displayName: words(names.kind),
        description: description ?? `A ${words(names.kind)}, reconciled by the function ${one.name}.`,
        resources: [{ kind: names.kind, name: '', version }, ...resources],
        specDescriptors: fieldsOf(properties['spec']),
        statusDescriptors: fieldsOf(properties['status']),
      }
    }),
  )
}

/** The examples of the kinds that the functions define, by kind. */
function examplesOf(functions: readonly Reconciler[], objects: readonly KubeObject[]): KubeObject[] {
  const served = definitionsOf(functions).flatMap(({ spec: { group, names, versions } }) =>
    versions.map(({ name }) => `${group}/${name} ${names.kind}`),
  )
  return objects.filter(({ apiVersion, kind }) => served.includes(`${apiVersion} ${kind}`))
}

/** Fields by their paths; those of objects instead of the objects. Items of lists and values of maps have no paths. */
function fieldsOf(schema: Schema = {}, at = ''): Descriptor[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const path = at === '' ? name : `${at}.${name}`
    if (field.properties) return fieldsOf(field, path)
    return {
      path,
      displayName: words(name),
      description: field.description,
      ...(path === 'conditions' && { 'x-descriptors': ['urn:alm:descriptor:io.kubernetes.conditions'] }),
    }
  })
}

/** `backupPolicy`: Backup Policy. */
const words = (name: string): string =>
  `${name.charAt(0).toUpperCase()}${name.slice(1)}`.replaceAll(/(?<=[a-z0-9])(?=[A-Z])/g, ' ')

/** Description of the operator, from package.json. */
export interface BundlePackage {
  /** A DNS label. */
  name: string
  /** Semantic version. */
  version: string
  description: string
  license?: string
  keywords: string[]
  provider: Person
  /** People with a name and an e-mail address. */
  maintainers: { name: string; email: string }[]
  homepage?: string
  repository?: string
  /** Where to ask for help. */
  support?: string
}

interface Person {
  name: string
  email?: string
  url?: string
}

type PersonField = string | Person

export interface PackageJson {
  name?: string
  version?: string
  description?: string
  license?: string
  keywords?: string[]
  author?: PersonField
  maintainers?: PersonField[]
  homepage?: string
  repository?: string | { url?: string }
  bugs?: string | { url?: string }
}

const SEMVER = /^\d+\.\d+\.\d+(?:[-+][\w.+-]+)?$/

/** Reads package.json; the error names all fields that are missing. */
export function bundlePackage(json: PackageJson, file: string): BundlePackage {
  const name = (json.name ?? '').replace(/^@/, '').replace('/', '-')
  const author = personOf(json.author)
  const lacks = [
    ...(/^[a-z0-9](?:[a-z0-9-]{0,40}[a-z0-9])?$/.test(name) ? [] : ['name (a DNS label of 42 characters at most)']),
    ...(SEMVER.test(json.version ?? '') ? [] : ['version (such as 1.2.0)']),
    ...(json.description ? [] : ['description']),
    ...(author === undefined ? ['author (who provides the operator, "Name <e-mail> (URL)")'] : []),
  ]
  if (lacks.length > 0 || author === undefined) throw new UsageError(`${file} lacks, for a bundle: ${lacks.join(', ')}`)
  const urlOf = (field?: string | { url?: string }) =>
    (typeof field === 'object' ? field.url : field)?.replace(/^git\+/, '').replace(/\.git$/, '')
  const [repository, support] = [urlOf(json.repository), urlOf(json.bugs) ?? author.email ?? author.url]
  const people = [author, ...(json.maintainers ?? []).flatMap((one) => personOf(one) ?? [])]
  return {
    name,
    version: json.version ?? '',
    description: json.description ?? '',
    keywords: json.keywords ?? [],
    provider: author,
    maintainers: people.flatMap(({ name: person, email }) => (email === undefined ? [] : [{ name: person, email }])),
    license: json.license,
    homepage: json.homepage,
    repository,
    support,
  }
}

/** `Name <e-mail> (URL)`, as npm reads it. */
function personOf(field?: PersonField): Person | undefined {
  if (typeof field === 'object') return field.name ? field : undefined
  const [, name = '', email, url] = /^([^<(]+?)\s*(?:<([^>]+)>)?\s*(?:\(([^)]+)\))?$/.exec(field ?? '') ?? []
  return name === '' ? undefined : { name, ...(email && { email }), ...(url && { url }) }
}

interface BundledFunction {
  /** Calls the function where the bundle runs it. */
  reconciler: ReconcilerManifest
  /** The account's rights, which OLM binds to it. */
  permissions: { serviceAccountName: string; rules: object[] }
  /** What bridge and dispatcher need beside. */
  objects: KubeObject[]
}

/** Parts of a function whose account OLM creates in this namespace, with the rights that the bundle names. */
function bundledFunction(one: Reconciler, namespace: string): BundledFunction {
  if (one.namespaces !== undefined)
    throw new UsageError(
      `function ${one.name} is for some namespaces alone, and OLM binds rights in all of them or in that of the operator: install it by a chart, fairlead generate chart`,
    )
  const [policy] = policiesOf([one])
  if (policy !== undefined)
    throw new UsageError(
      `function ${one.name} has rules that need a ${policy.kind}, which OLM does not install: install it by a chart, fairlead generate chart`,
    )
  if (isResource(one.for) && one.for.judge !== undefined)
    throw new UsageError(`${one.for.kind} has "admit", whose webhook OLM does not install: use fairlead install`)
  const url = `http://${serviceOf(one)}.${namespace}.svc`
  const plain = manifest(one, { invoke: { http: { url } } })
  const account = { name: accountOf(one), namespace }
  const reconciler = { ...plain, spec: { ...plain.spec, serviceAccount: account } }
  const all = functionRbac(reconciler)
  const isOwn = ({ kind, metadata }: KubeObject) => kind.startsWith('ClusterRole') && metadata.name === account.name
  const own = all.find((object) => isOwn(object) && object.kind === 'ClusterRole') as KubeObject & { rules: object[] }
  return {
    reconciler,
    permissions: { serviceAccountName: account.name, rules: own.rules },
    objects: all.filter((object) => !isOwn(object)).map(withoutNamespace),
  }
}

const accountOf = ({ name }: Reconciler): string => `fairlead-${name}`

const serviceOf = ({ name }: Reconciler): string => `${name}-function`

/** OLM puts objects into the namespace of the operator, and refuses those that name another one. */
function withoutNamespace(object: KubeObject): KubeObject {
  const { namespace: _, ...metadata } = object.metadata
  return { ...object, metadata }
}

interface Workload {
  image: string
  modules: readonly string[]
}

const labelsOf = (one: Reconciler): Record<string, string> => ({
  'app.kubernetes.io/name': serviceOf(one),
  'app.kubernetes.io/part-of': 'fairlead',
})

/** Nodes for the images that `fairlead image` makes. */
const PLATFORMS = {
  matchExpressions: [
    { key: 'kubernetes.io/os', operator: 'In', values: ['linux'] },
    { key: 'kubernetes.io/arch', operator: 'In', values: ['amd64', 'arm64'] },
  ],
}

/** A Deployment as a ClusterServiceVersion has it: the function over HTTP. It decides, and the dispatcher writes. */
function deploymentOf(one: Reconciler, { image, modules }: Workload): object {
  const labels = labelsOf(one)
  // OLM makes the account. No token of it that the pod has is one for the API server.
  const volume = configVolume(one, accountOf(one))
  return {
    name: serviceOf(one),
    label: labels,
    spec: {
      replicas: 1,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: {
          automountServiceAccountToken: false,
          enableServiceLinks: false,
          ...volume.pod,
          affinity: {
            nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [PLATFORMS] } },
          },
          securityContext: { runAsNonRoot: true, runAsUser: 65_532, seccompProfile: { type: 'RuntimeDefault' } },
          containers: [
            {
              name: 'function',
              image,
              args: ['serve', ...modules.flatMap((module) => ['--function', module]), one.name],
              ports: [{ name: 'http', containerPort: 8080 }],
              readinessProbe: { httpGet: { path: '/health/readiness', port: 'http' } },
              livenessProbe: { httpGet: { path: '/health/liveness', port: 'http' } },
              resources: { requests: { cpu: '50m', memory: '96Mi' }, limits: { memory: '256Mi' } },
              securityContext: {
                allowPrivilegeEscalation: false,
                capabilities: { drop: ['ALL'] },
                readOnlyRootFilesystem: true,
              },
              ...volume.container,
            },
          ],
        },
      },
    },
  }
}

const serviceFor = (one: Reconciler): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name: serviceOf(one), labels: labelsOf(one) },
  spec: { selector: labelsOf(one), ports: [{ name: 'http', port: 80, targetPort: 'http' }] },
})
