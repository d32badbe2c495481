import type { RunLog } from '#contracts'
import { resourcePath } from '#kube'
import type { WorkQueue } from '#queue'
import { holderOf, nameOfShard } from '#spec'
import { asksOf, type Reconciler } from './reconcilers.ts'

export interface AdmissionDeps {
  queue: Pick<WorkQueue, 'declare'>
  /** The shard of this bridge. */
  shard: string
  log: RunLog
  /** Called when a Reconciler has been admitted, or when its error has changed. */
  changed: () => void
}

/** The reason why nothing is watched or enqueued for a Reconciler. */
export interface AdmissionFailure {
  reason: 'HeldByShard' | 'NotPrepared'
  message: string
}

interface Candidate {
  uid: string | undefined
  state: 'untried' | 'admitted' | { failure: AdmissionFailure }
  retry?: NodeJS.Timeout
}

const RETRY_MS = 5000

/**
 * Prepares each Reconciler, its paths in the API and its queue, before anything is watched or enqueued for it. An error
 * rejects only the Reconciler that causes it. Each Reconciler has retries of its own.
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

  /** Reviews the Reconcilers that exist now. One that was deleted and created again is prepared again. */
  review(reconcilers: readonly Reconciler[]): void {
    const names = new Set(reconcilers.map(({ name }) => name))
    for (const name of this.#candidates.keys()) if (!names.has(name)) this.#dismiss(name)
    for (const reconciler of reconcilers) {
      const { name, object } = reconciler
      const { uid } = object.metadata
      const before = this.#candidates.get(name)
      const known = before?.uid === uid ? before : undefined
      if (known?.state === 'admitted') continue
      this.#dismiss(name)
      const candidate: Candidate = { uid, state: known?.state ?? 'untried' }
      this.#candidates.set(name, candidate)
      void this.#prepare(reconciler, candidate)
    }
  }

  isAdmitted({ name }: Reconciler): boolean {
    return this.#candidates.get(name)?.state === 'admitted'
  }

  failureOf({ name }: Reconciler): AdmissionFailure | undefined {
    const state = this.#candidates.get(name)?.state
    return typeof state === 'object' ? state.failure : undefined
  }

  stop(): void {
    for (const name of this.#candidates.keys()) this.#dismiss(name)
  }

  async #prepare(reconciler: Reconciler, candidate: Candidate): Promise<void> {
    const before = candidate.state
    const failure = await this.#failureIn(reconciler)
    if (this.#candidates.get(reconciler.name) !== candidate) return
    candidate.state = failure === undefined ? 'admitted' : { failure }
    if (failure !== undefined)
      candidate.retry = setTimeout(() => void this.#prepare(reconciler, candidate), RETRY_MS).unref()
    if (typeof before === 'object' && before.failure.message === failure?.message) return
    if (failure !== undefined)
      this.#deps.log.warn(
        { reconciler: reconciler.name, detail: failure.message },
        'this Reconciler cannot be prepared yet',
      )
    this.#deps.changed()
  }

  async #failureIn({ name, spec, object }: Reconciler): Promise<AdmissionFailure | undefined> {
    const holder = holderOf(object)
    if (holder !== undefined && holder !== this.#deps.shard) return heldBy(holder, name, this.#deps.shard)
    try {
      for (const { ref, namespaces = [] } of asksOf(spec))
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

function heldBy(holder: string, name: string, shard: string): AdmissionFailure {
  const patch = JSON.stringify({ status: { shard: shard === '' ? null : shard } })
  return {
    reason: 'HeldByShard',
    message: `${nameOfShard(holder)} has not released it yet: its bridge does so when no run is under way there. If that installation does not exist any more: kubectl patch reconciler ${name} --subresource status --type merge -p '${patch}'`,
  }
}
