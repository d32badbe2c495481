import type { ResourceRef, RunLog } from '#contracts'
import { isWrongSequence, type JetStream, mayBeReplicated } from '#nats'
import { forEachAtMost } from '#primitives'
import { parseJson } from './cloudevent.ts'
import { Cursors } from './cursors.ts'
import { DeadLettering } from './dead-letters.ts'
import { isReference, MAX_OBJECT_BYTES, verbOf } from './event.ts'
import { SelectedReader } from './indexes.ts'
import { ObservedViews } from './observed-views.ts'
import { Reader } from './reader.ts'
import {
  bindToCluster,
  declareEvents,
  EXPECTED,
  MARK,
  type Persistence,
  persist,
  type StreamNames,
  streamNames,
} from './stream.ts'
import { kindFilter, resourcePrefix } from './subjects.ts'
import type { EventStore, EventStoreOptions, Identity } from './types.ts'
import { Memory } from './version-conflict.ts'
import { Writer } from './writer.ts'

/** The largest size of the parts of a message besides the object. */
const HEADER_BYTES = 32 * 1024
const TOMBSTONE_SECONDS = 3600
const REMEMBERED_OBJECTS = 32_768

/**
 * Declares the stream and binds it to this cluster. Throws WrongClusterError if it holds the objects of another
 * cluster.
 */
export async function openEventStore(js: JetStream, options: EventStoreOptions): Promise<EventStore> {
  const { cluster, log, now = () => new Date(), tombstoneSeconds = TOMBSTONE_SECONDS } = options
  if (!/^[A-Za-z0-9.-]+$/.test(cluster))
    throw new TypeError(`cluster ${JSON.stringify(cluster)} cannot name a cluster: letters, digits, . and - only`)
  const names = streamNames(options.prefix)
  const replicas = await declareEvents(js, names, options)
  await bindToCluster(js, names, cluster, { log })

  const references = await agreeOnReferences(js, names, options.referenceOnly ?? [], { log })
  const isReferenceOnly = referenceRule(references)

  const memory = new Memory(options.remember ?? REMEMBERED_OBJECTS)
  const views = new ObservedViews()
  // After a lost connection, messages may be missing or stored by other processes, so the views are not valid.
  js.onDisconnect(() => views.end())
  js.onReconnect(() => {
    views.end()
    // The server may have lost the end of the stream, and the memory would hide that.
    memory.clear()
  })
  const deadLettering = new DeadLettering({ js, names, isReferenceOnly, deadLetter: options.deadLetter, log, now })
  const deps = { js, names, memory, views, cluster, deadLettering, log }
  const writer = new Writer({
    ...deps,
    now,
    maxObjectBytes: maxObjectBytes(js, options),
    tombstoneSeconds,
    isReferenceOnly,
    stored: options.stored,
  })
  const reading = { ...deps, isReplicated: () => mayBeReplicated(js, replicas) }
  const reader = new Reader(
    reading,
    new SelectedReader({ ...reading, tombstoneSeconds, capacityBytes: options.indexBytes }),
  )
  const cursors = new Cursors(deps)
  await redact(references, reader, writer)
  return {
    cluster,
    root: names.root,
    stream: names.stream,
    mark: names.root + MARK,
    isReferenceOnly,
    put: (ref, verb, object, putOptions = {}) => writer.put(ref, verb, object, putOptions),
    observe: (query) => reader.observe(query),
    cursor: (ref, scope) => cursors.get(ref, scope),
    lastCursor: (ref, scope) => cursors.last(ref, scope),
    setCursor: (ref, scope, cursor, signal) => cursors.set(ref, scope, cursor, signal),
    moveCursor: (ref, scope, cursor, after, signal) => cursors.move(ref, scope, cursor, after, signal),
    cursors: () => cursors.all(),
    removeCursor: (sequence) => cursors.remove(sequence),
    end: () => persist(() => js.lastSequence(names.stream), { log }),
    followCursors: (signal) => cursors.follow(signal),
    identities: (ref, scope, also) => reader.identities(ref, scope, also),
    selectedKeys: (ref, namespaces, one) => reader.selectedKeys(ref, namespaces, one),
    sweep: (ref, scope, which) => sweep(deps, reader.identities(ref, scope), which),
    endViews: () => views.end(),
    onDisconnect: (listener) => js.onDisconnect(listener),
    forget: (ref) => memory.forget(`${resourcePrefix(ref)}.`),
    follow: (filter, signal, caughtUp) => reader.follow(filter, signal, caughtUp),
  }
}

function maxObjectBytes(js: JetStream, options: EventStoreOptions): number {
  const possible = (js.nc.info?.max_payload ?? Number.MAX_SAFE_INTEGER) - HEADER_BYTES
  return Math.min(options.maxObjectBytes ?? MAX_OBJECT_BYTES, possible)
}

/**
 * Replaces objects of these kinds in EVENTS with references. The objects were stored before the kinds became
 * reference-only.
 */
async function redact(
  kinds: readonly Kind[],
  reader: Pick<Reader, 'heads'>,
  writer: Pick<Writer, 'redact'>,
): Promise<void> {
  if (kinds.length === 0) return
  const heads = await reader.heads(kinds.map(kindFilter))
  const whole = heads.filter(({ message }) => !isReference(message) && verbOf(message.headers['ce-type']) !== undefined)
  for (const { subject } of whole) await writer.redact(subject)
}

/** A kind of object in any version. */
export type Kind = Pick<ResourceRef, 'group' | 'resource'>

const SUBJECT = 'cursor._.references'

/**
 * Returns the kinds, besides Secrets, of which only references travel: all kinds that any process of the installation
 * has requested. They are kept in EVENTS, so that they also apply to a process whose configuration lacks one.
 */
async function agreeOnReferences(
  js: JetStream,
  { stream, root }: StreamNames,
  wanted: readonly Kind[],
  persistence: Persistence,
): Promise<Kind[]> {
  const mine = wanted.map(kindName)
  for (;;) {
    const message = await persist(() => js.lastOf(stream, root + SUBJECT), persistence)
    const known = message === undefined ? [] : (parseJson(Buffer.from(message.data).toString()) as string[])
    const all = new Set([...known, ...mine])
    if (all.size === known.length) return known.map(kindOf)
    try {
      const expected = { [EXPECTED]: message?.sequence ?? 0 }
      await persist(() => js.publish(root + SUBJECT, JSON.stringify([...all]), expected), persistence)
      return [...all].map(kindOf)
    } catch (error) {
      if (!isWrongSequence(error)) throw error
    }
  }
}

export function referenceRule(kinds: readonly Kind[]): (kind: Kind) => boolean {
  const names = new Set([SECRETS, ...kinds].map(kindName))
  return (kind) => names.has(kindName(kind))
}

const SECRETS: Kind = { group: '', resource: 'secrets' }

/** Returns the kind as kubectl names resources, such as `secrets` or `widgets.example.com`. */
const kindName = ({ group, resource }: Kind): string => (group === '' ? resource : `${resource}.${group}`)

function kindOf(name: string): Kind {
  const [resource = '', ...group] = name.split('.')
  return { resource, group: group.join('.') }
}

interface Swept {
  /** Messages with a higher sequence stay. */
  upTo: number
  /** Called for each object, because a Reconciler for it may be created during the sweep. */
  keeps: (namespace: string | undefined) => boolean
  signal: AbortSignal
}

const AT_ONCE = 64

/** Deletes the messages of these objects by sequence, so that a message that replaces one at the same time stays. */
async function sweep(
  { js, names, log }: { js: JetStream; names: StreamNames; log: RunLog },
  identities: AsyncIterable<Identity>,
  { upTo, keeps, signal }: Swept,
): Promise<number> {
  const swept = sequencesOf(identities, { upTo, keeps, signal })
  return forEachAtMost(AT_ONCE, swept, (sequence) => persist(() => js.remove(names.stream, sequence), { signal, log }))
}

async function* sequencesOf(
  identities: AsyncIterable<Identity>,
  { upTo, keeps, signal }: Swept,
): AsyncGenerator<number> {
  for await (const { sequence, key } of identities) {
    signal.throwIfAborted()
    if (sequence <= upTo && !keeps(key.namespace)) yield sequence
  }
}
