import type { EventReport, KubeObject, RunLog } from '#contracts'
import { isAlreadyExists, isNotFound, type KubeClient, resourcePath } from '#kube'
import { Correlator, type Said } from './correlator.ts'
import { type Gate, PRIORITY } from './gate.ts'

const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }

export interface RecorderOptions {
  gate: Gate
  /** Names this process, at most 128 characters. */
  instance: string
  now: () => Date
  log: RunLog
}

/**
 * Tells users of an object what happened to it (events.k8s.io/v1), without anybody waiting for it: an Event that
 * cannot be written is logged and forgotten. Saying the same again makes no second Event: its series counts.
 */
export class EventRecorder {
  readonly #options: RecorderOptions
  readonly #correlator = new Correlator()
  readonly #pending = new Set<Promise<void>>()

  constructor(options: RecorderOptions) {
    this.#options = options
  }

  /** `kube` is who says it. */
  record(kube: KubeClient, reconciler: string, object: KubeObject, report: EventReport): void {
    const now = this.#options.now()
    const said = this.#correlator.correlate(reconciler, object, report, now.getTime())
    if (said.say === 'nothing') return
    const event = kubernetesEvent(reconciler, this.#options.instance, object, { ...report, message: said.note }, now)
    event.metadata.name = said.name
    const sending = this.#send(kube, event, said).finally(() => this.#pending.delete(sending))
    this.#pending.add(sending)
  }

  /** Resolves when what has been recorded is written or has failed. */
  async flush(): Promise<void> {
    await Promise.all(this.#pending)
  }

  async #send(kube: KubeClient, event: KubeObject, said: Said): Promise<void> {
    const { gate, log } = this.#options
    const say = () => (said.say === 'new' ? this.#create(kube, event) : this.#repeat(kube, event, said.count))
    try {
      await gate.run(PRIORITY.event, say)
    } catch (error) {
      log.warn({ err: error, namespace: event.metadata.namespace, event: said.name }, 'Event not written')
    }
  }

  /** Another process may have said it before. */
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
  reconciler: string,
  instance: string,
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
    action: 'Reconcile',
    reportingController: `fairlead.dev/${reconciler}`,
    reportingInstance: instance.slice(0, 128),
    regarding: { apiVersion, kind, name, namespace, uid, resourceVersion },
  }
}
