import type { IncomingMessage, ServerResponse } from 'node:http'
import type { KubeObject } from '#contracts'
import { createKubeClient, type KubeClient, METADATA_ONLY_LIST } from '#kube'
import { json, type ScriptedServer, startScriptedServer } from '../kube/scripted-server.ts'
import { configMaps, reconcilerObject } from './objects.ts'

/** What was asked of the ConfigMaps. */
export interface Asked {
  kind: 'list' | 'streamed list' | 'watch'
  query: Record<string, string>
  at: number
}

/** Answers requests for ConfigMaps; `number` counts the requests of that kind from 1. */
export type Script = (ask: Asked & { number: number }, response: ServerResponse) => void

export interface ScriptedApi extends AsyncDisposable {
  access: ScriptedServer['access']
  kube: KubeClient
  asked: Asked[]
}

export interface ScriptedApiOptions {
  reconcilers?: () => boolean
  reached?: () => number
}

/** Later than the positions of all scripts. */
const LATER = 1_000_000

/**
 * Starts an API server with one Reconciler for ConfigMaps. The watch reports the Reconciler while `reconcilers` is
 * true; the script answers requests for ConfigMaps. A bridge that asks how far the server has come is told `reached`.
 */
export async function startScriptedApi(
  script: Script,
  { reconcilers = () => true, reached = () => LATER }: ScriptedApiOptions = {},
): Promise<ScriptedApi> {
  const asked: Asked[] = []
  const server: ScriptedServer = await startScriptedServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '', 'https://x')
    if (searchParams.get('limit') === '1' && request.headers.accept === METADATA_ONLY_LIST)
      return json(response, 200, page(pathname === '/api/v1/configmaps' ? reached() : LATER, []))
    if (pathname === '/api/v1/configmaps') {
      const ask = askedIn(request)
      asked.push(ask)
      return script({ ...ask, number: asked.filter(({ kind }) => kind === ask.kind).length }, response)
    }
    if (pathname.endsWith('/reconcilers'))
      return reconcilers() ? playReconcilers(askedIn(request), response) : hold(response)
    return json(response, 200, { metadata: { uid: 'cluster' } })
  })
  const kube = createKubeClient({ ...server.access, userAgent: 'test' })
  return {
    access: server.access,
    kube,
    asked,
    async [Symbol.asyncDispose]() {
      await kube.close()
      await server[Symbol.asyncDispose]()
    },
  }
}

function askedIn({ url }: IncomingMessage): Asked {
  const query = Object.fromEntries(new URL(url ?? '', 'https://x').searchParams)
  const kind = query['watch'] === undefined ? 'list' : query['sendInitialEvents'] ? 'streamed list' : 'watch'
  return { kind, query, at: performance.now() }
}

function playReconcilers({ kind }: Asked, response: ServerResponse): void {
  const { metadata, ...rest } = reconcilerObject('maps', { for: configMaps })
  const object = { ...rest, metadata: { ...metadata, uid: 'r1', resourceVersion: '1' } }
  if (kind === 'streamed list') response.write(line('ADDED', object) + end(1))
  else response.flushHeaders()
}

export const map = (name: string, version: number, more: Partial<KubeObject['metadata']> = {}): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace: 'default', uid: `uid-${name}`, resourceVersion: `${version}`, ...more },
})

export const line = (type: string, object: object): string => `${JSON.stringify({ type, object })}\n`

export const bookmark = (version: number, annotations?: Record<string, string>): string =>
  line('BOOKMARK', { apiVersion: 'v1', kind: 'ConfigMap', metadata: { resourceVersion: `${version}`, annotations } })

/** The bookmark that ends the present objects of a streamed list. */
export const end = (version: number): string => bookmark(version, { 'k8s.io/initial-events-end': 'true' })

export const page = (version: number, items: KubeObject[], more: object = {}): object => ({
  apiVersion: 'v1',
  kind: 'ConfigMapList',
  metadata: { resourceVersion: `${version}`, ...more },
  items,
})

export const failure = (code: number, reason: string, more: object = {}): object => ({
  apiVersion: 'v1',
  kind: 'Status',
  status: 'Failure',
  code,
  reason,
  message: reason,
  ...more,
})

/** Open, and silent. */
export const hold = (response: ServerResponse): void => response.flushHeaders()
