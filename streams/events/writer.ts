import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject, ResourceRef, RunLog } from '#contracts'
import { type Headers, isWrongSequence, type JetStream } from '#nats'
import { KeyedSerial, unlessAborted } from '#primitives'
import { PoisonEventError } from './cloudevent.ts'
import type { NatsMessage } from './codec.ts'
import type { DeadLettering } from './dead-letters.ts'
import {
  copyFrom,
  isReference,
  type ObjectEventInput,
  objectEvent,
  publicationOf,
  referenceTo,
  SOLE_HEADER,
  storedEventFrom,
  storedObject,
  storeHeaders,
  type TravelRules,
} from './event.ts'
import type { KnownObject, ObservedViews } from './observed-views.ts'
import { sizeOf } from './pages.ts'
import { EXPECTED, persist, type StreamNames } from './stream.ts'
import { identityFilter, objectSubject, ownerPart, parseOwner, withOwnerPart } from './subjects.ts'
import type { ObjectEvent, PutOptions, PutResult, StoredEventReport, Verb } from './types.ts'
import {
  decideVersion,
  isPresent,
  isSole,
  leftOwners,
  type Memory,
  type StoredCopies,
  type StoredCopy,
  storedCopiesOf,
  type VersionDecision,
  type WantedVersion,
} from './version-conflict.ts'

export interface WriterDeps extends TravelRules {
  js: JetStream
  names: StreamNames
  memory: Memory
  views: ObservedViews
  deadLettering: DeadLettering
  cluster: string
  tombstoneSeconds: number
  stored: ((event: StoredEventReport) => void) | undefined
  log: RunLog
  now: () => Date
}

interface Write {
  ref: ResourceRef
  object: KubeObject
  options: PutOptions
  wanted: WantedVersion
  /** The identityFilter of the object. */
  identity: string
  subject: string
  /** The event, once it is built. */
  event?: ObjectEvent
  /** The message that was stored. */
  stored?: KnownObject
}

const STALE_READ_PAUSE_MS = 2

/**
 * The only writer of EVENTS. Each publish states the last sequence of its subject on which the decision was based.
 *
 *     put                    one write of an object after the other
 *       #writeOrDeadLetter   what can never be stored becomes a dead letter
 *         #write             until a publish is accepted:
 *           #firstCopies     the copies that are stored: from memory, else by #read or #readAll
 *           decideVersion    keep, or store after which sequence (version-conflict.ts, pure)
 *           #publish         the compare-and-set; after a conflict, #copiesAfterConflict
 *           #markOthersMoved copies under former owners, after the copy that counts
 *       #tell                the views of runs get the result
 *     redact                 replaces a stored object with a reference
 */
export class Writer {
  readonly #deps: WriterDeps
  /** Writes of one object wait for each other. */
  readonly #writes = new KeyedSerial()

  constructor(deps: WriterDeps) {
    this.#deps = deps
  }

  /**
   * Stores an object. Writes of one object in this process wait for each other, so that one version is published once.
   */
  async put(ref: ResourceRef, verb: Verb, object: KubeObject, options: PutOptions): Promise<PutResult> {
    const { name, namespace } = object.metadata
    const { owner } = options
    const resourceVersion = object.metadata.resourceVersion ?? ''
    const write: Write = {
      ref,
      object,
      options,
      wanted: { owner: ownerPart(owner), resourceVersion, verb, overrides: options.overrides },
      identity: identityFilter({ ref, namespace, name }),
      subject: objectSubject({ ref, namespace, name, owner }),
    }
    return this.#writes.run(write.identity, () => this.#writeAndTell(write), options.signal)
  }

  async #writeAndTell(write: Write): Promise<PutResult> {
    try {
      const result = await this.#writeOrDeadLetter(write)
      this.#tell(write, result)
      return result
    } catch (error) {
      this.#tell(write, undefined)
      throw error
    }
  }

  /** Updates the views with the result. Undefined: the object may have been stored, or not. */
  #tell({ identity, subject, stored }: Write, result: PutResult | undefined): void {
    const { views } = this.#deps
    if (result === undefined) return views.end()
    const left = result.formerOwners.map((owner) => withOwnerPart(subject, ownerPart(owner)))
    for (const former of left) views.noted(identity, former, { kind: 'unclear' })
    if (left.length > 0 || result.outcome === 'deadLettered') views.noted(identity, subject, { kind: 'unclear' })
    else if (stored) views.noted(identity, stored.subject, { kind: 'stored', known: stored })
    else views.noted(identity, subject, { kind: 'kept', sequence: result.sequence })
  }

  /** Replaces a message that holds a whole object with a reference. */
  async redact(subject: string): Promise<void> {
    const { js, names, log } = this.#deps
    for (;;) {
      const message = await persist(() => js.lastOf(names.stream, names.root + subject), { log })
      if (message === undefined || isReference(message)) return
      const { verb, event, origin } = storedEventFrom(subject, message)
      const reference = this.#kept(referenceTo(event, this.#deps).message, origin, verb === 'deleted')
      if ((await this.#publish({ options: {} }, subject, reference, message.sequence)) !== undefined) return
    }
  }

  async #writeOrDeadLetter(write: Write): Promise<PutResult> {
    const { object, subject, options } = write
    try {
      return await this.#write(write)
    } catch (error) {
      const isTooLarge = error instanceof TooLargeError
      // A name in RBAC may contain control characters, an attribute may not.
      if (!isTooLarge && !(error instanceof PoisonEventError)) throw error
      const [reason, bytes] = isTooLarge ? (['too-large', error.bytes] as const) : ([error.reason, 0] as const)
      const why = `the event of uid ${object.metadata.uid} cannot be stored: ${error.message}`
      await unlessAborted(this.#deps.deadLettering.deadLetterUnstored(subject, reason, why, bytes), options.signal)
      return { outcome: 'deadLettered', sequence: 0, origin: undefined, formerOwners: [] }
    }
  }

  async #write(write: Write): Promise<PutResult> {
    const { wanted } = write
    let stored = await this.#firstCopies(write)
    let message: NatsMessage | undefined
    for (;;) {
      const decision = decideVersion(stored.copies, wanted)
      const completed = decision.act === 'keep' && this.#completes(write, decision) ? decision.holder : undefined
      if (decision.act === 'keep' && !completed)
        return this.#markOthersMoved(write, stored, decision, decision.holder, decision.outcome)
      message ??= this.#message(write)
      const owner = completed?.owner ?? wanted.owner
      const expected = decision.act === 'store' ? decision.expected : decision.holder.sequence
      const origin = completed?.origin ?? write.options.origin
      const sole = isSole(stored, { ...wanted, owner, origin })
      const headers = { ...message.headers, ...(sole && SOLE_HEADER) }
      const subject = withOwnerPart(write.subject, owner)
      const sequence = await this.#publish(write, subject, { ...message, headers }, expected)
      if (sequence !== undefined) {
        write.stored = knownFrom(write, subject, sequence, message)
        const { namespace } = write.object.metadata
        this.#deps.stored?.({ namespace, origin: write.options.origin, bytes: write.stored.bytes })
        const holder = { ...wanted, owner, sequence, origin, partial: isPartial(message), sole }
        return this.#markOthersMoved(write, stored, decision, holder, 'stored')
      }
      stored = await this.#copiesAfterConflict(write, expected, stored)
    }
  }

  /** Whether this write has the whole object and the stored copy only its metadata. */
  #completes(write: Write, { outcome, holder }: VersionDecision & { act: 'keep' }): boolean {
    const isCandidate = outcome === 'present' && holder.partial && write.wanted.verb !== 'deleted'
    if (!isCandidate || write.options.referenceOnly || this.#deps.isReferenceOnly(write.ref)) return false
    return !isPartial(this.#message(write))
  }

  /**
   * Returns the copies known before the first attempt. For "added", the object was not stored before, so nothing is
   * read. Memory holds no deletions by other processes.
   */
  async #firstCopies(write: Write): Promise<StoredCopies> {
    const { verb, overrides } = write.wanted
    if (overrides !== undefined) return storedCopiesOf(await this.#readAll(write))
    return this.#deps.memory.get(write.identity) ?? storedCopiesOf(verb === 'added' ? [] : await this.#read(write))
  }

  /** Marks copies under other owners as moved, after the copy that counts is confirmed. */
  async #markOthersMoved(
    write: Write,
    stored: StoredCopies,
    { obsolete }: VersionDecision,
    holder: StoredCopy,
    outcome: PutResult['outcome'],
  ): Promise<PutResult> {
    const moved = await this.#markMoved(write, obsolete)
    const left = leftOwners(stored, [...obsolete, ...moved], holder.owner)
    this.#deps.memory.set(write.identity, holder, left)
    const formerOwners = left.map(parseOwner).filter((owner) => owner !== undefined)
    return { outcome, sequence: holder.sequence, origin: holder.origin, formerOwners }
  }

  /**
   * Marks copies as moved. After a conflict, marks the copies that are stored by then, because the object may have moved
   * since the copies were read. Returns the moved copies.
   */
  async #markMoved(write: Write, copies: readonly StoredCopy[]): Promise<StoredCopy[]> {
    const moved: StoredCopy[] = []
    if (copies.length === 0) return moved
    const note = referenceTo(objectEvent(this.#input(write, 'moved')), this.#deps)
    const message = this.#kept(note.message, undefined, true)
    let pending = [...copies]
    for (let copy = pending.shift(); copy; copy = pending.shift()) {
      const subject = withOwnerPart(write.subject, copy.owner)
      if ((await this.#publish(write, subject, message, copy.sequence)) !== undefined) moved.push(copy)
      else pending = decideVersion(await this.#readAll(write), write.wanted).obsolete
    }
    return moved
  }

  #message(write: Write): NatsMessage {
    const { verb } = write.wanted
    const { referenceOnly: metadataOnly, lastState, origin } = write.options
    const { event, message } = publicationOf(this.#input(write, verb), this.#deps, { metadataOnly, lastState })
    write.event = event
    return this.#kept(message, origin, verb === 'deleted')
  }

  #input({ ref, object, options }: Write, verb: Verb | 'moved'): ObjectEventInput {
    const { cluster, now } = this.#deps
    return { cluster, ref, verb, object, now: now(), traceparent: options.traceparent }
  }

  /** Returns the message with the headers that EVENTS stores besides the event. */
  #kept({ headers, data }: NatsMessage, origin: string | undefined, expires: boolean): NatsMessage {
    return {
      headers: Object.assign(headers, storeHeaders(origin, expires ? this.#deps.tombstoneSeconds : undefined)),
      data,
    }
  }

  /** Publishes a message and returns its sequence. Undefined: the subject's last sequence differs. */
  async #publish(
    { options }: Pick<Write, 'options'>,
    subject: string,
    { headers, data }: NatsMessage,
    expected: number,
  ): Promise<number | undefined> {
    const { js, names, log } = this.#deps
    const guarded = { ...headers, [EXPECTED]: expected }
    demandSize(guarded, data, js.nc.info?.max_payload)
    try {
      const ack = await persist(() => js.publish(names.root + subject, data, guarded), { signal: options.signal, log })
      return ack.sequence
    } catch (error) {
      if (isWrongSequence(error)) return undefined
      throw error
    }
  }

  /**
   * Reads the copy under the wanted owner if it is the only one that counts, otherwise all copies. For all copies, the
   * server walks all owners of the namespace.
   */
  async #read(write: Write): Promise<StoredCopy[]> {
    const own = await this.#last(write, write.subject)
    return own.some((copy) => copy.sole && isPresent(copy)) ? own : this.#readAll(write)
  }

  #readAll(write: Write): Promise<StoredCopy[]> {
    return this.#last(write, write.identity)
  }

  async #last({ options }: Write, filter: string): Promise<StoredCopy[]> {
    const { js, names, log } = this.#deps
    const read = () => js.lastOfEach(names.stream, [names.root + filter])
    return (await persist(read, { signal: options.signal, log })).messages.map(copyFrom)
  }

  /**
   * Reads copies after a conflict: all of them if this writer knew a copy under another owner, which it has to
   * mark as moved. With more than one replica, the answer may be older than the conflict; the next compare-and-set
   * detects that.
   */
  async #copiesAfterConflict(write: Write, refused: number, { copies: known }: StoredCopies): Promise<StoredCopies> {
    const isElsewhere = known.some((copy) => copy.owner !== write.wanted.owner && isPresent(copy))
    const copies = await (isElsewhere ? this.#readAll(write) : this.#read(write))
    const seen = copies.find(({ owner }) => owner === write.wanted.owner)?.sequence ?? 0
    if (seen === refused) await sleep(STALE_READ_PAUSE_MS)
    return storedCopiesOf(copies)
  }
}

function knownFrom(write: Write, subject: string, sequence: number, { headers, data }: NatsMessage): KnownObject {
  const { identity, event, wanted } = write
  const isGone = wanted.verb === 'deleted' || event === undefined
  const told = { sequence, storedAt: Date.now(), headers }
  const object = isGone ? undefined : storedObject(subject, told, event, event.data)
  return { identity, subject, sequence, object, bytes: sizeOf({ data }) }
}

const isPartial = ({ headers }: NatsMessage): boolean => headers['ce-dataref'] !== undefined

/** Thrown if the server will never accept a message because of its size, so that another attempt would fail as well. */
export class TooLargeError extends Error {
  override readonly name = 'TooLargeError'
  readonly bytes: number
  constructor(message: string, bytes: number) {
    super(message)
    this.bytes = bytes
  }
}

/** The limit of the headers: JetStream keeps their length in 16 bits (nats-server, JSStreamHeaderExceedsMaximumErr). */
const MAX_HEADER_BYTES = 65_535
const FIRST_AND_LAST_LINE = 'NATS/1.0\r\n\r\n'.length
const PER_HEADER = ': \r\n'.length

/**
 * Throws for a message that the server always refuses. `maxPayload` undefined: the limit is not known and not checked.
 */
export function demandSize(headers: Headers, { length }: Uint8Array, maxPayload = Number.MAX_SAFE_INTEGER): void {
  const headerBytes = bytesOf(headers)
  const bytes = headerBytes + length
  if (headerBytes > MAX_HEADER_BYTES)
    throw new TooLargeError(`it has ${headerBytes} bytes of headers, JetStream takes ${MAX_HEADER_BYTES}`, bytes)
  if (bytes > maxPayload) throw new TooLargeError(`it has ${bytes} bytes, the server takes ${maxPayload}`, bytes)
}

/** Returns the size of the headers on the wire in bytes. Values are ASCII. */
function bytesOf(headers: Headers): number {
  let bytes = FIRST_AND_LAST_LINE
  for (const name in headers)
    if (headers[name] !== undefined) bytes += name.length + String(headers[name]).length + PER_HEADER
  return bytes
}
