import { hash } from 'node:crypto'
import type { EventReport, KubeObject, RunLog } from '#contracts'
import { isAlreadyExists, type KubeClient, resourcePath } from '#kube'
import { type Gate, PRIORITY } from './gate.ts'
import { keepNewest } from './newest.ts'

const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }
/** As long as the API server keeps an Event unless configured otherwise. */
const REPEAT_AFTER_MS = 3_600_000
const REMEMBERED = 10_000

export interface RecorderOptions {
  kube: KubeClient
  gate: Gate
  /** Names this process, at most 128 characters. */
  instance: string
  now: () => Date
  log: RunLog
}

/**
 * Tells users of an object what happened to it (events.k8s.io/v1), without anybody waiting for it: an Event that
 * cannot be written is logged and forgotten. Its name follows from object, reason and message, so that saying the
 * same again, from whatever process, makes no second one.
 */
export class EventRecorder {
  readonly #options: RecorderOptions
  readonly #told = new Map<string, number>()
  readonly #pending = new Set<Promise<void>>()

  constructor(options: RecorderOptions) {
    this.#options = options
  }

  record(reconciler: string, object: KubeObject, report: EventReport): void {
    const event = kubernetesEvent(reconciler, this.#options.instance, object, report, this.#options.now())
    if (!this.#isNews(event.metadata.name)) return
    const sending = this.#send(event).finally(() => this.#pending.delete(sending))
    this.#pending.add(sending)
  }

  /** Resolves when what has been recorded is written or has failed. */
  async flush(): Promise<void> {
    await Promise.all(this.#pending)
  }

  #isNews(name: string): boolean {
    const now = this.#options.now().getTime()
    const told = this.#told.get(name)
    if (told !== undefined && now - told < REPEAT_AFTER_MS) return false
    keepNewest(this.#told, name, now, REMEMBERED)
    return true
  }

  async #send(event: KubeObject): Promise<void> {
    const { kube, gate, log } = this.#options
    const { namespace, name } = event.metadata
    try {
      await gate.run(PRIORITY.event, () => kube.create(resourcePath(EVENTS, namespace), event))
    } catch (error) {
      if (!isAlreadyExists(error)) log.warn({ err: error, namespace, event: name }, 'Event not written')
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
    metadata: { name: eventName(name, [uid, reason, message]), namespace: namespace ?? 'default' },
    eventTime: now.toISOString().replace('Z', '000Z'),
    type,
    reason: reason.slice(0, 128),
    note: message.slice(0, 1024),
    action: 'Reconcile',
    reportingController: `fairlead.dev/${reconciler}`,
    reportingInstance: instance.slice(0, 128),
    regarding: { apiVersion, kind, name, namespace, uid, resourceVersion },
  }
}

/** A DNS subdomain, whatever the object's name is (RBAC names may hold anything but `/`). */
function eventName(name: string, parts: unknown[]): string {
  const head = name
    .slice(0, 200)
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '')
  return `${head || 'object'}.${hash('sha256', JSON.stringify(parts)).slice(0, 16)}`
}
