import { LRUCache } from 'lru-cache'
import type { KubeObject, ResourceRef, RunLog } from '#contracts'
import { EventRecorder, Gate } from '#dispatch'
import { isNotFound, type KubeClient, resourcePath, servedResources } from '#kube'
import type { About, Person } from './types.ts'

/** Requests for Events, and for the objects that these are about. */
const AT_ONCE = 4
const KINDS = 500
/** Stands where an Event has the name of a reconciler. */
const REPORTER = 'console'

export interface WriteRecordOptions {
  kube: KubeClient
  /** Names this process, at most 128 characters. */
  instance: string
  log: RunLog
  date: () => Date
}

/** Records each write of a person in the log, and in an Event on the object. */
export class WriteRecord {
  readonly #options: WriteRecordOptions
  readonly #gate = new Gate(AT_ONCE)
  readonly #recorder: EventRecorder
  readonly #resources = new LRUCache<string, Promise<ResourceRef | undefined>>({ max: KINDS })

  constructor(options: WriteRecordOptions) {
    const { instance, log, date: now } = options
    this.#options = options
    const dropped = () => log.warn({}, 'too many Events of the console wait: the oldest one is not written')
    this.#recorder = new EventRecorder({ gate: this.#gate, instance, action: 'Console', now, dropped, log })
  }

  /** The line is written at once. The Event follows; one that cannot be written is logged. */
  async record(person: Person, what: string, about: About): Promise<void> {
    const { kube, log } = this.#options
    log.info({ person: person.name, groups: person.groups, what, object: about }, 'write by the console')
    const object = await this.#objectOf(about)
    const message = `${what}, by ${person.name} in the console`
    this.#recorder.record(kube, REPORTER, object, { type: 'Normal', reason: 'ChangedByConsole', message })
  }

  /** Resolves when the Events of what has been recorded are written or have failed. */
  flush(): Promise<void> {
    return this.#recorder.flush()
  }

  /** With the UID, by which `kubectl describe` finds Events. The Event of an object that is gone has none. */
  async #objectOf({ apiVersion, kind, namespace, name }: About): Promise<KubeObject> {
    const { kube, log } = this.#options
    const named: KubeObject = { apiVersion, kind, metadata: { name, ...(namespace !== undefined && { namespace }) } }
    try {
      const ref = await this.#resourceOf(apiVersion, kind)
      if (ref === undefined) return named
      const read = () => kube.get(resourcePath(ref, namespace, name))
      const found = await this.#gate.run({ reconciler: REPORTER, kind: 'read' }, read)
      return typeof found === 'symbol' ? named : { ...found, apiVersion, kind }
    } catch (error) {
      if (!isNotFound(error)) log.warn({ err: error, object: named }, 'an Event of the console is without the UID')
      return named
    }
  }

  #resourceOf(apiVersion: string, kind: string): Promise<ResourceRef | undefined> {
    const key = `${apiVersion} ${kind}`
    const found = this.#resources.get(key) ?? this.#discover(apiVersion, kind)
    this.#resources.set(key, found)
    // A kind may be served later.
    const forget = () => this.#resources.delete(key)
    found.then((ref) => ref ?? forget(), forget)
    return found
  }

  async #discover(apiVersion: string, kind: string): Promise<ResourceRef | undefined> {
    const served = await servedResources(this.#options.kube)
    return served.find(
      (one) => one.kind === kind && [one.group, one.version].filter((part) => part !== '').join('/') === apiVersion,
    )
  }
}
