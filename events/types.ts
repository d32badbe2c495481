import type { KubeObject, ResourceRef, RunLog } from '#contracts'
import type { CloudEvent } from './cloud-event.ts'
import type { DeadMessage } from './dead-letter.ts'
import type { RelatedQuery } from './selection.ts'
import type { ObjectFilter, ObjectKey, OwnerKey } from './subjects.ts'

/** What happened to an object, as the API server's watch says it. */
export type Verb = 'added' | 'modified' | 'deleted'

/** The CloudEvent of a Kubernetes object: attributes with a fixed meaning. */
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
  /** resourceVersion left-padded to 20 digits; absent where resourceVersions are not numbers. */
  sequence?: string
  traceparent?: string
  tracestate?: string
  /** API path of the whole object; `data` is then only apiVersion, kind and metadata. */
  dataref?: string
  data: KubeObject
}

export interface EventStoreOptions {
  /** Of stream and subjects: one installation per cluster may share a NATS account with others. Letters, digits, `-`. */
  prefix?: string
  /** Left out: 1 when the stream has to be created, else as it is. */
  replicas?: 1 | 3
  /**
   * Bytes that the stream may take; what would exceed them waits until there is room, nothing is dropped. An existing stream
   * is changed to it. Left out: as it is; a new one has no limit.
   */
  maxBytes?: number | undefined
  /** Raises the replicas of an existing stream to that number. Needs the permission to update it. */
  raiseReplicas?: boolean
  /** Names the cluster in `source`; the UID of namespace kube-system unless configured. */
  cluster: string
  /** Larger objects travel as a reference; also bounded by the server's max_payload. Default 512 KiB. */
  maxObjectBytes?: number
  /**
   * Kinds of which only references are published, besides Secrets. Kept in EVENTS: every process that opens the store
   * from now on obeys, with or without being told; what is there of them is made a reference.
   */
  referenceOnly?: readonly Pick<ResourceRef, 'group' | 'resource'>[]
  /** How long a deletion can still be read. Default one hour. */
  tombstoneSeconds?: number
  /** Objects whose last sequence is remembered; one more costs a read per write. Default 32,768. */
  remember?: number
  /**
   * Given each message that is not the event of an object, with its body where that may be kept; when it has resolved, the
   * message is taken out of EVENTS. Left out: it stays, and is passed over.
   */
  deadLetter?: (dead: DeadMessage) => Promise<void>
  log: RunLog
  now?: () => Date
}

export interface PutOptions {
  /** The controller owner, where its kind is the `for` of a Reconciler that owns this resource. */
  owner?: OwnerKey | undefined
  /** Who writes this through, e.g. `at/default.x/<nonce>`; kept with the event. The bridge leaves it out. */
  origin?: string | undefined
  traceparent?: string | undefined
  /** The object has only metadata. Replaces no whole one of the same version; a whole one replaces it. */
  referenceOnly?: boolean | undefined
  /** A deletion keeps the whole object as it was last known. Left out: its metadata. */
  lastState?: boolean | undefined
  /**
   * Sequence in EVENTS of a message that this call replaces, even by the same or an older version: somebody knew of that
   * message first, and then found the object in the newest state. It had only left what was watched, the API server was
   * restored from a backup, or the message may be swept.
   */
  disproves?: number | undefined
  /** Give up; the outcome is then unknown. Without it, put() goes on until NATS has answered. */
  signal?: AbortSignal | undefined
}

/** From now on every fresh reader sees this version or a newer one, unless it was buried. */
export interface PutResult {
  /**
   * `stored`: by this call. `present`: this very version was there already, and may have been followed by others.
   * `newer`: a later version was there and stays. `buried`: NATS will never take it, even as a reference, or
   * no event can have its name, so it went to DEAD; no reader sees it.
   */
  outcome: 'stored' | 'present' | 'newer' | 'buried'
  /** Sequence, in EVENTS, of the message that `outcome` speaks of; 0: there is none. */
  sequence: number
  /** Who wrote that message through; undefined when a bridge did. */
  origin: string | undefined
  /**
   * Other owners whose subject of this object has just been given up, or still shows (for the life of a tombstone)
   * that it was; told again to whoever repeats the call, so that a crash in between loses no notice to them.
   */
  formerOwners: OwnerKey[]
}

/** What of an object's event stays in sight of a reader. */
export interface StoredObject {
  key: ObjectKey
  owner: OwnerKey | undefined
  /** In EVENTS. */
  sequence: number
  resourceVersion: string
  uid: string
  origin: string | undefined
  traceparent: string | undefined
  /** The data is apiVersion, kind and metadata only: a Secret, or too large. Get it from the API server. */
  referenceOnly: boolean
  object: KubeObject
}

/** Known from headers alone: `object` has apiVersion, kind, name, namespace, uid and resourceVersion. */
export interface Identity extends StoredObject {
  deleted: boolean
}

/** One change, as followers get it. */
export interface StoredEvent extends StoredObject {
  /** `moved`: the object lives on under another owner; only the subject is out of use. */
  verb: Verb | 'moved'
  event: ObjectEvent
}

/** Bounds what a reader of EVENTS holds. */
export interface Allowance {
  /** Called before so many bytes are asked for. Throws when there is no room for them. */
  demand(bytes: number): void
  /** Called for each message that has come, with its subject without prefix. Throws when it is one too many. */
  note(subject: string, bytes: number): void
}

export interface ObserveQuery {
  primary: ObjectKey
  /** Resources of which the primary's children are wanted. */
  owned?: readonly ResourceRef[]
  related?: readonly RelatedQuery[]
  /** One more object, wanted only if its message is another one than that with this sequence. */
  news?: { of: ObjectKey; known: number } | undefined
  /** Observed.view is wanted. There is none where something related is asked for, and where there is very much. */
  withView?: boolean
  /** Left out: as much as there is. */
  allowance?: Allowance | undefined
  /** Give up. Without it, observe() goes on until NATS has answered. */
  signal?: AbortSignal | undefined
}

/** Deleted objects are left out, but for news. */
export interface Observed {
  primary: StoredObject | undefined
  /**
   * One list per resource asked for, by the owner's resource and name: an older incarnation of the owner, or one of
   * another API group, may have left something here. Compare the uid of the owner reference.
   */
  owned: StoredObject[][]
  /** One list per query. */
  related: StoredObject[][]
  /** Undefined: the message is still the one that is known. */
  news: StoredEvent | 'absent' | undefined
  view?: View | undefined
}

/**
 * What was observed, kept up with every put() of this process. Of what another process has stored since it tells nothing,
 * until a put() here meets it: then the view ends. So it serves only where that process causes a run that reads EVENTS.
 */
export interface View {
  /** As observe() found it, with what this process has stored since. Undefined: the view has ended. */
  observed(allowance?: Allowance): Observed | undefined
  /** Of its objects, as messages. */
  readonly bytes: number
  close(): void
}

/** How far the watch of a resource has been stored. Its presence means, unless it is `unlisted`: listed completely. */
export interface Cursor {
  resourceVersion: string
  /** RFC 3339, UTC. */
  at: string
  /** For whom: the Reconcilers (name and a digest of what they ask for) whose keys were enqueued up to here. */
  covers?: string[]
  /** Which life of the server that keeps the streams: another one may have lost a tail of them. */
  incarnation?: string
  /** The mark in WORK behind the keys that were enqueued up to here: without it WORK has lost some of them. */
  work?: string
  /**
   * True: the resource is not listed completely. A first list has begun, or the objects are being swept. Its
   * objects may be deleted from EVENTS at any moment, so the next list stores them again.
   */
  unlisted?: boolean
  /** No watch, but a record among the cursors: what one Reconciler finalizes; the scope is its name. */
  finalizes?: Finalized
}

/** Objects that get the finalizer of a Reconciler. */
export interface Finalized {
  finalizer: string
  ref: ResourceRef & { kind: string }
  /** Left out: all of them. */
  namespaces?: string[]
}

export interface StoredCursor extends Cursor {
  ref: ResourceRef
  scope: string | undefined
  /** In EVENTS: what the cursor covers was stored before. */
  sequence: number
}

/**
 * The last event of every object, in one JetStream stream: what the bridge has seen and what the dispatchers have
 * written through. Any number of processes may write; an older version never replaces a newer one.
 */
export interface EventStore {
  readonly cluster: string
  /** Name of the stream. */
  readonly stream: string
  /** A subject of it that is about no object, for who wants to know whether somebody has emptied it. */
  readonly mark: string

  /** Only references of this kind travel: its contents are for the API server to show, and for nobody else. */
  isReferenceOnly(ref: Pick<ResourceRef, 'group' | 'resource'>): boolean

  /**
   * Stores an object's event unless the same or a newer version is there. Resolves when the server has confirmed.
   * For a deletion that was found by comparing lists, pass the last known object. `outcome` is never a reason not to
   * enqueue: whoever stored the version may have died before it enqueued; only `origin` can tell an echo.
   */
  put(ref: ResourceRef, verb: Verb, object: KubeObject, options?: PutOptions): Promise<PutResult>

  /**
   * One request for each page (the first has 128 KiB, later ones 2 MiB); sees everything that a put() anywhere had
   * confirmed before the call. What is stored between two pages may be seen or not.
   */
  observe(query: ObserveQuery): Promise<Observed>

  /** Undefined also for a cursor that is `unlisted`. */
  cursor(ref: ResourceRef, scope?: string): Promise<StoredCursor | undefined>
  /** Also a cursor that is `unlisted`. */
  lastCursor(ref: ResourceRef, scope?: string): Promise<StoredCursor | undefined>
  /** Call it when every put() up to there has resolved. Resolves with its sequence in EVENTS. */
  setCursor(ref: ResourceRef, scope: string | undefined, cursor: Cursor, signal?: AbortSignal): Promise<number>
  /**
   * As setCursor(), if the cursor still has this sequence (0: there is none). Undefined: it does not. Bridges move
   * cursors only in this way, and so notice a sweep.
   */
  moveCursor(
    ref: ResourceRef,
    scope: string | undefined,
    cursor: Cursor,
    after: number,
    signal?: AbortSignal,
  ): Promise<number | undefined>
  /** Each cursor, once, unlisted ones too. */
  cursors(): AsyncIterable<StoredCursor>
  /** Deletes a cursor if it still has this sequence. */
  removeCursor(sequence: number): Promise<void>
  /** The last sequence in EVENTS. */
  end(): Promise<number>
  /** What is there first, then every change. */
  followCursors(signal: AbortSignal): AsyncIterable<StoredCursor>

  /**
   * Everything stored of a resource, deletions of the last hour included: for the comparison with a list. Takes no memory;
   * an object that was about to move to another owner when its writer died may come twice, then its later version counts.
   */
  identities(
    ref: ResourceRef,
    scope?: string,
    also?: { /** Those of no namespace, too. */ withoutNamespace?: boolean },
  ): AsyncIterable<Identity>

  /**
   * Deletes the events of a resource (of a namespace, or of all) that are not above a sequence, without an event.
   * Resolves with their number. Mark the cursor first: a bridge that relies on the objects notices that.
   */
  sweep(
    ref: ResourceRef,
    scope: string | undefined,
    which: { upTo: number; keeps: (namespace: string | undefined) => boolean; signal: AbortSignal },
  ): Promise<number>
  /** Others have stored what this process has not put: every view ends. */
  endViews(): void
  /** Reads the objects of a resource from EVENTS before they are written the next time: others may have deleted them. */
  forget(ref: ResourceRef): void

  /** The last event of each object that matches, then every later one; `caughtUp` is called once in between. */
  follow(filter: ObjectFilter, signal: AbortSignal, caughtUp?: () => void): AsyncIterable<StoredEvent>
}
