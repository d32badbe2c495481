import { ConflictError, type EventReport, type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { type EventStore, type OwnerKey, type Span, spanAfter, traceparentOf } from '#events'
import { type KubeClient, resourcePath, type Status } from '#kube'
import {
  called,
  GoneError,
  isControlledBy,
  isCreatedBy,
  type MetadataWrite,
  nameTaken,
  RefusedError,
  type StatusPatch,
  type Write,
  type Written,
} from '#reconcile'
import { fieldsOfOthers, isStale, refusalOf, undefinedIfGone } from '../errors.ts'
import { DROPPED, type Gate, PRIORITY, type Priority } from '../gate.ts'
import type { References } from '../observe/references.ts'
import type { RunObserver } from '../steps.ts'
import { isNameTaken, isObject, isObjectGone, isStillThere, moved } from './answers.ts'
import { isOfReconciler, keptByReconcilers, takingBack } from './field-conflicts.ts'
import type { InFlight } from './in-flight.ts'
import { WriteThrough } from './write-through.ts'

/** What runs use of EVENTS. */
type RunEvents = Pick<EventStore, 'observe' | 'put' | 'isReferenceOnly'>

export interface WriterDependencies {
  kube: KubeClient
  events: RunEvents
  gate: Gate
  references: References
  inFlight: InFlight
}

/** The run on whose behalf something is written. */
export interface Writing {
  reconciler: string
  key: string
  origin: string
  identity: string
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
  verb: Write['verb'] | 'metadata' | 'status' | 'finalizers'
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
  async status(object: KubeObject, patch: StatusPatch, unwanted?: AbortSignal): Promise<Written | 'dropped'> {
    const { ref, owner } = this.#run.primary
    try {
      const after = await this.#sendStatus(object, patch, unwanted)
      if (after === DROPPED) return 'dropped'
      return await this.#through.present(ref, owner, after)
    } catch (error) {
      throw await this.#primaryRefused(object, error, `cannot write the status of ${called(object)}`)
    }
  }

  /** `object` is the primary as observed. Without the last one, an object that is being deleted is gone. */
  finalizers(object: KubeObject, finalizers: string[]): Promise<Written> {
    const { signal, fieldManager } = this.#run
    const patch = { metadata: { finalizers, resourceVersion: object.metadata.resourceVersion } }
    return this.#writePrimary(object, 'write the finalizers of', async ({ ref, owner }) => {
      const after = await this.#now({ verb: 'finalizers', ref, object }, PRIORITY.create, () =>
        this.#kube.patch(pathOf(ref, object), patch, 'merge', { signal, fieldManager }),
      )
      const isGone = after.metadata.deletionTimestamp !== undefined && finalizers.length === 0
      return isGone ? this.#through.gone(ref, owner, object) : this.#through.present(ref, owner, after)
    })
  }

  /** `object` is the primary as observed. What another reconciler has set to another value stays: RefusedError. */
  metadata(object: KubeObject, { object: wanted, manager }: MetadataWrite): Promise<Written> {
    return this.#writePrimary(object, 'write labels and annotations of', async ({ ref, owner }) => {
      const target = { verb: 'metadata', ref, object: wanted } as const
      const after = await this.#apply(target, PRIORITY.status, manager, (fields) => !fields.some(isOfReconciler))
      return this.#through.present(ref, owner, after)
    })
  }

  /** `object` is the primary as observed. What has finalizers, or a pod that still runs, is there until these end. */
  delete(object: KubeObject): Promise<Written> {
    return this.#writePrimary(object, 'delete', ({ ref, owner }) => this.#delete(ref, owner, object))
  }

  async #writePrimary(
    object: KubeObject,
    what: string,
    write: (primary: Writing['primary']) => Promise<Written>,
  ): Promise<Written> {
    try {
      return await write(this.#run.primary)
    } catch (error) {
      throw await this.#primaryRefused(object, error, `cannot ${what} ${called(object)}`)
    }
  }

  /** What a failed write of the primary means; EVENTS then has what the API server has. */
  async #primaryRefused(object: KubeObject, error: unknown, what: string): Promise<unknown> {
    const { ref, owner } = this.#run.primary
    if (isObjectGone(error, object)) {
      await this.#through.gone(ref, owner, object)
      return new GoneError(`${called(object)} is gone`, { cause: error })
    }
    const fields = fieldsOfOthers(error)
    if (fields.length > 0) return keptByReconcilers(what, fields, error)
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
    if (write.verb === 'delete') return this.#delete(write.resource, this.#childrenOf, write.object)
    const { resource } = write
    const after = await this.#sendDesired(write)
    const verb = write.verb === 'apply' && write.observed !== undefined ? 'modified' : 'added'
    return this.#through.present(resource, this.#childrenOf, after, verb)
  }

  async #sendDesired(write: Exclude<Write, { verb: 'delete' }>): Promise<KubeObject> {
    const { resource, object } = write
    const { signal, fieldManager } = this.#run
    const target = { ...write, ref: resource }
    if (write.verb === 'create') {
      const path = resourcePath(resource, object.metadata.namespace)
      return this.#now(target, PRIORITY.create, () => this.#kube.create(path, object, { signal, fieldManager }))
    }
    return this.#apply(target, PRIORITY.create, fieldManager, () => write.observed !== undefined)
  }

  #apply(
    target: Target,
    priority: Priority,
    fieldManager: string,
    mayTakeBack: (fields: string[]) => boolean,
  ): Promise<KubeObject> {
    const { ref, object } = target
    const { signal, report } = this.#run
    const send = (force: boolean) =>
      this.#now(target, priority, () => this.#kube.apply(pathOf(ref, object), object, { signal, fieldManager, force }))
    return takingBack(object, send, mayTakeBack, report)
  }

  async #delete(ref: ResourceRef, owner: OwnerKey | undefined, object: KubeObject): Promise<Written> {
    const { uid, resourceVersion } = object.metadata
    const options = { uid, resourceVersion, propagationPolicy: 'Background', signal: this.#run.signal } as const
    const answer = await this.#now({ verb: 'delete', ref, object }, PRIORITY.delete, () =>
      this.#kube.delete(pathOf(ref, object), options).catch(undefinedIfGone),
    )
    return isStillThere(answer) ? this.#through.present(ref, owner, answer) : this.#through.gone(ref, owner, object)
  }

  /** The name exists although EVENTS did not show it as ours: the API server knows whose it is. */
  async #findWhoHas({ resource, object }: Write): Promise<Written> {
    const found = await this.#get(resource, object)
    if (found === undefined) throw new ConflictError(`${called(object)} was deleted just now`)
    const { identity, primary } = this.#run
    if (isControlledBy(found, primary.object) && isCreatedBy(identity, primary.object, found))
      return { ...(await this.#through.present(resource, this.#childrenOf, found)), isFound: true }
    const message = nameTaken(resource, found, { identity, owner: primary.object })
    throw new RefusedError(message, { reason: 'NameTaken' })
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
}

const pathOf = (ref: ResourceRef, { metadata }: KubeObject): string =>
  resourcePath(ref, metadata.namespace, metadata.name)
