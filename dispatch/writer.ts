import {
  ConflictError,
  type EventReport,
  type KubeObject,
  type ResourceRef,
  resourceName,
  type Span,
  spanAfter,
  traceparentOf,
} from '#contracts'
import type { EventStore, OwnerKey } from '#events'
import { ApiError, isAlreadyExists, isNotFound, type KubeClient, resourcePath, type Status } from '#kube'
import { fingerprint } from './covers.ts'
import { fieldsOfOthers, GoneError, isStale, RefusedError, refusalOf, undefinedIfGone } from './errors.ts'
import { DROPPED, type Gate, PRIORITY, type Priority } from './gate.ts'
import type { InFlight } from './in-flight.ts'
import { statusTarget, type Write } from './plan.ts'
import type { References } from './references.ts'
import type { SettledWrites } from './settled-writes.ts'
import type { StatusPatch } from './status.ts'
import type { RunObserver } from './steps.ts'
import { called, isControlledBy, nameTaken } from './world.ts'
import { WriteThrough, type Written } from './write-through.ts'

/** What runs use of EVENTS. */
type RunEvents = Pick<EventStore, 'observe' | 'put' | 'isReferenceOnly'>

export interface WriterDependencies {
  kube: KubeClient
  events: RunEvents
  gate: Gate
  settled: SettledWrites
  references: References
  inFlight: InFlight
}

/** The run on whose behalf something is written. */
export interface Writing {
  reconciler: string
  key: string
  origin: string
  fieldManager: string
  /** The primary, and where it is kept: its own controller may be the primary of some other Reconciler. */
  primary: { ref: ResourceRef; object: KubeObject; owner: OwnerKey | undefined }
  /** Throws when the lease is over. Called right before every write. */
  hold: () => void
  signal: AbortSignal
  /** Of the run. */
  span: Span
  observe: RunObserver
  /** Tells users of the primary. */
  report: (event: EventReport) => void
}

interface Target {
  verb: Write['verb'] | 'status' | 'finalizers'
  ref: ResourceRef
  object: KubeObject
}

/**
 * Sends the writes of one run and puts their results into EVENTS. Rejects with ConflictError when the state that was
 * decided on has moved: EVENTS has then been brought up to date as far as the API server told.
 */
export class Writer {
  readonly #deps: WriterDependencies
  readonly #run: Writing
  readonly #kube: KubeClient
  readonly #traceparent: string
  readonly #through: WriteThrough
  readonly #childrenOf: OwnerKey

  constructor(deps: WriterDependencies, run: Writing) {
    const { ref, object } = run.primary
    this.#deps = deps
    this.#run = run
    this.#traceparent = traceparentOf(run.span)
    this.#kube = run.span.sampled ? deps.kube.with({ traceparent: this.#traceparent }) : deps.kube
    const { origin, signal } = run
    this.#through = new WriteThrough(deps, { origin, signal, traceparent: this.#traceparent })
    this.#childrenOf = { resource: ref.resource, name: object.metadata.name }
  }

  async owned(write: Write): Promise<Written> {
    try {
      return await this.#send(write)
    } catch (error) {
      if (isNameTaken(write, error)) return this.#findWhoHas(write)
      if (isStale(error)) {
        await this.#refreshOwned(write)
        throw moved(write.object, error)
      }
      throw refusalOf(error, `cannot ${write.verb} ${called(write.object)}`)
    }
  }

  /** `object` is the primary as observed. `unwanted`, aborted before its turn comes: nothing is sent. */
  async status(object: KubeObject, patch: StatusPatch, unwanted?: AbortSignal): Promise<Written | typeof DROPPED> {
    const { ref, owner } = this.#run.primary
    try {
      const after = await this.#sendStatus(object, patch, unwanted)
      if (after === DROPPED) return DROPPED
      if (after.metadata.resourceVersion === object.metadata.resourceVersion)
        this.#remember(statusTarget(object), after, fingerprint(patch.status))
      return await this.#through.present(ref, owner, after)
    } catch (error) {
      throw await this.#primaryRefused(object, error, `cannot write the status of ${called(object)}`)
    }
  }

  /** `object` is the primary as observed. Without the last one, an object that is being deleted is gone. */
  async finalizers(object: KubeObject, finalizers: string[]): Promise<Written> {
    const { primary, signal, fieldManager } = this.#run
    const { ref, owner } = primary
    const patch = { metadata: { finalizers, resourceVersion: object.metadata.resourceVersion } }
    try {
      const after = await this.#now({ verb: 'finalizers', ref, object }, PRIORITY.create, () =>
        this.#kube.patch(pathOf(ref, object), patch, 'merge', { signal, fieldManager }),
      )
      const isGone = after.metadata.deletionTimestamp !== undefined && finalizers.length === 0
      return await (isGone ? this.#through.gone(ref, owner, object) : this.#through.present(ref, owner, after))
    } catch (error) {
      throw await this.#primaryRefused(object, error, `cannot write the finalizers of ${called(object)}`)
    }
  }

  /** What a failed write of the primary means; EVENTS then has what the API server has. */
  async #primaryRefused(object: KubeObject, error: unknown, what: string): Promise<unknown> {
    const { ref, owner } = this.#run.primary
    if (isObjectGone(error, object)) {
      await this.#through.gone(ref, owner, object)
      return new GoneError(`${called(object)} is gone`, { cause: error })
    }
    if (!isStale(error)) return refusalOf(error, what)
    await this.#refreshPrimary(object)
    return moved(object, error)
  }

  #sendStatus(object: KubeObject, patch: StatusPatch, unwanted?: AbortSignal): Promise<KubeObject | typeof DROPPED> {
    const { ref } = this.#run.primary
    const path = resourcePath(ref, object.metadata.namespace, object.metadata.name, 'status')
    const { signal, fieldManager } = this.#run
    const send = () => this.#kube.patch(path, patch, 'merge', { signal, fieldManager })
    return this.#request({ verb: 'status', ref, object }, PRIORITY.status, send, unwanted)
  }

  async #send(write: Write): Promise<Written> {
    if (write.verb === 'delete') return this.#delete(write)
    const { resource } = write
    const after = await this.#sendDesired(write)
    if (write.verb === 'apply') this.#remember(after.metadata.uid, after, write.fingerprint)
    const verb = write.verb === 'apply' && write.observed !== undefined ? 'modified' : 'added'
    return this.#through.present(resource, this.#childrenOf, after, verb)
  }

  async #sendDesired(write: Exclude<Write, { verb: 'delete' }>): Promise<KubeObject> {
    const { resource, object } = write
    const { signal, fieldManager, report } = this.#run
    const target = { ...write, ref: resource }
    if (write.verb === 'create') {
      const path = resourcePath(resource, object.metadata.namespace)
      return this.#now(target, PRIORITY.create, () => this.#kube.create(path, object, { signal, fieldManager }))
    }
    const apply = (force: boolean) => () =>
      this.#kube.apply(pathOf(resource, object), object, { signal, fieldManager, force })
    try {
      return await this.#now(target, PRIORITY.create, apply(false))
    } catch (error) {
      const fields = fieldsOfOthers(error)
      if (write.observed === undefined || fields.length === 0) throw error
      const message = `${called(object)}: taken back from others: ${fields.join('; ')}`
      report({ type: 'Warning', reason: 'FieldConflict', message })
      return this.#now(target, PRIORITY.create, apply(true))
    }
  }

  async #delete({ verb, resource: ref, object }: Write & { verb: 'delete' }): Promise<Written> {
    const { uid, resourceVersion } = object.metadata
    const options = { uid, resourceVersion, propagationPolicy: 'Background', signal: this.#run.signal } as const
    const answer = await this.#now({ verb, ref, object }, PRIORITY.delete, () =>
      this.#kube.delete(pathOf(ref, object), options).catch(undefinedIfGone),
    )
    return isStillThere(answer)
      ? this.#through.present(ref, this.#childrenOf, answer)
      : this.#through.gone(ref, this.#childrenOf, object)
  }

  /** The name exists although EVENTS did not show it as ours: the API server knows whose it is. */
  async #findWhoHas({ resource, object }: Write): Promise<Written> {
    const found = await this.#get(resource, object)
    if (found === undefined) throw new ConflictError(`${called(object)} was deleted just now`)
    if (isControlledBy(found, this.#run.primary.object)) return this.#through.present(resource, this.#childrenOf, found)
    throw new RefusedError(nameTaken(found, this.#run.primary.object), { reason: 'NameTaken' })
  }

  async #refreshOwned(write: Write): Promise<void> {
    const { resource, object } = write
    const observed = write.verb === 'apply' ? write.observed : object
    const found = await this.#get(resource, object)
    if (found !== undefined && isControlledBy(found, this.#run.primary.object))
      await this.#through.present(resource, this.#childrenOf, found)
    else if (observed?.metadata.uid !== undefined && found?.metadata.uid !== observed.metadata.uid)
      await this.#through.gone(resource, this.#childrenOf, observed)
  }

  async #refreshPrimary(object: KubeObject): Promise<void> {
    const { ref, owner } = this.#run.primary
    const found = await this.#get(ref, object)
    await (found === undefined ? this.#through.gone(ref, owner, object) : this.#through.present(ref, owner, found))
  }

  async #get(ref: ResourceRef, object: KubeObject): Promise<KubeObject | undefined> {
    const { gate } = this.#deps
    const { reconciler, signal } = this.#run
    const read = () => this.#kube.get(pathOf(ref, object), { signal }).catch(undefinedIfGone)
    const found = await gate.run({ reconciler, kind: 'read' }, read, { signal })
    return found === DROPPED ? undefined : found
  }

  async #now<T extends KubeObject | Status | undefined>(
    target: Target,
    priority: Priority,
    send: () => Promise<T>,
  ): Promise<T> {
    return (await this.#request(target, priority, send)) as T
  }

  #request<T extends KubeObject | Status | undefined>(
    { verb, ref, object }: Target,
    priority: Priority,
    send: () => Promise<T>,
    unwanted?: AbortSignal,
  ): Promise<T | typeof DROPPED> {
    const { reconciler, key, hold, signal, span, observe } = this.#run
    const { kind, metadata } = object
    const timed = async () => {
      hold()
      const { inFlight } = this.#deps
      const began = performance.now()
      inFlight.begin(ref, object, this.#traceparent)
      const answer = await send().catch((error: unknown) => {
        inFlight.end(ref, object)
        throw error
      })
      observe({
        step: 'written',
        ...spanAfter(this.#traceparent, span.sampled),
        reconciler,
        key,
        verb,
        resource: resourceName(ref),
        kind,
        namespace: metadata.namespace,
        name: metadata.name,
        resourceVersion: isObject(answer) ? answer.metadata.resourceVersion : undefined,
        ms: performance.now() - began,
      })
      return answer
    }
    return this.#deps.gate.run({ reconciler, kind: priority }, timed, { signal, unwanted })
  }

  #remember(target: string | undefined, { metadata }: KubeObject, mark: string): void {
    if (target !== undefined && metadata.resourceVersion !== undefined)
      this.#deps.settled.remember(target, metadata.resourceVersion, mark)
  }
}

const pathOf = (ref: ResourceRef, { metadata }: KubeObject): string =>
  resourcePath(ref, metadata.namespace, metadata.name)

const moved = (object: KubeObject, cause: unknown): ConflictError =>
  new ConflictError(`${called(object)} is not what was observed any more`, { cause })

const isNameTaken = (write: Write, error: unknown): boolean =>
  isAlreadyExists(error) || (write.verb === 'apply' && write.observed === undefined && isStale(error))

/** A missing status subresource is NotFound too, but without the object's name. */
const isObjectGone = (error: unknown, { metadata }: KubeObject): boolean =>
  isNotFound(error) && error instanceof ApiError && error.details.name === metadata.name

const isObject = (answer: KubeObject | Status | undefined): answer is KubeObject =>
  answer !== undefined && answer.kind !== 'Status'

/** The answer to a delete may be the object as it was last: without grace period and finalizers it is gone. */
const isStillThere = (answer: KubeObject | Status | undefined): answer is KubeObject =>
  isObject(answer) &&
  answer.metadata.deletionTimestamp !== undefined &&
  (answer.metadata['deletionGracePeriodSeconds'] !== 0 || (answer.metadata.finalizers ?? []).length > 0)
