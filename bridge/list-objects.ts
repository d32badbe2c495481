import type { KubeObject } from '#contracts'
import { endsInitialEvents, isInvalid, type KubeClient, METADATA_ONLY, METADATA_ONLY_LIST } from '#kube'
import type { Selection } from './selection.ts'

/**
 * The server does not begin a watch with the existing objects, or does not report when they are complete: list in
 * pages.
 */
export class NotStreamedError extends Error {
  override readonly name = 'NotStreamedError'
}

/** One event of a list: an existing object, a change of an object during the list, or the end of the list. */
export type ListEvent =
  | { type: 'PRESENT' | 'MODIFIED' | 'DELETED'; object: KubeObject }
  | { type: 'COMPLETE'; resourceVersion: string }

export interface ListObjectsOptions {
  selection: Selection
  /** Lists as a stream, which costs the server less than pages and arrives as it is read. Otherwise lists in pages. */
  stream: boolean
  onBytes?: ((bytes: number) => void) | undefined
  signal: AbortSignal
}

/**
 * The silence after which a stream counts as failed. A server ends the existing objects within a second or two after
 * the last one (Kubernetes 1.36).
 */
const SILENCE_SECONDS = 10
/** The time that a stream may take, because the reader may be slowed down. */
const STREAM_SECONDS = 1800

/**
 * Returns every object of the newest state. With `stream`, throws a NotStreamedError if the server does not support it.
 */
export async function* listObjects(
  kube: KubeClient,
  path: string,
  options: ListObjectsOptions,
): AsyncGenerator<ListEvent> {
  if (options.stream) yield* streamed(kube, path, options)
  else yield* paged(kube, path, options)
}

/** Returns the query of a watch for a selection. */
export const watchQuery = ({ labelSelector, fieldSelector, metadataOfKind }: Selection) => ({
  labelSelector,
  fieldSelector,
  accept: metadataOfKind === undefined ? undefined : METADATA_ONLY,
})

/** Returns the object with its own kind. The API server sends metadata as objects of the kind PartialObjectMetadata. */
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
