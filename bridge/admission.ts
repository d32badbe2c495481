import type { RunLog } from '#contracts'
import { resourcePath } from '#kube'
import type { WorkQueue } from '#queue'
import { asksOf, type Reconciler } from './reconcilers.ts'

export interface AdmissionDeps {
  queue: Pick<WorkQueue, 'declare'>
  log: RunLog
  /** A Reconciler was admitted, or what keeps it out is another error. */
  changed: () => void
}

interface Applicant {
  uid: string | undefined
  state: 'untried' | 'admitted' | { failure: string }
  retry?: NodeJS.Timeout
}

const RETRY_MS = 5000

/**
 * Prepares each Reconciler by itself, before anything is watched or enqueued for it: its paths in the API and its queue. An
 * error keeps out the one Reconciler that causes it; each retry is its own.
 */
export class Admission {
  readonly #deps: AdmissionDeps
  readonly #applicants = new Map<string, Applicant>()

  constructor(deps: AdmissionDeps) {
    this.#deps = deps
  }

  /** Every Reconciler that was given to review() has been tried. */
  get isDecided(): boolean {
    return [...this.#applicants.values()].every(({ state }) => state !== 'untried')
  }

  /** The Reconcilers that exist now. One that was deleted and created again is prepared again. */
  review(reconcilers: readonly Reconciler[]): void {
    const names = new Set(reconcilers.map(({ name }) => name))
    for (const name of this.#applicants.keys()) if (!names.has(name)) this.#dismiss(name)
    for (const reconciler of reconcilers) {
      const { name, object } = reconciler
      const { uid } = object.metadata
      const before = this.#applicants.get(name)
      const known = before?.uid === uid ? before : undefined
      if (known?.state === 'admitted') continue
      this.#dismiss(name)
      const applicant: Applicant = { uid, state: known?.state ?? 'untried' }
      this.#applicants.set(name, applicant)
      void this.#prepare(reconciler, applicant)
    }
  }

  isAdmitted({ name }: Reconciler): boolean {
    return this.#applicants.get(name)?.state === 'admitted'
  }

  failureOf({ name }: Reconciler): string | undefined {
    const state = this.#applicants.get(name)?.state
    return typeof state === 'object' ? state.failure : undefined
  }

  stop(): void {
    for (const name of this.#applicants.keys()) this.#dismiss(name)
  }

  async #prepare(reconciler: Reconciler, applicant: Applicant): Promise<void> {
    const before = applicant.state
    const failure = await this.#failureIn(reconciler)
    if (this.#applicants.get(reconciler.name) !== applicant) return
    applicant.state = failure === undefined ? 'admitted' : { failure }
    if (failure !== undefined)
      applicant.retry = setTimeout(() => void this.#prepare(reconciler, applicant), RETRY_MS).unref()
    if (typeof before === 'object' && before.failure === failure) return
    if (failure !== undefined)
      this.#deps.log.warn({ reconciler: reconciler.name, detail: failure }, 'this Reconciler cannot be prepared yet')
    this.#deps.changed()
  }

  async #failureIn({ name, spec }: Reconciler): Promise<string | undefined> {
    try {
      for (const { ref, namespaces = [] } of asksOf(spec))
        for (const namespace of [undefined, ...namespaces]) resourcePath(ref, namespace)
      await this.#deps.queue.declare(name)
      return undefined
    } catch (error) {
      return (error as Error).message
    }
  }

  #dismiss(name: string): void {
    clearTimeout(this.#applicants.get(name)?.retry)
    this.#applicants.delete(name)
  }
}
