import {
  ConflictError,
  type EventReport,
  type KubeObject,
  type ResourceRef,
  resourceName,
  type WriteRecord,
} from '#contracts'
import { type OwnerKey, type Span, spanAfter, traceparentOf } from '#events'
import { ApiError, isAlreadyExists, isNotFound, type KubeClient, resourcePath, type Status } from '#kube'
import { asTakenBack, called, contestOf, delayMs, RefusedError, type Taking, type Write } from '#reconcile'
import { METADATA_MANAGERS } from '#spec'
import { fieldsOfOthers, isStale, takenFrom, undefinedIfGone } from '../errors.ts'
import { type DROPPED, type Gate, PRIORITY, type Priority } from '../gate.ts'
import { readLive } from '../observe/references.ts'
import type { RunObserver } from '../run/trail.ts'
import type { InFlight } from './write-through.ts'

export interface WriteRequestsDeps {
  kube: KubeClient
  gate: Gate
  inFlight: InFlight
}

/** The run that sends the writes. */
export interface WritingRun {
  reconciler: string
  key: string
  origin: string
  identity: string
  fieldManager: string
  /** The primary, and the place where EVENTS keeps it: its own controller may be the primary of another Reconciler. */
  primary: { ref: ResourceRef; object: KubeObject; owner: OwnerKey | undefined }
  /** Returns how long the lease still lasts, in milliseconds, or throws when it is over. Called right before every write. */
  hold: () => number
  signal: AbortSignal
  span: Span
  observe: RunObserver
  /** Reports an Event about the primary. */
  report: (event: EventReport) => void
}

export interface Target {
  verb: Exclude<WriteRecord['verb'], 'effect'>
  ref: ResourceRef
  object: KubeObject
  subresource?: 'status' | undefined
}

type ApiAnswer = KubeObject | Status | undefined

/** The number of requests for one apply while others keep changing the object. */
const TRIES = 5

/**
 * The API requests for the writes of one run. Each waits at the gate, and is sent only while the run holds its lease.
 */
export class WriteRequests {
  readonly #deps: WriteRequestsDeps
  readonly #run: WritingRun
  readonly #kube: KubeClient
  readonly #traceparent: string

  constructor(deps: WriteRequestsDeps, run: WritingRun) {
    this.#deps = deps
    this.#run = run
    this.#traceparent = traceparentOf(run.span)
    // A write that waits for a connection, or on its way to an agent, does not start after the lease.
    this.#kube = deps.kube.with(run.span.sampled ? { traceparent: this.#traceparent } : {}, run.hold)
  }

  create(ref: ResourceRef, object: KubeObject): Promise<KubeObject> {
    const { signal, fieldManager } = this.#run
    const path = resourcePath(ref, object.metadata.namespace)
    const send = () => this.#kube.create(path, object, { signal, fieldManager })
    return this.#send({ verb: 'create', ref, object }, PRIORITY.create, send)
  }

  /**
   * Applies the object of `target`. A second request takes fields back from other managers. `observed`: the existing
   * object, if the apply is bound to its uid only.
   */
  async apply(
    target: Target & Applied & { observed?: KubeObject },
    priority: Priority,
    fieldManager: string,
    mayTakeBack: (fields: string[]) => boolean,
  ): Promise<KubeObject> {
    const { ref, taking, observed } = target
    const { reconciler, key, signal, report, observe } = this.#run
    const atVersion = this.#versionsOf(ref, observed)
    const send = (wanted: KubeObject, force: boolean) =>
      atVersion(wanted, (object) =>
        this.#send({ ...target, object }, priority, () =>
          this.#kube.apply(pathOf(ref, object, target.subresource), object, { signal, fieldManager, force }),
        ),
      )
    const after = await takingBack(target, send, { fieldManager, mayTakeBack, report })
    const contest = taking && contestOf(after, taking.now, taking.annotation)
    // The count of an earlier run has an earlier time.
    if (contest !== undefined && contest.at === taking?.now.getTime())
      observe({ step: 'takenBack', reconciler, key, isContested: delayMs(contest) > 0 })
    return after
  }

  /** Sends a merge patch. */
  patch(target: Target, patch: object): Promise<KubeObject> {
    const { ref, object } = target
    const { signal, fieldManager } = this.#run
    const send = () => this.#kube.patch(pathOf(ref, object), patch, 'merge', { signal, fieldManager })
    return this.#send(target, PRIORITY.create, send)
  }

  status(
    ref: ResourceRef,
    object: KubeObject,
    patch: object,
    unwanted: AbortSignal | undefined,
  ): Promise<KubeObject | typeof DROPPED> {
    const { signal, fieldManager } = this.#run
    const path = resourcePath(ref, object.metadata.namespace, object.metadata.name, 'status')
    const send = () => this.#kube.patch(path, patch, 'merge', { signal, fieldManager })
    return this.#request({ verb: 'status', ref, object }, PRIORITY.status, send, unwanted)
  }

  /** Returns the object if finalizers or its grace period keep it, and undefined if it is gone. */
  async delete(ref: ResourceRef, object: KubeObject, isForeground = false): Promise<KubeObject | undefined> {
    const { uid, resourceVersion } = object.metadata
    const propagationPolicy = isForeground ? 'Foreground' : 'Background'
    const options = { uid, resourceVersion, propagationPolicy, signal: this.#run.signal } as const
    const send = () => this.#kube.delete(pathOf(ref, object), options).catch(undefinedIfGone)
    const answer = await this.#send({ verb: 'delete', ref, object }, PRIORITY.delete, send)
    return isStillThere(answer) ? answer : undefined
  }

  /**
   * Sends a request to a subresource. The change that it causes is not an echo: it runs the primary. Returns the version
   * of the object after it, if the answer has it.
   */
  async act(
    target: Target,
    subresource: string,
    send: (kube: KubeClient, path: string, signal: AbortSignal) => Promise<unknown>,
  ): Promise<string | undefined> {
    const { ref, object } = target
    const path = pathOf(ref, object, subresource)
    const sent = async () => (await send(this.#kube, path, this.#run.signal)) as ApiAnswer
    const answer = await this.#send(target, PRIORITY.delete, sent)
    this.#deps.inFlight.end(ref, object)
    return isObject(answer) ? answer.metadata.resourceVersion : undefined
  }

  get(ref: ResourceRef, object: KubeObject): Promise<KubeObject | undefined> {
    const { reconciler, primary, signal } = this.#run
    const { namespace } = primary.object.metadata
    return readLive({ kube: this.#kube, gate: this.#deps.gate }, ref, object, { reconciler, namespace, signal })
  }

  /** Reads from the API server, in the run's turn at the gate. */
  async read<T>(act: (kube: KubeClient, signal: AbortSignal) => Promise<T>): Promise<T> {
    const { reconciler, signal } = this.#run
    return (await this.#deps.gate.run({ reconciler, kind: 'read' }, () => act(this.#kube, signal), { signal })) as T
  }

  /**
   * Binds each apply to a version that was read while the lease stood. A newer run cannot have written before that, so
   * an apply that the API server carries out late is refused if a newer run has written. If another manager has
   * changed the object, e.g. a controller its status, the object is read again and the apply is repeated.
   */
  #versionsOf(ref: ResourceRef, observed: KubeObject | undefined) {
    let { resourceVersion = '' } = observed?.metadata ?? {}
    return async (wanted: KubeObject, send: (object: KubeObject) => Promise<KubeObject>): Promise<KubeObject> => {
      if (observed === undefined) return send(wanted)
      for (let tries = 1; ; tries++)
        try {
          return await send({ ...wanted, metadata: { ...wanted.metadata, resourceVersion } })
        } catch (error) {
          if (tries === TRIES || !isStale(error) || fieldsOfOthers(error).length > 0) throw error
          const found = await this.get(ref, wanted)
          const { uid, resourceVersion: present = '' } = found?.metadata ?? {}
          if (uid !== observed.metadata.uid || present === resourceVersion) throw error
          resourceVersion = present
        }
    }
  }

  async #send<T extends ApiAnswer>(target: Target, priority: Priority, send: () => Promise<T>): Promise<T> {
    return (await this.#request(target, priority, send)) as T
  }

  #request<T extends ApiAnswer>(
    target: Target,
    priority: Priority,
    send: () => Promise<T>,
    unwanted?: AbortSignal,
  ): Promise<T | typeof DROPPED> {
    const { ref, object } = target
    const { reconciler, primary, hold, signal } = this.#run
    const { gate, inFlight } = this.#deps
    const { namespace } = primary.object.metadata
    const timed = async () => {
      hold()
      const began = performance.now()
      inFlight.begin(ref, object, this.#traceparent)
      const answer = await send().catch((error: unknown) => {
        inFlight.end(ref, object)
        throw error
      })
      this.#observe(target, answer, performance.now() - began)
      return answer
    }
    return gate.run({ reconciler, namespace, kind: priority }, timed, { signal, unwanted })
  }

  #observe({ verb, ref, object }: Target, answer: ApiAnswer, ms: number): void {
    const { reconciler, key, span, observe } = this.#run
    const { kind, metadata } = object
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
      ms,
    })
  }
}

const pathOf = (ref: ResourceRef, { metadata }: KubeObject, subresource?: string): string =>
  resourcePath(ref, metadata.namespace, metadata.name, subresource)

export const moved = (object: KubeObject, cause: unknown): ConflictError =>
  new ConflictError(`${called(object)} has changed since it was observed`, { cause })

export const isNameTaken = (write: Write, error: unknown): boolean =>
  isAlreadyExists(error) || (write.verb === 'apply' && write.observed === undefined && isStale(error))

/**
 * Whether the object itself is gone. For a missing status subresource the API server answers NotFound too, but without
 * the object's name.
 */
export const isObjectGone = (error: unknown, { metadata }: KubeObject): boolean =>
  isNotFound(error) && error instanceof ApiError && error.details.name === metadata.name

const isObject = (answer: KubeObject | Status | undefined): answer is KubeObject =>
  answer !== undefined && answer.kind !== 'Status'

/**
 * Whether the answer to a delete is an object that still exists. Without a grace period and finalizers, the answer is
 * the last state of an object that is gone.
 */
const isStillThere = (answer: KubeObject | Status | undefined): answer is KubeObject =>
  isObject(answer) &&
  answer.metadata.deletionTimestamp !== undefined &&
  (answer.metadata['deletionGracePeriodSeconds'] !== 0 || (answer.metadata.finalizers ?? []).length > 0)

/**
 * Applies without force first, to find the fields that other managers have changed. A second request with force takes
 * these fields back and counts them. An Event on the primary reports them.
 */
async function takingBack(
  { object, taking }: Applied,
  apply: (object: KubeObject, force: boolean) => Promise<KubeObject>,
  { fieldManager, mayTakeBack, report }: TakingBack,
): Promise<KubeObject> {
  try {
    return await apply(object, false)
  } catch (error) {
    const fields = fieldsOfOthers(error)
    if (fields.length === 0 || !mayTakeBack(fields)) throw error
    const message = `${called(object)}: taken back from others: ${fields.join('; ')}`
    report({ type: 'Warning', reason: 'FieldConflict', message })
    const taken = takenFrom(error, fieldManager)
    return apply(taking === undefined || taken.length === 0 ? object : asTakenBack(object, taking, taken), true)
  }
}

/** The object to apply. Without `taking` no fields are counted. */
export interface Applied {
  object: KubeObject
  taking?: Taking
}

interface TakingBack {
  fieldManager: string
  mayTakeBack: (fields: string[]) => boolean
  report: (event: EventReport) => void
}

/**
 * Whether server-side apply conflicts with labels or annotations of another reconciler. `field` is the server's text.
 */
export const isOfReconciler = (field: string): boolean => field.includes(`conflict with "${METADATA_MANAGERS}`)

/**
 * Returns the refusal of labels and annotations that another reconciler keeps. To take them back would make two
 * reconcilers overwrite each other without a pause and without an end.
 */
export const keptByReconcilers = (what: string, fields: readonly string[], cause: unknown): RefusedError =>
  new RefusedError(
    `${what}, because another reconciler has set these keys to other values: ${fields.join('; ')}. Have one of the functions return other keys`,
    { reason: 'FieldConflict', cause },
  )
