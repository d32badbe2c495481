import { afterAll, beforeAll } from 'vitest'
import type { KubeObject, ResourceRef } from '#contracts'
import {
  type EventStore,
  type EventStoreOptions,
  openEventStore,
  type PutOptions,
  type Selection,
  type Verb,
} from '#events'
import { connectJetStream, type JetStream } from '#nats'
import { parseSelector } from '#spec'
import { startTestNats } from '../support/servers.ts'
import { silent } from '../support/silent.ts'

export { until } from '../support/wait.ts'

export const PODS: ResourceRef = { group: '', version: 'v1', resource: 'pods' }
export const ATS: ResourceRef = { group: 'cnat.example.com', version: 'v1alpha1', resource: 'ats' }
export const SECRETS: ResourceRef = { group: '', version: 'v1', resource: 'secrets' }

export const ownedBy = (name: string) => ({ owner: { resource: 'ats', name } })

export interface Fields {
  kind?: string
  apiVersion?: string
  namespace?: string
  uid?: string
  spec?: unknown
}

export function object(name: string, resourceVersion: number | string, fields: Fields = {}): KubeObject {
  const namespace = 'namespace' in fields ? fields.namespace : 'ns'
  const { kind = 'Pod', apiVersion = 'v1', uid = `uid-${name}`, spec = { version: resourceVersion } } = fields
  return {
    apiVersion,
    kind,
    metadata: {
      name,
      ...(namespace === undefined ? {} : { namespace }),
      uid,
      resourceVersion: String(resourceVersion),
    },
    spec,
  }
}

export type Store = EventStore & { js: JetStream }

/** Opens a store with its own connection and memory, which EVENTS cannot distinguish from another process. */
export async function openStore(
  url: string,
  options: Partial<EventStoreOptions> = {},
  timeoutMs = 10_000,
): Promise<Store & AsyncDisposable> {
  const js = await connectJetStream({ servers: url, name: 'test', timeoutMs })
  const store = await openEventStore(js, { cluster: 'test', log: silent, ...options })
  return Object.assign(store, { js, [Symbol.asyncDispose]: () => js.close() })
}

/** A nats-server for the tests of a file, and stores on it. */
export function useStores() {
  let nats: Awaited<ReturnType<typeof startTestNats>>
  let next = 0
  beforeAll(async () => {
    nats = await startTestNats()
  })
  afterAll(() => nats?.[Symbol.asyncDispose]())
  return {
    /** Streams of their own for one test. */
    fresh: () => ({ prefix: `t${next++}` }),
    open: (options: Partial<EventStoreOptions>) => openStore(nats.url, options),
    nats: () => nats,
  }
}

export async function collected<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}

export function selection(text: string): Selection {
  const matches = parseSelector(text)
  return { text, byFields: false, matcher: () => (labels) => matches(labels) }
}

const labelled = (name: string, version: number, labels: Record<string, string>, spec: unknown = {}) => {
  const plain = object(name, version, { spec })
  return { ...plain, metadata: { ...plain.metadata, labels } }
}

/** Puts a pod of that app. */
export const putPod = (
  store: EventStore,
  verb: Verb,
  name: string,
  version: number,
  app: string,
  options: PutOptions & { spec?: unknown } = {},
) => store.put(PODS, verb, labelled(name, version, { app }, options.spec), options)

/** Name and version of each pod that is given, in order. */
export async function selected(store: EventStore, text = 'app=mine', more: object = {}): Promise<string[]> {
  const related = [{ ref: PODS, namespace: 'ns', selection: selection(text), ...more }]
  const { related: lists } = await store.observe({ primary: { ref: ATS, namespace: 'ns', name: 'a' }, related })
  return lists[0]!.map(({ key, resourceVersion }) => `${key.name}@${resourceVersion}`)
}
