import { hash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { parseAllDocuments } from 'yaml'
import { apiVersionOf, type KubeObject, type ResourceRef } from '#contracts'
import { UsageError } from '#host/exit'
import type { ServedResource } from '#kube'
import { pluralOf } from '#scaffold'

/** What a file (`-`: standard input) has: YAML or JSON, any number of documents, lists taken apart. */
export async function objectsIn(file: string): Promise<KubeObject[]> {
  const content = file === '-' ? await text(process.stdin) : await contentOf(file)
  const documents = parseAllDocuments(content).map((document) => {
    const [error] = document.errors
    if (error) throw new UsageError(`${nameOf(file)} is neither YAML nor JSON: ${firstLine(error.message)}`)
    return document.toJS() as unknown
  })
  const objects = documents.filter((one) => one !== null).flatMap(itemsOf)
  if (objects.length === 0) throw new UsageError(`${nameOf(file)} has no object`)
  return objects.map((object) => demandObject(object, file))
}

/** Below it the parser draws where that is. */
const firstLine = (message: string): string => message.replace(/:?\n.*/s, '')

const nameOf = (file: string): string => (file === '-' ? 'standard input' : file)

async function contentOf(file: string): Promise<string> {
  return readFile(file, 'utf8').catch((cause: NodeJS.ErrnoException) => {
    throw new UsageError(`cannot read ${file}: ${cause.code === 'ENOENT' ? 'there is no such file' : cause.message}`, {
      cause,
    })
  })
}

function itemsOf(document: unknown): unknown[] {
  const { kind, items } = document as { kind?: unknown; items?: unknown }
  return typeof kind === 'string' && kind.endsWith('List') && Array.isArray(items) ? items : [document]
}

function demandObject(value: unknown, file: string): KubeObject {
  const { apiVersion, kind, metadata } = (value ?? {}) as Partial<KubeObject>
  if (typeof apiVersion === 'string' && typeof kind === 'string' && typeof metadata?.name === 'string')
    return value as KubeObject
  throw new UsageError(
    `${nameOf(file)} has an entry that is not an object: it needs apiVersion, kind and metadata.name, as text`,
  )
}

/** The resource type of an object, as the API server says. */
export function served(object: KubeObject, resources: readonly ServedResource[]): ServedResource {
  const found = resources.find((one) => one.kind === object.kind && apiVersionOf(one) === object.apiVersion)
  if (found) return found
  throw new UsageError(
    `the API server has no ${object.kind} of ${object.apiVersion}: install its definition, or see --offline`,
  )
}

/** The resource type that is called so: `pods`, `pod`, `po`, `Pod`, `deployments.apps`. */
export function resourceNamed(name: string, resources: readonly ServedResource[]): ServedResource {
  const [wanted = '', ...group] = name.toLowerCase().split('.')
  const found = resources.find(
    (one) => [one.resource, ...one.aliases].includes(wanted) && (group.length === 0 || one.group === group.join('.')),
  )
  if (found) return found
  throw new UsageError(`the API server has no resource ${JSON.stringify(name)}: kubectl api-resources lists them`)
}

/** A plural as the API server would most often have it, for where no server can be asked. */
export function guessedRef({ apiVersion, kind }: KubeObject): ResourceRef {
  const [group, version] = apiVersion.includes('/') ? (apiVersion.split('/') as [string, string]) : ['', apiVersion]
  return { group, version, resource: pluralOf(kind.toLowerCase()) }
}

/** Kinds of Kubernetes itself, and ours, whose objects are in no namespace; others are taken to be in one. */
const CLUSTER_SCOPED =
  /^(?:Cluster.*|.*WebhookConfiguration|.*AdmissionPolicy(?:Binding)?|APIService|CSI(?:Driver|Node)|CustomResourceDefinition|(?:Ingress|Runtime|Storage|Priority)Class|Namespace|Node|PersistentVolume|Reconciler|VolumeAttachment)$/

export const isUsuallyNamespaced = ({ kind }: KubeObject): boolean => !CLUSTER_SCOPED.test(kind)

/** With what the API server gives to an object when it stores it, made up: always the same for the same name. */
export function imagined(object: KubeObject): KubeObject {
  const { namespace = '', name } = object.metadata
  const digest = hash('sha256', `${object.apiVersion} ${object.kind} ${namespace}/${name}`)
  const uid = [
    digest.slice(0, 8),
    digest.slice(8, 12),
    `4${digest.slice(13, 16)}`,
    `8${digest.slice(17, 20)}`,
    digest.slice(20, 32),
  ]
  return {
    ...object,
    metadata: {
      uid: uid.join('-'),
      resourceVersion: '1',
      generation: 1,
      creationTimestamp: '2020-01-01T00:00:00Z',
      ...object.metadata,
    },
  }
}
