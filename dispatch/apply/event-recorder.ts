import type { EventReport, KubeObject, RunLog } from '#contracts'
import { isAlreadyExists, isNotFound, type KubeClient, resourcePath } from '#kube'
import type { Gate } from '../gate.ts'
import { Turns } from '../turns.ts'
import { type CorrelatedEvent, EventCorrelator } from './event-correlator.ts'

const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }
/**
 * The limit of waiting Events for one reconciler. client-go's broadcaster has room for 1,000 Events, and drops the
 * newest.
 */
const MOST_WAITING = 1000
/** The number of concurrent requests for Events. */
const AT_ONCE = 4

export interface RecorderOptions {
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
  event: KubeObject
  said: CorrelatedEvent
}

/**
 * Writes Events about objects (events.k8s.io/v1) in the background. An Event that cannot be written is logged and
 * dropped. An equal report creates no second Event, but increases the count of its series.
 */
export class EventRecorder {
  readonly #options: RecorderOptions
  readonly #correlator = new EventCorrelator()
  readonly #waiting = new Turns<Waiting>()
  readonly #sending = new Set<Promise<void>>()

  constructor(options: RecorderOptions) {
    this.#options = options
  }

  /** `kube` is the client that writes the Event. */
  record(kube: KubeClient, reconciler: string, object: KubeObject, report: EventReport): void {
    const { now, dropped } = this.#options
    const at = now()
    const said = this.#correlator.correlate(reconciler, object, report, at.getTime())
    if (said.say === 'nothing') return
    const event = kubernetesEvent(this.#options, reconciler, object, { ...report, message: said.note }, at)
    event.metadata.name = said.name
    if (this.#waiting.sizeOf(reconciler) >= MOST_WAITING) {
      this.#waiting.dropOldest(reconciler)
      dropped(reconciler)
    }
    this.#waiting.add(reconciler, { kube, reconciler, event, said })
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

  async #send({ kube, reconciler, event, said }: Waiting): Promise<void> {
    const { gate, log } = this.#options
    const say = () => (said.say === 'new' ? this.#create(kube, event) : this.#repeat(kube, event, said.count))
    try {
      await gate.run({ reconciler, kind: 'event' }, say)
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
  { instance, action = 'Reconcile' }: RecorderOptions,
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
