import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { parseAllDocuments } from 'yaml'
import { type CustomResourceDefinition, type Kind, type KubeObject, kind, type Resource, resource, z } from '#sdk'
import type { Chart } from './chart.ts'
import type { Watch } from './watches.ts'

/** Kinds of Kubernetes without a namespace. */
const OF_THE_CLUSTER = new Set([
  'APIService',
  'CertificateSigningRequest',
  'ClusterRole',
  'ClusterRoleBinding',
  'CSIDriver',
  'CSINode',
  'CustomResourceDefinition',
  'DeviceClass',
  'FlowSchema',
  'GatewayClass',
  'IngressClass',
  'MutatingAdmissionPolicy',
  'MutatingAdmissionPolicyBinding',
  'MutatingWebhookConfiguration',
  'Namespace',
  'Node',
  'PersistentVolume',
  'PriorityClass',
  'PriorityLevelConfiguration',
  'RuntimeClass',
  'StorageClass',
  'ValidatingAdmissionPolicy',
  'ValidatingAdmissionPolicyBinding',
  'ValidatingWebhookConfiguration',
  'VolumeAttachment',
])

/** Whether objects of the kind have no namespace, as far as it is known. */
export const isOfTheCluster = ({ defined }: Chart, object: Pick<KubeObject, 'apiVersion' | 'kind'>): boolean => {
  const { group } = groupVersionOf(object.apiVersion)
  const known = defined.find((one) => one.group === group && one.kind === object.kind)
  return known === undefined ? OF_THE_CLUSTER.has(object.kind) : known.scope === 'Cluster'
}

export const groupVersionOf = (apiVersion: string): { group: string; version: string } => {
  const [version = '', group = ''] = apiVersion.split('/').reverse()
  return { group, version }
}

/** Returns a plural by the rules that the kinds of Kubernetes follow. */
function pluralOf(name: string): string {
  const singular = name.toLowerCase()
  if (singular === 'endpoints') return singular
  if (/(s|x|z|ch|sh)$/.test(singular)) return `${singular}es`
  return /[^aeiou]y$/.test(singular) ? `${singular.slice(0, -1)}ies` : `${singular}s`
}

export const isOfKind = ({ apiVersion, kind }: Pick<KubeObject, 'apiVersion' | 'kind'>, one: Kind<unknown>): boolean =>
  kind === one.kind && apiVersion === (one.group === '' ? one.version : `${one.group}/${one.version}`)

/**
 * Returns the kinds that a function of the chart owns: the declared ones, as they are declared, and those of the objects.
 * Kinds without a namespace are left out: an object in a namespace cannot own their objects.
 */
export function ownedKinds(
  chart: Chart,
  objects: readonly KubeObject[],
  declared: readonly Kind<unknown>[],
): Kind<unknown>[] {
  const kinds = [...declared]
  for (const object of objects)
    if (!isOfTheCluster(chart, object) && !kinds.some((one) => isOfKind(object, one))) kinds.push(kindOf(chart, object))
  return kinds
}

function kindOf({ defined }: Chart, object: KubeObject): Kind<unknown> {
  const { group, version } = groupVersionOf(object.apiVersion)
  const known = defined.find((one) => one.group === group && one.kind === object.kind)
  return kind({ group, version, kind: object.kind, plural: known?.plural ?? pluralOf(object.kind) })
}

const status = z.looseObject({
  deployedRelease: z
    .object({
      name: z.string(),
      manifest: z.string().optional().describe('The objects as YAML, without the contents of Secrets.'),
      digest: z.string().optional().describe('Differs for another release.'),
      values: z.string().optional().describe('Differs for other values, or another chart.'),
    })
    .optional()
    .describe('What was written last.'),
  hooks: z
    .object({
      digest: z.string(),
      done: z.array(z.string()),
      missingSince: z.string().optional().describe('The time from which on a hook before the deletion is to be made.'),
    })
    .optional()
    .describe('The hooks that have succeeded, of the release that is being written.'),
})

export type ReleaseResource = Resource<z.ZodObject, typeof status>

/**
 * Returns the resource of a watch: with the definition of the user if there is one, otherwise with one that admits every
 * spec, as operator-sdk makes it.
 */
export function resourceOf(watch: Watch, definitions: readonly CustomResourceDefinition[]): ReleaseResource {
  const { group, version, kind } = watch
  const given = definitions.find(({ spec }) => spec.group === group && spec.names.kind === kind)
  const plural = given?.spec.names.plural ?? pluralOf(kind)
  const made = ofOperators(resource({ group, version, kind, plural, spec: z.looseObject({}), status }))
  if (given === undefined) return made
  const where = `the definition ${given.metadata.name}`
  const [only, ...others] = given.spec.versions
  if (only?.name !== version || others.length > 0)
    throw new Error(`${where} has not the one version ${version}: definitions with several versions are not offered`)
  if (given.spec.scope !== 'Namespaced')
    throw new Error(`${where} is not for objects in namespaces: a release needs the namespace of its object`)
  const { properties = {} } = only.schema.openAPIV3Schema as { properties?: Record<string, Record<string, unknown>> }
  if (
    only.subresources?.status === undefined ||
    properties['status']?.['x-kubernetes-preserve-unknown-fields'] !== true
  )
    throw new Error(
      `${where} cannot store the status of a release: give it subresources.status, and status x-kubernetes-preserve-unknown-fields: true`,
    )
  return Object.freeze({ ...made, crd: () => given })
}

/** Returns the resource with a reason for the conditions that have none: operator-sdk writes `Initialized` so. */
function ofOperators(made: ReleaseResource): ReleaseResource {
  const complete = (object: KubeObject): KubeObject => {
    const { conditions, ...others } = (object.status ?? {}) as { conditions?: { type: string }[] }
    return Array.isArray(conditions)
      ? { ...object, status: { ...others, conditions: conditions.map((one) => ({ reason: one.type, ...one })) } }
      : object
  }
  const parse = (object: KubeObject) => made.parse(complete(object))
  return Object.freeze({ ...made, parse, parseValid: (object: KubeObject) => made.parseValid(complete(object)) })
}

/** Reads CustomResourceDefinitions: those of a file, or of the YAML files in a folder. */
export async function readDefinitions(path: string): Promise<CustomResourceDefinition[]> {
  const isFolder = (await stat(path)).isDirectory()
  const names = isFolder ? (await readdir(path)).filter((name) => /\.ya?ml$/.test(name)).sort() : []
  const files = isFolder ? names.map((name) => join(path, name)) : [path]
  const texts = await Promise.all(files.map((file) => readFile(file, 'utf8')))
  return texts
    .flatMap((text) => parseAllDocuments(text).map((document) => document.toJS() as KubeObject | null))
    .filter((one) => one?.kind === 'CustomResourceDefinition') as unknown as CustomResourceDefinition[]
}
