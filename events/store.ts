import { type JetStream, mayBeReplicated } from '#jetstream'
import { Cursors } from './cursors.ts'
import { DeadLettering } from './dead-lettering.ts'
import { Memory } from './memory.ts'
import { ObservedViews } from './observed-views.ts'
import { persist } from './persist.ts'
import { MAX_OBJECT_BYTES } from './publication.ts'
import { Reader } from './reader.ts'
import { redact } from './redaction.ts'
import { agreeOnReferences, referenceRule } from './references.ts'
import { SelectedReader } from './selected-reader.ts'
import { bindToCluster, declareEvents, MARK, streamNames } from './stream.ts'
import { resourcePrefix } from './subjects.ts'
import { sweep } from './sweep.ts'
import type { EventStore, EventStoreOptions } from './types.ts'
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
  void forgetOnReconnect(js, memory)
  // After a lost connection, messages may be missing or stored by other processes, so the views are not valid.
  js.onDisconnect(() => views.end())
  js.onReconnect(() => views.end())
  const deadLettering = new DeadLettering({ js, names, isReferenceOnly, deadLetter: options.deadLetter, log, now })
  const context = { js, names, memory, views, cluster, deadLettering, log }
  const writer = new Writer({
    ...context,
    now,
    maxObjectBytes: maxObjectBytes(js, options),
    tombstoneSeconds,
    isReferenceOnly,
  })
  const reading = { ...context, isReplicated: () => mayBeReplicated(js, replicas) }
  const reader = new Reader(reading, new SelectedReader({ ...reading, tombstoneSeconds }))
  const cursors = new Cursors(context)
  await redact(references, reader, writer)
  return {
    cluster,
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
    sweep: (ref, scope, which) => sweep(context, reader.identities(ref, scope), which),
    endViews: () => views.end(),
    forget: (ref) => memory.forget(`${resourcePrefix(ref)}.`),
    follow: (filter, signal, caughtUp) => reader.follow(filter, signal, caughtUp),
  }
}

/**
 * Clears the memory after a reconnect, because the server may have lost the end of the stream, and the memory would
 * hide that.
 */
async function forgetOnReconnect(js: JetStream, memory: Memory): Promise<void> {
  for await (const status of js.nc.status()) if (status.type === 'reconnect') memory.clear()
}

function maxObjectBytes(js: JetStream, options: EventStoreOptions): number {
  const possible = (js.nc.info?.max_payload ?? Number.MAX_SAFE_INTEGER) - HEADER_BYTES
  return Math.min(options.maxObjectBytes ?? MAX_OBJECT_BYTES, possible)
}
