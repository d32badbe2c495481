import { hash } from 'node:crypto'
import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { parseAllDocuments } from 'yaml'
import { apiVersionOf, type KubeObject, type ResourceRef } from '#contracts'
import { type Condition, wordsOf } from '#inspect'
import { type KubeClient, resourcePath, type ServedResource, servedResources } from '#kube'
import { pause } from '#primitives'
import { UsageError } from '#process/exit'
import { pluralOf } from '#scaffold'

/**
 * Returns the objects of a file (`-`: standard input): YAML or JSON, any number of documents, with the items of lists.
 */
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

/** The parser appends a drawing of the place in the lines below. */
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

/** Returns the resource type of an object, from the API server's discovery. */
export function served(object: KubeObject, resources: readonly ServedResource[]): ServedResource {
  const found = resources.find((one) => one.kind === object.kind && apiVersionOf(one) === object.apiVersion)
  if (found) return found
  throw new UsageError(
    `the API server has no ${object.kind} of ${object.apiVersion}: install its definition, or see --offline`,
  )
}

/** Returns the resource type with that name: `pods`, `pod`, `po`, `Pod`, `deployments.apps`. */
export function resourceNamed(name: string, resources: readonly ServedResource[]): ServedResource {
  const [wanted = '', ...group] = name.toLowerCase().split('.')
  const found = resources.find(
    (one) => [one.resource, ...one.aliases].includes(wanted) && (group.length === 0 || one.group === group.join('.')),
  )
  if (found) return found
  throw new UsageError(`the API server has no resource ${JSON.stringify(name)}: kubectl api-resources lists them`)
}

/** Guesses the plural of a kind, for use without an API server. */
export function guessedRef({ apiVersion, kind }: KubeObject): ResourceRef {
  const [group, version] = apiVersion.includes('/') ? (apiVersion.split('/') as [string, string]) : ['', apiVersion]
  return { group, version, resource: pluralOf(kind.toLowerCase()) }
}

/** Cluster-scoped kinds of Kubernetes and Fairlead. Other kinds count as namespaced. */
const CLUSTER_SCOPED =
  /^(?:Cluster.*|.*WebhookConfiguration|.*AdmissionPolicy(?:Binding)?|APIService|CSI(?:Driver|Node)|CustomResourceDefinition|(?:Ingress|Runtime|Storage|Priority)Class|Namespace|Node|PersistentVolume|Reconciler|VolumeAttachment)$/

export const isUsuallyNamespaced = ({ kind }: KubeObject): boolean => !CLUSTER_SCOPED.test(kind)

/** Adds invented values for the fields that the API server sets, always the same for the same name. */
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

const FIELD_MANAGER = 'fairlead-dev'
const LOOK_AGAIN_MS = 500

/** Returns the objects of a file, or of all YAML and JSON files of a folder. */
export const examplesIn = async (path: string): Promise<KubeObject[]> =>
  (await Promise.all((await filesIn(path)).map(objectsIn))).flat()

/** Returns the YAML and JSON files of a folder, without those of kustomize, which are no objects; or the file itself. */
export async function filesIn(path: string): Promise<string[]> {
  const isFolder = await stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  )
  if (!isFolder) return [path]
  const names = (await readdir(path)).filter((name) => /(?<!^kustomization)\.(ya?ml|json)$/.test(name)).sort()
  return names.map((name) => join(path, name))
}

/**
 * Applies objects as soon as their kinds are served, and prints their conditions at each change, until the signal. A
 * rejection of the API server is printed once and the object is tried again, since a change of the function may fix it.
 */
export async function followExamples(
  kube: KubeClient,
  objects: readonly KubeObject[],
  say: (text: string) => void,
  signal: AbortSignal,
): Promise<void> {
  await Promise.all(objects.map((object) => follow(kube, object, say, signal)))
}

async function follow(
  kube: KubeClient,
  object: KubeObject,
  say: (text: string) => void,
  signal: AbortSignal,
): Promise<void> {
  const { namespace, name } = object.metadata
  const title = `${object.kind} ${namespace === undefined ? name : `${namespace}/${name}`}`
  let path: string | undefined
  let said = ''
  const tell = (text: string): void => {
    if (text !== said) say(text)
    said = text
  }
  for (; !signal.aborted; await pause(LOOK_AGAIN_MS, signal)) {
    try {
      if (path === undefined) {
        const resource = served(object, await servedResources(kube))
        const target = resourcePath(resource, resource.namespaced ? (namespace ?? 'default') : undefined, name)
        await kube.apply(target, object, { fieldManager: FIELD_MANAGER, force: true })
        path = target
        tell(`${title} is applied`)
      }
      const { conditions = [] } = ((await kube.get(path)).status ?? {}) as { conditions?: Condition[] }
      if (conditions.length > 0) tell(`${title}: ${conditions.map(shown).join(', ')}`)
    } catch (error) {
      const isUnserved = error instanceof UsageError
      if (!signal.aborted)
        tell(isUnserved ? `${title} waits for its definition` : `${title}: ${(error as Error).message}`)
    }
  }
}

const shown = (condition: Condition): string => `${condition.type}=${condition.status} (${wordsOf(condition)})`
