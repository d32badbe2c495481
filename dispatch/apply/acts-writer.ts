import type { KubeObject } from '#contracts'
import type { EventStore } from '#events'
import { ApiError, isConflict, isNotFound, type KubeClient } from '#kube'
import { type Acted, called, editOf, type PlannedAct, RefusedError } from '#reconcile'
import { ACTS } from '#spec'
import { refusalOf } from '../errors.ts'
import { isObjectGone, moved, type WriteRequests, type WritingRun } from './write-requests.ts'
import type { WriteThrough } from './write-through.ts'

type ActingRun = Pick<WritingRun, 'fieldManager' | 'primary'>

/**
 * Sends acts, each bound to the version of its object that was observed: whoever sends an act again for the same state, be
 * it another process or the same one after a lost answer, is refused by the API server if it was performed.
 */
export class ActsWriter {
  readonly #requests: WriteRequests
  readonly #through: Pick<WriteThrough, 'result'>
  readonly #run: ActingRun
  readonly #events: Pick<EventStore, 'observe'>

  constructor(
    requests: WriteRequests,
    through: Pick<WriteThrough, 'result'>,
    run: ActingRun,
    events: Pick<EventStore, 'observe'>,
  ) {
    this.#requests = requests
    this.#through = through
    this.#run = run
    this.#events = events
  }

  /**
   * Rejects with a RefusedError, with a ConflictError if the primary was edited since the function has seen it, or has changed and
   * is the object, or with an error that may pass. After an act on the primary, and after its ConflictError, EVENTS has the
   * present state. `stale`: aborted if this process knows of a change since the function has seen the primary.
   */
  async send(planned: PlannedAct, seen: KubeObject, stale: AbortSignal): Promise<Acted> {
    const { act, verb, resource, object } = planned
    const { subresource } = ACTS[act.act]
    let version: string | undefined
    try {
      version = await this.#requests.act({ verb, ref: resource, object }, subresource, async (kube, path, signal) => {
        if (stale.aborted) await this.#demandUnedited(seen, signal)
        return requestOf(planned, kube, path, { signal, fieldManager: this.#run.fieldManager })
      })
    } catch (error) {
      return this.#answered(planned, error)
    }
    if (this.#isPrimary(object)) await this.#refresh(await this.#requests.get(resource, object))
    return version === object.metadata.resourceVersion ? { isUnchanged: true } : {}
  }

  async #demandUnedited(seen: KubeObject, signal: AbortSignal): Promise<void> {
    const { namespace, name, resourceVersion } = seen.metadata
    const of = { ref: this.#run.primary.ref, namespace, name }
    const { primary } = await this.#events.observe({ primary: of, signal })
    if (primary?.resourceVersion === resourceVersion) return
    // A reference has no annotations.
    if (primary === undefined || primary.referenceOnly || editOf(primary.object) !== editOf(seen))
      throw moved(seen, undefined)
  }

  #isPrimary({ metadata }: KubeObject): boolean {
    return metadata.uid === this.#run.primary.object.metadata.uid
  }

  async #refresh(found: KubeObject | undefined): Promise<void> {
    const { ref, owner, object } = this.#run.primary
    await this.#through.result(ref, owner, object, found)
  }

  async #answered({ verb, act, resource, object }: PlannedAct, error: unknown): Promise<Acted> {
    const what = `cannot ${verb} ${called(object)}`
    if (isObjectGone(error, object)) return {}
    if (isNotFound(error)) {
      const message = `${what}: ${object.kind} has no subresource ${ACTS[act.act].subresource}`
      throw new RefusedError(message, { reason: 'NotFound', cause: error })
    }
    if (isConflict(error)) {
      const found = await this.#requests.get(resource, object)
      const isPast = found?.metadata.resourceVersion !== object.metadata.resourceVersion
      // The change may be one that does not count, and causes no run (spec.changes).
      if (isPast && this.#isPrimary(object)) {
        await this.#refresh(found)
        throw moved(object, error)
      }
      if (isPast) return { isPast: true }
      throw new RefusedError(`${what}: ${(error as ApiError).said}`, { reason: 'Conflict', cause: error })
    }
    const budget = budgetIn(error)
    if (budget !== undefined) return { waits: budget }
    if (error instanceof ApiError && hasManyBudgets(error))
      throw new RefusedError(`${what}: ${error.said}`, { reason: 'ManyDisruptionBudgets', cause: error })
    throw refusalOf(error, what)
  }
}

interface Options {
  signal: AbortSignal
  fieldManager: string
}

/** Each form has a precondition, by which the API server refuses the request for any other version of the object. */
function requestOf({ act, object }: PlannedAct, kube: KubeClient, path: string, options: Options): Promise<unknown> {
  const { uid, resourceVersion, name, namespace } = object.metadata
  const metadata = { name, namespace }
  switch (act.act) {
    case 'Evict': {
      const deleteOptions = { preconditions: { uid, resourceVersion } }
      return kube.create(path, { apiVersion: 'policy/v1', kind: 'Eviction', metadata, deleteOptions }, options)
    }
    case 'Bind': {
      const target = { apiVersion: 'v1', kind: 'Node', name: act.node }
      const bound = { ...metadata, uid, resourceVersion }
      return kube.create(path, { apiVersion: 'v1', kind: 'Binding', metadata: bound, target }, options)
    }
    case 'Scale':
      return kube.patch(path, { metadata: { resourceVersion }, spec: { replicas: act.replicas } }, 'merge', options)
    case 'Approve':
    case 'Deny': {
      const { reason, message } = act
      const type = act.act === 'Approve' ? 'Approved' : 'Denied'
      const { apiVersion, kind } = object
      const status = { conditions: [{ type, status: 'True', reason, ...(message !== undefined && { message }) }] }
      // By server-side apply, because the condition is merged into a list that may not have been observed.
      return kube.apply(path, { apiVersion, kind, metadata: { name, resourceVersion }, status }, options)
    }
  }
}

/** Returns why an eviction waits. Other answers with code 429 are those of an API server with too many requests. */
function budgetIn(error: unknown): Acted['waits'] {
  if (!(error instanceof ApiError) || error.code !== 429) return undefined
  const cause = error.details.causes?.find(({ reason }) => reason === 'DisruptionBudget')
  if (cause === undefined) return undefined
  const message = [error.said, cause.message ?? ''].join(' ').trim()
  return { reason: 'DisruptionBudget', message, retryAfterSeconds: error.retryAfterSeconds }
}

/** Kubernetes 1.36 answers with a 500: retries do not help before one of the budgets is changed. */
const hasManyBudgets = ({ code, message }: ApiError): boolean =>
  code === 500 && message.includes('more than one PodDisruptionBudget')
