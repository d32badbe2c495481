import type { KubeObject, ResourceRef, RunLog } from '#contracts'
import type { CloudEvent } from './cloudevent.ts'
import type { Cursor, StoredCursor } from './cursors.ts'
import type { DeadMessage } from './dead-letters.ts'
import type { ObjectFilter, ObjectKey, OwnerKey } from './subjects.ts'

/** The change of an object, as the watch of the API server reports it. */
export type Verb = 'added' | 'modified' | 'deleted'

/** The CloudEvent of a Kubernetes object, with attributes of a fixed meaning. */
export interface ObjectEvent extends CloudEvent<KubeObject> {
  subject: string
  time: string
  datacontenttype: 'application/json'
  apiversion: string
  kind: string
  /** The object's name. */
  name: string
  /** Absent for cluster-scoped objects. */
  namespace?: string
  objectuid: string
  resourceversion: string
  generation?: string
  partitionkey: string
  /** The resourceVersion left-padded to 20 digits. Absent if resourceVersions are not numbers. */
  sequence?: string
  traceparent?: string
  tracestate?: string
  /** The API path of the whole object; `data` then has only apiVersion, kind and metadata. */
  dataref?: string
  data: KubeObject
}

export interface EventStoreOptions {
  /** The prefix of stream and subjects, so that installations can share a NATS account. Letters, digits, `-`. */
  prefix?: string
  /** Left out: an existing stream keeps its number, a new stream gets one. */
  replicas?: 1 | 3
  /**
   * The size limit of the stream in bytes. Messages that would exceed it wait until there is room; nothing is dropped.
   * An existing stream is changed to this limit. Left out: an existing stream keeps its limit, a new one has none.
   */
  maxBytes?: number
  /** Raises the replicas of an existing stream to that number. Needs the permission to update the stream. */
  raiseReplicas?: boolean
  /** The name of the cluster in `source`: the UID of namespace kube-system unless configured. */
  cluster: string
  /** Larger objects travel as a reference. The server's max_payload is a limit as well. Default 512 KiB. */
  maxObjectBytes?: number
  /**
   * Kinds, besides Secrets, of which only references are published. They are kept in EVENTS: every process that opens
   * the store from now on obeys. Stored objects of these kinds are replaced with references.
   */
  referenceOnly?: readonly Pick<ResourceRef, 'group' | 'resource'>[]
  /** How long a deletion can still be read. Default one hour. */
  tombstoneSeconds?: number
  /** Returns the memory limit of the indexes of related objects, in bytes. Default 128 MiB. */
  indexBytes?: () => number
  /** The number of objects whose last sequence is remembered. Other writes cost one more read. Default 32,768. */
  remember?: number
  /**
   * Called with each message that is not the event of an object, with its body if that may be kept. When it has
   * resolved, the message is deleted from EVENTS. Left out: the message stays, and readers skip it.
   */
  deadLetter?: (dead: DeadMessage) => Promise<void>
  /** Called after this process has stored the event of an object. */
  stored?: (event: StoredEventReport) => void
  log: RunLog
  now?: () => Date
}

export interface StoredEventReport {
  /** The namespace of the object. */
  namespace: string | undefined
  /** See PutOptions. */
  origin: string | undefined
  bytes: number
}

export interface PutOptions {
  /** The controller owner, if its kind is the `for` of a Reconciler that owns this resource. */
  owner?: OwnerKey
  /** The writer of a write-through, such as `at/default.x/<nonce>`, kept with the event. The bridge leaves it out. */
  origin?: string
  traceparent?: string
  /** True: only metadata. It does not replace a whole object of the same version; a whole object replaces it. */
  referenceOnly?: boolean
  /** True: a deletion keeps the whole object as it was last known. Left out: only its metadata. */
  lastState?: boolean
  /**
   * The sequence in EVENTS of a message that this call replaces, even by the same or an older version: the caller knew
   * that message, and then found the object in its newest state. This happens if the object had only left the watched
   * set, the API server was restored from a backup, or the message may be swept.
   */
  overrides?: number
  /** Aborts the call; the outcome is then unknown. Left out: put() repeats until NATS has answered. */
  signal?: AbortSignal
}

/** The result of put(). After it, every new reader sees this version or a newer one, unless it is dead-lettered. */
export interface PutResult {
  /**
   * `stored`: this call stored it. `present`: this version was stored already, and others may have followed. `newer`: a
   * later version was stored and stays. `deadLettered`: NATS will never accept it, even as a reference, or an event cannot
   * have its name, so it went to DEAD, and no reader sees it.
   */
  outcome: 'stored' | 'present' | 'newer' | 'deadLettered'
  /** The sequence in EVENTS of the message that `outcome` is about. 0: there is none. */
  sequence: number
  /** The writer of that message. Undefined: a bridge wrote it. */
  origin: string | undefined
  /**
   * Other owners from whose subject the object has just moved, or whose subject still shows the move (for the lifetime
   * of a tombstone). A repeated call returns them again, so that a crash before the notification loses nothing.
   */
  formerOwners: OwnerKey[]
}

/** The part of an object's event that a reader sees. */
export interface StoredObject {
  key: ObjectKey
  owner: OwnerKey | undefined
  /** The sequence in EVENTS, and the time when EVENTS stored it, in epoch milliseconds. */
  sequence: number
  storedAt: number
  resourceVersion: string
  uid: string
  origin: string | undefined
  traceparent: string | undefined
  /** The data have only apiVersion, kind and metadata: a Secret, or too large. Read the object from the API server. */
  referenceOnly: boolean
  object: KubeObject
}

/** An object known from headers alone: `object` has apiVersion, kind, name, namespace, uid and resourceVersion. */
export interface Identity extends StoredObject {
  deleted: boolean
}

/** One change, as followers receive it. */
export interface StoredEvent extends StoredObject {
  /** `moved`: the object now has another owner, and only this subject is out of use. */
  verb: Verb | 'moved'
  event: ObjectEvent
}

/** Limits the memory of a reader of EVENTS. */
export interface Allowance {
  /** Called before this many bytes are requested. Throws if there is no room for them. */
  demand(bytes: number): void
  /** Called for each received message, with its subject without prefix. Throws if the message exceeds the limit. */
  note(subject: string, bytes: number): void
}

export interface ObserveQuery {
  primary: ObjectKey
  /** The resources whose children of the primary are wanted. */
  owned?: readonly ResourceRef[]
  related?: readonly RelatedQuery[]
  /**
   * One more object, wanted only if its last message is another one than this. A stream that was made anew may have
   * another message at the same sequence, but not at the same time.
   */
  news?: { of: ObjectKey; known: Pick<StoredObject, 'sequence' | 'storedAt'> }
  /** True: Observed.view is wanted. There is none for queries with related objects, or for very large results. */
  withView?: boolean
  /** Left out: no limit. */
  allowance?: Allowance
  /** Aborts the call. Left out: observe() repeats until NATS has answered. */
  signal?: AbortSignal
}

/** The result of observe(). Deleted objects are left out, except in news. */
export interface Observed {
  primary: StoredObject | undefined
  /**
   * One list per requested resource, by the owner's resource and name. An older incarnation of the owner, or one of
   * another API group, may have left objects here, so compare the uid of the owner reference.
   */
  owned: StoredObject[][]
  /** One list per query. */
  related: StoredObject[][]
  /** Undefined: the last message is still the known one. */
  news: StoredEvent | 'absent' | undefined
  view?: View
}

/**
 * The observed objects, updated with every put() of this process. It does not show what another process has stored
 * since, until a put() here meets such a change: then the view ends. So a view is valid only if a change by another
 * process causes a run that reads EVENTS.
 */
export interface View {
  /** Returns the result of observe(), updated with later puts of this process. Undefined: the view has ended. */
  observed(allowance?: Allowance): Observed | undefined
  close(): void
}

/**
 * The last event of every object, in one JetStream stream: changes that the bridge has observed, and writes of the
 * dispatchers. Any number of processes may write; an older version never replaces a newer one.
 */
export interface EventStore {
  readonly cluster: string
  /** The beginning of every subject of the installation: empty, or `<prefix>.`. */
  readonly root: string
  /** The name of the stream. */
  readonly stream: string
  /** A subject of the stream that belongs to no object. Its message shows whether the stream was emptied. */
  readonly mark: string

  /** Whether only references of this kind travel, because its contents must not leave the API server. */
  isReferenceOnly(ref: Pick<ResourceRef, 'group' | 'resource'>): boolean

  /**
   * Stores an object's event unless the same or a newer version is stored. Resolves when the server has confirmed. For
   * a deletion that was found by comparing lists, pass the last known object. Enqueue the key whatever the `outcome`:
   * the process that stored the version may have died before it enqueued. Only `origin` identifies an echo.
   */
  put(ref: ResourceRef, verb: Verb, object: KubeObject, options?: PutOptions): Promise<PutResult>

  /**
   * Reads objects, with one request for each page (the first has 128 KiB, later ones 2 MiB). Sees everything that any
   * put() had confirmed before the call. Objects that are stored between two pages may be included or not.
   */
  observe(query: ObserveQuery): Promise<Observed>

  /** Returns the cursor. Undefined also for a cursor that is `unlisted`. */
  cursor(ref: ResourceRef, scope?: string): Promise<StoredCursor | undefined>
  /** Returns the cursor, even if it is `unlisted`. */
  lastCursor(ref: ResourceRef, scope?: string): Promise<StoredCursor | undefined>
  /** Stores a cursor and resolves with its sequence in EVENTS. Call it when every put() up to there has resolved. */
  setCursor(ref: ResourceRef, scope: string | undefined, cursor: Cursor, signal?: AbortSignal): Promise<number>
  /**
   * Stores a cursor if the present one still has this sequence (0: there is none). Resolves with undefined otherwise.
   * Bridges move cursors only in this way, so that they notice a sweep.
   */
  moveCursor(
    ref: ResourceRef,
    scope: string | undefined,
    cursor: Cursor,
    after: number,
    signal?: AbortSignal,
  ): Promise<number | undefined>
  /** Iterates over all cursors once, including unlisted ones. */
  cursors(): AsyncIterable<StoredCursor>
  /** Deletes a cursor if it still has this sequence. */
  removeCursor(sequence: number): Promise<void>
  /** Returns the last sequence in EVENTS. */
  end(): Promise<number>
  /** Iterates over the present cursors, including unlisted ones, then over every change. */
  followCursors(signal: AbortSignal): AsyncIterable<StoredCursor>

  /**
   * Iterates over all stored objects of a resource and its deletions of the last hour, in constant memory. If a writer
   * died while an object moved to another owner, the object may appear twice; its later version counts.
   */
  identities(
    ref: ResourceRef,
    scope?: string | readonly string[],
    also?: { /** True: also objects without a namespace. */ withoutNamespace?: boolean },
  ): AsyncIterable<Identity>

  /**
   * Returns the queue keys of the objects that a selection selects, in these namespaces (left out: in all) and without a
   * namespace. It does not read the objects. If EVENTS has only a reference to an object, its key may be included.
   */
  selectedKeys(ref: ResourceRef, namespaces: readonly string[] | undefined, selection: Selection): Promise<string[]>

  /**
   * Deletes the events of a resource (in a namespace, or in all) up to a sequence, without publishing an event.
   * Resolves with their number. Set the cursor to unlisted first: a bridge that relies on the objects notices it.
   */
  sweep(
    ref: ResourceRef,
    scope: string | undefined,
    which: { upTo: number; keeps: (namespace: string | undefined) => boolean; signal: AbortSignal },
  ): Promise<number>
  /** Ends every view, because other processes have stored events that this process has not put. */
  endViews(): void
  /**
   * Calls the listener each time the connection drops: the server may lose the last messages. Returns a function that
   * removes the listener.
   */
  onDisconnect(listener: () => void): () => void
  /** Makes the next write of the resource's objects read EVENTS first: other processes may have deleted them. */
  forget(ref: ResourceRef): void

  /** Iterates over each matching object's last event, then over later ones. Calls `caughtUp` once in between. */
  follow(filter: ObjectFilter, signal: AbortSignal, caughtUp?: () => void): AsyncIterable<StoredEvent>
}

/** Selects objects of a kind by their labels and fields. */
export interface Selection {
  /** Two selections with the same text select the same objects. */
  text: string
  /** True: labels alone do not decide, because the selection has fields. */
  byFields: boolean
  /**
   * Returns the parsed matcher. Without `object`, only the labels are compared, so the matcher may accept objects whose
   * fields do not match.
   */
  matcher: () => (labels: Readonly<Record<string, string>>, object?: KubeObject) => boolean
  /** Returns the names in the object by which queries ask for it. Left out: a query asks for all selected objects. */
  namesIn?: (object: KubeObject) => readonly string[]
}

/**
 * A query for related objects. With a selection, only selected objects are read, and perhaps objects of which EVENTS
 * has only a reference. The first read of a kind in a place reads everything there, and each later read only the
 * changes.
 */
export type RelatedQuery = ObjectFilter | SelectedQuery

export interface SelectedQuery extends Omit<ObjectFilter, 'name'> {
  ref: ResourceRef
  selection: Selection
  /** With `namesIn` of the selection: only objects that have this name there. */
  naming?: string
}

export const isSelected = (query: RelatedQuery): query is SelectedQuery =>
  'selection' in query && query.selection !== undefined
