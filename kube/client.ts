import type { ResourceRef } from '#contracts'
import {
  APPLY_TYPE,
  type Caller,
  createCaller,
  errorOf,
  isSuccess,
  parseBody,
  readAnswer,
  sending,
  titleOf,
} from './caller.ts'
import { AnswerTooLargeError, ApiAnswerError, ApiError, ApiPathError } from './errors.ts'
import { createTransport, type Transport } from './transport.ts'
import type {
  Answer,
  ClientOptions,
  DeleteOptions,
  KubeClient,
  KubeClientOptions,
  KubeRequest,
  ListOptions,
  ListPage,
  PatchType,
  WriteOptions,
} from './types.ts'
import { watchEvents } from './watch.ts'

const DEFAULT_MAX_SOCKETS = 32

const PATCH_TYPES: Record<PatchType, string> = {
  merge: 'application/merge-patch+json',
  json: 'application/json-patch+json',
  strategic: 'application/strategic-merge-patch+json',
}

export function createKubeClient(options: KubeClientOptions): KubeClient {
  return createKubeClientOver(createTransport(options, options.maxSockets ?? DEFAULT_MAX_SOCKETS), options)
}

/** Returns a client whose requests travel in another way than over HTTP from here. Closing it closes the transport. */
export const createKubeClientOver = (transport: Transport, options: ClientOptions): KubeClient =>
  clientOf(createCaller(transport, options), transport)

function clientOf(caller: Caller, transport: Transport): KubeClient {
  async function answerTo(call: KubeRequest): Promise<Answer> {
    const answer = await caller.send(call, (incoming) => readAnswer(incoming, call.maxBytes))
    if (isSuccess(answer)) return answer
    throw errorOf(titleOf(call), answer, caller.origin)
  }

  const request = async <T>(call: KubeRequest): Promise<T> => parseBody(titleOf(call), await answerTo(call)) as T

  const write = <T>(
    method: 'POST' | 'PUT' | 'PATCH',
    path: string,
    body: object,
    { fieldManager, dryRun, ...rest }: WriteOptions,
    how: Pick<KubeRequest, 'contentType' | 'query'> = {},
  ): Promise<T> =>
    request<T>({
      ...rest,
      ...how,
      method,
      path,
      body,
      query: { fieldManager, dryRun: dryRunAll(dryRun), ...how.query },
    })

  const client: KubeClient = {
    host: caller.host,
    request,
    answerTo: (call) => caller.send(call, (incoming) => readAnswer(incoming, call.maxBytes)),
    text: async (path, textOptions = {}) =>
      (await answerTo({ ...textOptions, method: 'GET', path, accept: 'text/plain, */*' })).body,
    get: (path, { resourceVersion, ...rest } = {}) =>
      request({ ...rest, method: 'GET', path, query: { resourceVersion } }),
    list: (path, listOptions = {}) => listPages(request, path, listOptions),
    watch: (path, watchOptions = {}) => watchEvents(caller, path, watchOptions),
    create: (path, object, writeOptions = {}) => write('POST', path, object, writeOptions),
    replace: (path, object, writeOptions = {}) => write('PUT', path, object, writeOptions),
    patch: (path, patch, type, writeOptions = {}) =>
      write('PATCH', path, patch, writeOptions, { contentType: PATCH_TYPES[type] }),
    apply: (path, object, { force, ...writeOptions }) =>
      write('PATCH', path, object, writeOptions, { contentType: APPLY_TYPE, query: { force } }),
    applyStatus: (path, object, applyOptions) => client.apply(`${path}/status`, object, applyOptions),
    delete: (path, deleteOptions = {}) => request(deletion(path, deleteOptions)),
    as: (user) => client.with({ 'impersonate-user': user }),
    with: (headers, mayStart) => clientOf(sending(caller, headers, mayStart), transport),
    async close() {
      await transport.close()
    },
    [Symbol.asyncDispose]: () => client.close(),
  }
  return client
}

function deletion(path: string, { uid, resourceVersion, dryRun, ...options }: DeleteOptions): KubeRequest {
  const { propagationPolicy, gracePeriodSeconds, ...rest } = options
  const body = {
    apiVersion: 'v1',
    kind: 'DeleteOptions',
    preconditions: { uid, resourceVersion },
    propagationPolicy,
    gracePeriodSeconds,
    dryRun: dryRun === true ? ['All'] : undefined,
  }
  return { ...rest, method: 'DELETE', path, body }
}

const dryRunAll = (dryRun: boolean | undefined): string | undefined => (dryRun === true ? 'All' : undefined)

interface ObjectList {
  apiVersion: string
  kind: string
  metadata?: { resourceVersion?: string; continue?: string; remainingItemCount?: number }
  items?: object[] | null
}

const DEFAULT_LIMIT = 500
/** The size of 500 objects of 16 KiB. A page takes several times as much memory while it is parsed. */
const MAX_PAGE_BYTES = 8 * 2 ** 20
/** The number of pages in a row that fit before the number of objects per page is doubled. */
const FITTING = 8

/** Lists in pages. A page that is too large is requested again with half as many objects. */
async function* listPages<T>(
  request: KubeClient['request'],
  path: string,
  { limit = DEFAULT_LIMIT, resourceVersion, resourceVersionMatch, mayMix = false, failed, ...options }: ListOptions,
): AsyncGenerator<ListPage<T>, void, undefined> {
  const { labelSelector, fieldSelector, ...rest } = options
  // A continue token contains its resourceVersion. The server refuses a request with both.
  let position: Record<string, string | undefined> = { resourceVersion, resourceVersionMatch }
  let objects = limit
  for (let fitting = 0; ; fitting++) {
    if (fitting >= FITTING && objects < limit) {
      objects = Math.min(limit, 2 * objects)
      fitting = 0
    }
    const query = { limit: objects, labelSelector, fieldSelector, ...position }
    // With resourceVersion 0 there are no pages, and a page of one object cannot be divided.
    const maxBytes = objects > 1 && position['resourceVersion'] !== '0' ? MAX_PAGE_BYTES : undefined
    let list: ObjectList
    try {
      list = await request<ObjectList>({ ...rest, method: 'GET', path, query, maxBytes })
    } catch (error) {
      if (mayMix && error instanceof ApiError && error.continue !== undefined) {
        position = { continue: error.continue }
        continue
      }
      if (maxBytes === undefined || !(error instanceof AnswerTooLargeError)) {
        if (failed === undefined) throw error
        await failed(error)
        continue
      }
      objects = Math.floor(objects / 2)
      fitting = 0
      continue
    }
    yield pageOf(path, list)
    const next = list.metadata?.continue
    if (next === undefined || next === '') return
    position = { continue: next }
  }
}

function pageOf<T>(path: string, list: ObjectList): ListPage<T> {
  const { resourceVersion, remainingItemCount } = list.metadata ?? {}
  if (resourceVersion === undefined || !list.kind.endsWith('List')) {
    throw new ApiAnswerError(`GET ${path}: a list was asked for, the answer is a ${list.kind}`)
  }
  const type = { apiVersion: list.apiVersion, kind: list.kind.slice(0, -'List'.length) }
  return {
    items: (list.items ?? []).map((item) => ({ ...type, ...item }) as T),
    resourceVersion,
    ...(remainingItemCount === undefined ? {} : { remaining: remainingItemCount }),
  }
}

/** A resource type that the API server serves. */
export interface ServedResource extends ResourceRef {
  kind: string
  namespaced: boolean
  /** Other names that kubectl accepts for it. */
  aliases: string[]
  /** Whether its objects have the subresource `status`. */
  hasStatus?: boolean
}

/** Aggregated discovery (Kubernetes 1.30): one answer each for the core group and for all others. */
const ACCEPT = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList'

interface DiscoveryList {
  items: {
    metadata: { name?: string }
    versions: {
      version: string
      resources?: {
        resource: string
        responseKind?: { kind: string }
        scope: 'Namespaced' | 'Cluster'
        singularResource?: string
        shortNames?: string[]
        subresources?: { subresource: string }[]
      }[]
    }[]
  }[]
}

/** Returns every resource type in every version that is served, in the server's order of preference. */
export async function servedResources(kube: Pick<KubeClient, 'get'>, signal?: AbortSignal): Promise<ServedResource[]> {
  const answers = await Promise.all(
    ['/api', '/apis'].map((path) => kube.get<DiscoveryList>(path, { accept: ACCEPT, signal })),
  )
  return answers.flatMap(({ items }) => items).flatMap(resourcesOf)
}

const resourcesOf = ({ metadata: { name: group = '' }, versions }: DiscoveryList['items'][number]): ServedResource[] =>
  versions.flatMap(({ version, resources = [] }) =>
    resources.flatMap((one) => {
      const { resource, responseKind, scope, singularResource = '', shortNames = [], subresources = [] } = one
      if (responseKind === undefined) return []
      const aliases = [singularResource, responseKind.kind.toLowerCase(), ...shortNames].filter((alias) => alias !== '')
      const hasStatus = subresources.some(({ subresource }) => subresource === 'status')
      return {
        group,
        version,
        resource,
        kind: responseKind.kind,
        namespaced: scope === 'Namespaced',
        aliases,
        hasStatus,
      }
    }),
  )

/**
 * Returns the path of a resource type, an object or its subresource. Without a namespace, the type is cluster-scoped,
 * or the path covers all namespaces.
 */
export function resourcePath(ref: ResourceRef, namespace?: string, name?: string, subresource?: string): string {
  if (subresource !== undefined && name === undefined) {
    throw new Error(`the path of ${ref.resource}/${subresource} needs the name of an object`)
  }
  return [
    ...(ref.group === '' ? ['/api'] : ['/apis', segment('group', ref.group)]),
    segment('version', ref.version),
    ...(namespace === undefined ? [] : ['namespaces', segment('namespace', namespace)]),
    segment('resource', ref.resource),
    ...(name === undefined ? [] : [segment('name', name)]),
    ...(subresource === undefined ? [] : [subresource.split('/').map(encodeURIComponent).join('/')]),
  ].join('/')
}

/**
 * Throws for an empty segment, which would name the collection: a delete of one object would become a delete of all
 * objects.
 */
function segment(what: string, value: string): string {
  if (value === '' || value === '.' || value === '..' || value.includes('/') || !value.isWellFormed()) {
    throw new ApiPathError(`${JSON.stringify(value)} cannot be the ${what} in an API path`)
  }
  return encodeURIComponent(value)
}

/** `Accept` of requests for the metadata of objects alone. */
export const METADATA_ONLY = 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json'
export const METADATA_ONLY_LIST = 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json'
