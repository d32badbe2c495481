import { hash } from 'node:crypto'
import type { EventReport, KubeObject, RunLog } from '#contracts'
import { isAlreadyExists, isNotFound, type KubeClient, resourcePath } from '#kube'
import { BoundedMap } from '#primitives'
import { FairQueue, type Gate } from '../gate.ts'

const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }
/**
 * The limit of waiting Events for one reconciler. client-go's broadcaster has room for 1,000 Events, and drops the
 * newest.
 */
const MOST_WAITING = 1000
/** The number of concurrent requests for Events. */
const AT_ONCE = 4

export interface EventRecorderDeps {
  gate: Gate
  /** The name of this process, at most 128 characters. */
  instance: string
  /** The `action` of its Events. */
  action?: string
  now: () => Date
  /** Called when too many Events wait, and the oldest Event of this reconciler is not written. */
  dropped: (reconciler: string) => void
  log: RunLog
}

/** An Event that waits to be written. */
interface Waiting {
  kube: KubeClient
  reconciler: string
  /** The namespace of the object. */
  namespace: string | undefined
  event: KubeObject
  said: CorrelatedEvent
}

/**
 * Writes Events about objects (events.k8s.io/v1) in the background. An Event that cannot be written is logged and
 * dropped. An equal report creates no second Event, but increases the count of its series.
 */
export class EventRecorder {
  readonly #deps: EventRecorderDeps
  readonly #correlator = new EventCorrelator()
  readonly #waiting = new FairQueue<Waiting>()
  readonly #sending = new Set<Promise<void>>()

  constructor(deps: EventRecorderDeps) {
    this.#deps = deps
  }

  /** `kube` is the client that writes the Event. */
  record(kube: KubeClient, reconciler: string, object: KubeObject, report: EventReport): void {
    const { now, dropped } = this.#deps
    const at = now()
    const said = this.#correlator.correlate(reconciler, object, report, at.getTime())
    if (said.say === 'nothing') return
    const event = kubernetesEvent(this.#deps, reconciler, object, { ...report, message: said.note }, at)
    event.metadata.name = said.name
    if (this.#waiting.sizeOf(reconciler) >= MOST_WAITING) {
      this.#waiting.dropOldest(reconciler)
      dropped(reconciler)
    }
    this.#waiting.add(reconciler, { kube, reconciler, namespace: object.metadata.namespace, event, said })
    if (this.#sending.size < AT_ONCE) this.#begin()
  }

  /** Resolves when all recorded Events are written or have failed. */
  async flush(): Promise<void> {
    await Promise.all(this.#sending)
  }

  #begin(): void {
    const sending = this.#sendAll().finally(() => this.#sending.delete(sending))
    this.#sending.add(sending)
  }

  async #sendAll(): Promise<void> {
    for (let next = this.#waiting.take(); next !== undefined; next = this.#waiting.take()) await this.#send(next)
  }

  async #send({ kube, reconciler, namespace, event, said }: Waiting): Promise<void> {
    const { gate, log } = this.#deps
    const say = () => (said.say === 'new' ? this.#create(kube, event) : this.#repeat(kube, event, said.count))
    try {
      await gate.run({ reconciler, namespace, kind: 'event' }, say)
    } catch (error) {
      log.warn({ err: error, namespace: event.metadata.namespace, event: said.name }, 'Event not written')
    }
  }

  /** Creates the Event, or updates its count if another process has created it. */
  async #create(kube: KubeClient, event: KubeObject): Promise<void> {
    const { namespace, name } = event.metadata
    try {
      await kube.create(resourcePath(EVENTS, namespace), event)
    } catch (error) {
      if (!isAlreadyExists(error)) throw error
      const { series } = await kube.get<{ series?: { count?: number } }>(resourcePath(EVENTS, namespace, name))
      await this.#repeat(kube, event, (series?.count ?? 1) + 1)
    }
  }

  async #repeat(kube: KubeClient, event: KubeObject, count: number): Promise<void> {
    const { namespace, name } = event.metadata
    const series = { count, lastObservedTime: event['eventTime'] }
    try {
      await kube.patch(resourcePath(EVENTS, namespace, name), { series }, 'merge')
    } catch (error) {
      if (!isNotFound(error)) throw error
      await kube.create(resourcePath(EVENTS, namespace), { ...event, series })
    }
  }
}

function kubernetesEvent(
  { instance, action = 'Reconcile' }: EventRecorderDeps,
  reconciler: string,
  { apiVersion, kind, metadata }: KubeObject,
  { type, reason, message }: EventReport,
  now: Date,
): KubeObject {
  const { name, namespace, uid, resourceVersion } = metadata
  return {
    apiVersion: 'events.k8s.io/v1',
    kind: 'Event',
    metadata: { name, namespace: namespace ?? 'default' },
    eventTime: now.toISOString().replace('Z', '000Z'),
    type,
    reason: reason.slice(0, 128),
    note: message,
    action,
    reportingController: `fairlead.dev/${reconciler}`,
    reportingInstance: instance.slice(0, 128),
    regarding: { apiVersion, kind, name, namespace, uid, resourceVersion },
  }
}

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
