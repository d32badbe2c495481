import { setTimeout } from 'node:timers'
import { type ResourceRef, type RunLog, resourceName } from '#contracts'
import { resourcePath } from '#kube'
import type { WorkQueue } from '#queue'
import { holderOf, identityOf, nameOfShard } from '#spec'
import { asksOf, type Reconciler } from './reconcilers.ts'

export interface AdmissionDeps {
  queue: Pick<WorkQueue, 'declare'>
  /** The shard of this bridge. */
  shard: string
  log: RunLog
  /** Resolves with the kind as which the API server serves a resource. Undefined: it is not served. */
  kindOf: (ref: ResourceRef) => Promise<string | undefined>
  /** Called when a Reconciler has been admitted, or when its error has changed. */
  changed: () => void
}

/** The reason why nothing is watched or enqueued for a Reconciler. */
export interface AdmissionFailure {
  reason: 'HeldByShard' | 'KindMismatch' | 'KindUnknown' | 'NotPrepared'
  message: string
}

interface Candidate {
  reconciler: Reconciler
  /** unsure: it is prepared, but the API server has not confirmed the kind of its primaries. */
  state: 'untried' | 'admitted' | 'unsure' | { failure: AdmissionFailure }
  retry?: NodeJS.Timeout
}

const RETRY_MS = 5000

/**
 * Prepares each Reconciler, the kind of its primaries, its paths in the API and its queue, before anything is watched or
 * enqueued for it. An error rejects only the Reconciler that causes it. Each Reconciler has retries of its own.
 *
 * An owned object finds its owner by a kind, so a Reconciler that names the kind of another resource would take the
 * routing of that one. The API server decides which resource has a kind. While it does not answer, or does not serve the
 * resource, a Reconciler is admitted if no older one names its kind for another resource, and no confirmed one.
 */
export class Admission {
  readonly #deps: AdmissionDeps
  readonly #candidates = new Map<string, Candidate>()

  constructor(deps: AdmissionDeps) {
    this.#deps = deps
  }

  /** Whether every Reconciler that was given to review() has been tried. */
  get isDecided(): boolean {
    return [...this.#candidates.values()].every(({ state }) => state !== 'untried')
  }

  /** Reviews the Reconcilers that exist now. One that was created again, or is for another kind, is prepared again. */
  review(reconcilers: readonly Reconciler[]): void {
    const names = new Set(reconcilers.map(({ name }) => name))
    for (const name of this.#candidates.keys()) if (!names.has(name)) this.#dismiss(name)
    for (const reconciler of reconcilers) {
      const before = this.#candidates.get(reconciler.name)
      const state = before && isSame(before.reconciler, reconciler) ? before.state : 'untried'
      if (before && state === 'admitted') {
        before.reconciler = reconciler
        continue
      }
      this.#dismiss(reconciler.name)
      const candidate: Candidate = { reconciler, state }
      this.#candidates.set(reconciler.name, candidate)
      void this.#prepare(candidate)
    }
  }

  /** Asks again for the kind of a resource that the API server does not serve any more. */
  doubt(ref: ResourceRef): void {
    for (const candidate of this.#candidates.values())
      if (candidate.state === 'admitted' && resourceName(candidate.reconciler.spec.for) === resourceName(ref))
        void this.#prepare(candidate)
  }

  isAdmitted({ name }: Reconciler): boolean {
    const candidate = this.#candidates.get(name)
    return candidate?.state === 'admitted' || (candidate?.state === 'unsure' && this.#rivalOf(candidate) === undefined)
  }

  failureOf({ name }: Reconciler): AdmissionFailure | undefined {
    const candidate = this.#candidates.get(name)
    if (candidate?.state !== 'unsure') return typeof candidate?.state === 'object' ? candidate.state.failure : undefined
    const rival = this.#rivalOf(candidate)
    return rival && unconfirmed(candidate.reconciler, rival)
  }

  stop(): void {
    for (const name of this.#candidates.keys()) this.#dismiss(name)
  }

  /** Returns a Reconciler that has the same kind for another resource: one that is confirmed, or older. */
  #rivalOf({ reconciler: one }: Candidate): Reconciler | undefined {
    const { group, kind, resource } = one.spec.for
    const isRival = ({ reconciler: other, state }: Candidate) => {
      const { for: primary } = other.spec
      const isSameKind = primary.group === group && primary.kind === kind && primary.resource !== resource
      return isSameKind && (state === 'admitted' || (typeof state === 'string' && isOlder(other, one)))
    }
    return [...this.#candidates.values()].find(isRival)?.reconciler
  }

  async #prepare(candidate: Candidate): Promise<void> {
    const { reconciler, state: before } = candidate
    const state = await this.#stateOf(candidate)
    if (this.#candidates.get(reconciler.name) !== candidate) return
    candidate.state = state
    clearTimeout(candidate.retry)
    if (state !== 'admitted') candidate.retry = setTimeout(() => void this.#prepare(candidate), RETRY_MS).unref()
    if (JSON.stringify(before) === JSON.stringify(state)) return
    if (typeof state === 'object')
      this.#deps.log.warn(
        { reconciler: reconciler.name, detail: state.failure.message },
        'this Reconciler cannot be prepared yet',
      )
    this.#deps.changed()
  }

  async #stateOf({ reconciler, state: before }: Candidate): Promise<Exclude<Candidate['state'], 'untried'>> {
    const isPrepared = before === 'admitted' || before === 'unsure'
    const failure = isPrepared ? undefined : await this.#failureIn(reconciler)
    if (failure !== undefined) return { failure }
    const { for: primary } = reconciler.spec
    try {
      const kind = await this.#deps.kindOf(primary)
      if (kind === primary.kind) return 'admitted'
      return kind === undefined ? 'unsure' : { failure: misnamed(primary, kind) }
    } catch {
      const isKnown = before === 'admitted' || (typeof before === 'object' && before.failure.reason === 'KindMismatch')
      return isKnown ? before : 'unsure'
    }
  }

  async #failureIn({ name, spec, object }: Reconciler): Promise<AdmissionFailure | undefined> {
    const holder = holderOf(object)
    if (holder !== undefined && holder !== this.#deps.shard) return heldBy(holder, name, this.#deps.shard)
    try {
      for (const { ref, namespaces = [] } of asksOf(spec, identityOf(name, spec)))
        for (const namespace of [undefined, ...namespaces]) resourcePath(ref, namespace)
      await this.#deps.queue.declare(name)
      return undefined
    } catch (error) {
      return { reason: 'NotPrepared', message: (error as Error).message }
    }
  }

  #dismiss(name: string): void {
    clearTimeout(this.#candidates.get(name)?.retry)
    this.#candidates.delete(name)
  }
}

const isSame = (one: Reconciler, other: Reconciler): boolean =>
  one.object.metadata.uid === other.object.metadata.uid && named(one.spec.for) === named(other.spec.for)

/** By the time of its creation, then by its name, as for an identity. */
function isOlder(one: Reconciler, other: Reconciler): boolean {
  const [since = '', sinceOfOther = ''] = [one, other].map(({ object }) => object.metadata.creationTimestamp)
  return since === sinceOfOther ? one.name < other.name : since < sinceOfOther
}

const named = (ref: ResourceRef & { kind: string }): string => `${resourceName(ref)} as ${ref.kind}`

const misnamed = (primary: ResourceRef & { kind: string }, kind: string): AdmissionFailure => ({
  reason: 'KindMismatch',
  message: `spec.for is ${named(primary)}, but the API server serves it as ${kind}: correct kind or resource`,
})

const unconfirmed = ({ spec }: Reconciler, rival: Reconciler): AdmissionFailure => ({
  reason: 'KindUnknown',
  message: `spec.for is ${named(spec.for)}, which the API server does not confirm, and the Reconciler ${rival.name} is for ${named(rival.spec.for)}`,
})

function heldBy(holder: string, name: string, shard: string): AdmissionFailure {
  const patch = JSON.stringify({ status: { shard: shard === '' ? null : shard } })
  return {
    reason: 'HeldByShard',
    message: `${nameOfShard(holder)} has not released it yet: its bridge does so when no run is under way there. If that installation does not exist any more: kubectl patch reconciler ${name} --subresource status --type merge -p '${patch}'`,
  }
}
