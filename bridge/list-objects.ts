import type { KubeObject } from '#contracts'
import { endsInitialEvents, isInvalid, type KubeClient } from '#kube'
import type { Selection } from './selection.ts'

/** The server does not begin a watch with the present objects, or does not say when they are complete: ask for pages. */
export class NotStreamedError extends Error {
  override readonly name = 'NotStreamedError'
}

/** One event of a list: an object that is there, what happened to one while it was read, or its end. */
export type ListEvent =
  | { type: 'PRESENT' | 'MODIFIED' | 'DELETED'; object: KubeObject }
  | { type: 'COMPLETE'; resourceVersion: string }

export interface ListObjectsOptions {
  selection: Selection
  /** As a stream, which costs the server less than pages and comes as it is read, else in pages. */
  stream: boolean
  onBytes?: ((bytes: number) => void) | undefined
  signal: AbortSignal
}

/** A server that streams ends the present objects within a second or two of the last one (Kubernetes 1.36). */
const SILENCE_SECONDS = 10
/** The reader may be held back for a while. */
const STREAM_SECONDS = 1800
const METADATA_ONLY = 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json'
const METADATA_ONLY_LIST = 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json'

/** Every object of the newest state. With `stream`, throws a NotStreamedError where that cannot be had. */
export async function* listObjects(
  kube: KubeClient,
  path: string,
  options: ListObjectsOptions,
): AsyncGenerator<ListEvent> {
  if (options.stream) yield* streamed(kube, path, options)
  else yield* paged(kube, path, options)
}

/** What a watch has to be asked for. */
export const watchQuery = ({ labelSelector, fieldSelector, metadataOfKind }: Selection) => ({
  labelSelector,
  fieldSelector,
  accept: metadataOfKind === undefined ? undefined : METADATA_ONLY,
})

/** Metadata come as an object of their own kind. */
export const ofKind = (object: KubeObject, { metadataOfKind: kind }: Selection, apiVersion: string): KubeObject =>
  kind === undefined ? object : { apiVersion, kind, metadata: object.metadata }

async function* paged(
  kube: KubeClient,
  path: string,
  { selection, signal }: ListObjectsOptions,
): AsyncGenerator<ListEvent> {
  const { labelSelector, fieldSelector, metadataOfKind } = selection
  const accept = metadataOfKind === undefined ? undefined : METADATA_ONLY_LIST
  let resourceVersion = ''
  for await (const page of kube.list(path, { labelSelector, fieldSelector, accept, signal })) {
    for (const object of page.items) yield { type: 'PRESENT', object }
    resourceVersion = page.resourceVersion
  }
  yield { type: 'COMPLETE', resourceVersion }
}

async function* streamed(kube: KubeClient, path: string, options: ListObjectsOptions): AsyncGenerator<ListEvent> {
  const { selection, signal, onBytes } = options
  const events = kube.watch<KubeObject>(path, {
    ...watchQuery(selection),
    sendInitialEvents: true,
    silenceSeconds: SILENCE_SECONDS,
    timeoutSeconds: STREAM_SECONDS,
    onBytes,
    signal,
  })
  try {
    for await (const event of events) {
      if (event.type !== 'BOOKMARK')
        yield { type: event.type === 'ADDED' ? 'PRESENT' : event.type, object: event.object }
      else if (endsInitialEvents(event))
        return yield { type: 'COMPLETE', resourceVersion: event.object.metadata.resourceVersion }
    }
  } catch (error) {
    if (isInvalid(error)) throw new NotStreamedError(`${path}: the server does not stream lists`, { cause: error })
    throw error
  }
  throw new NotStreamedError(`${path}: the server did not mark the end of the list`)
}
