import { hash } from 'node:crypto'
import type { EventReport, KubeObject } from '#contracts'
import { BoundedMap } from '#primitives'

/** The limits of client-go's correlator: tools/record/events_cache.go. */
const SIMILAR_MOST = 10
const SIMILAR_WITHIN_MS = 600_000
const BURST = 25
const REFILL_MS = 300_000

/** The time for which the API server keeps an Event by default. */
const FORGOTTEN_AFTER_MS = 3_600_000
/** The shortest time between two writes of a growing count. */
const COUNT_EVERY_MS = 300_000
const REMEMBERED = 10_000

/** What to do with a report: nothing, create an Event, or update the count of an existing Event. */
export interface CorrelatedEvent {
  say: 'nothing' | 'new' | 'again'
  /** The name of the Event. It is the same for the same report about the same object, from any process. */
  name: string
  note: string
  /** The number of reports by this process. */
  count: number
}

interface ReportedEvent {
  count: number
  saidAt: number
  lastAt: number
}

/** Decides which reports are worth a request. Its memory is bounded. The caller gives the time. */
export class EventCorrelator {
  readonly #told = new BoundedMap<string, ReportedEvent>(REMEMBERED)
  readonly #similar = new BoundedMap<string, { notes: Set<string>; lastAt: number }>(REMEMBERED)
  readonly #buckets = new BoundedMap<string, { tokens: number; at: number }>(REMEMBERED)

  /** Combines reports that differ only in the message, from the eleventh on. */
  correlate(
    reconciler: string,
    { kind, metadata }: KubeObject,
    { type, reason, message }: EventReport,
    now: number,
  ): CorrelatedEvent {
    const { name, namespace } = metadata
    // An object that is gone may have no UID.
    const uid = metadata.uid ?? `${kind} ${namespace}/${name}`
    const group = JSON.stringify([reconciler, uid, type, reason])
    const isCombined = this.#countSimilar(group, message, now) > SIMILAR_MOST
    const note = (isCombined ? `(combined from similar events): ${message}` : message).slice(0, 1024)
    const event = eventName(name, isCombined ? [group] : [group, message])
    const before = this.#told.get(event)
    const isKnown = before !== undefined && now - before.lastAt < FORGOTTEN_AFTER_MS
    const told = isKnown ? { ...before, count: before.count + 1, lastAt: now } : { count: 1, saidAt: 0, lastAt: now }
    const isDue = !isKnown || now - told.saidAt >= COUNT_EVERY_MS
    const isSaid = isDue && this.#spend(`${reconciler} ${uid}`, now)
    const wasSaid = told.saidAt > 0
    this.#told.set(event, isSaid ? { ...told, saidAt: now } : told)
    return { say: isSaid ? (wasSaid ? 'again' : 'new') : 'nothing', name: event, note, count: told.count }
  }

  #countSimilar(group: string, message: string, now: number): number {
    const before = this.#similar.get(group)
    const isRecent = before !== undefined && now - before.lastAt < SIMILAR_WITHIN_MS
    const notes = isRecent ? before.notes : new Set<string>()
    // One more than the limit is sufficient to detect that there are too many.
    if (notes.size <= SIMILAR_MOST) notes.add(hash('sha256', message, 'base64url').slice(0, 16))
    this.#similar.set(group, { notes, lastAt: now })
    return notes.size
  }

  /** Takes a token of the reports about one object. There are 25 tokens, and one more every five minutes. */
  #spend(bucket: string, now: number): boolean {
    const { tokens, at } = this.#buckets.get(bucket) ?? { tokens: BURST, at: now }
    const filled = Math.min(BURST, tokens + (now - at) / REFILL_MS)
    const isLeft = filled >= 1
    this.#buckets.set(bucket, { tokens: isLeft ? filled - 1 : filled, at: now })
    return isLeft
  }
}

/** Returns a valid DNS subdomain for any object name. Names of RBAC objects may have any character except `/`. */
function eventName(name: string, parts: unknown[]): string {
  const head = name
    .slice(0, 200)
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '')
  return `${head || 'object'}.${hash('sha256', JSON.stringify(parts)).slice(0, 16)}`
}
