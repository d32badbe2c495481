import { type Answer, errorOf, isSuccess, parseBody, readAnswer } from './body.ts'
import { type Caller, createCaller, sending, titleOf } from './caller.ts'
import { listPages } from './list.ts'
import { APPLY_TYPE } from './payload.ts'
import { createTransport, type Transport } from './transport.ts'
import type { DeleteOptions, KubeClient, KubeClientOptions, KubeRequest, PatchType, WriteOptions } from './types.ts'
import { watchEvents } from './watch.ts'

const DEFAULT_MAX_SOCKETS = 32

const PATCH_TYPES: Record<PatchType, string> = {
  merge: 'application/merge-patch+json',
  json: 'application/json-patch+json',
  strategic: 'application/strategic-merge-patch+json',
}

export function createKubeClient(options: KubeClientOptions): KubeClient {
  const transport = createTransport(options, options.maxSockets ?? DEFAULT_MAX_SOCKETS)
  return clientOf(createCaller(transport, options), transport)
}

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
    with: (headers) => clientOf(sending(caller, headers), transport),
    async close() {
      transport.close()
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
