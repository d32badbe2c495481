import type { KubeObject, RunLog } from '#contracts'
import { isConflict, isNotFound, type KubeClient, resourcePath } from '#kube'
import { Serial } from '#primitives'
import { conditionPatch, type StatusPatch } from '#reconcile'
import { RECONCILERS, type ReconcilerSpec } from '#spec'
import { type Gate, PRIORITY } from '../gate.ts'

export interface ReadyReporterDeps {
  kube: Pick<KubeClient, 'patch' | 'applyStatus'>
  gate: Gate
  now: () => Date
  log: Pick<RunLog, 'warn'>
}

/** Writes the condition Ready of one Reconciler in the background: a slow API server delays no change. */
export class ReadyReporter {
  readonly #name: string
  readonly #deps: ReadyReporterDeps
  readonly #writes = new Serial()
  #latest: StatusPatch | undefined
  /** The reason why the function is unreachable, until the Reconciler shows it. */
  #unreachable: string | undefined
  /** The version of the Reconciler that shows an unreachable function although it has answered. */
  #outdated: string | undefined

  constructor(name: string, deps: ReadyReporterDeps) {
    this.#name = name
    this.#deps = deps
  }

  /** Writes the condition. Writes are sent one after the other. If several wait, only the latest is sent. */
  report(object: KubeObject, condition: Ready): void {
    const patch = conditionPatch(object, { type: 'Ready', ...condition }, this.#deps.now())
    if (patch === undefined) return
    this.#latest = patch
    void this.#writes.run(() => (this.#latest === patch ? this.#write(object, patch) : undefined))
  }

  /**
   * Reports Ready, unless the Reconciler shows an unreachable function: another dispatcher has called it, and this one
   * may not have.
   */
  reportServed(object: KubeObject, spec: ReconcilerSpec): void {
    if (showsUnreachable(object)) this.#unreachable = undefined
    else this.report(object, this.#unreachable === undefined ? ready(spec) : unreachable(this.#unreachable))
  }

  /** Keeps the reason for the next reportServed(). */
  functionUnreachable(why: string): void {
    this.#unreachable = why
  }

  functionAnswered(object: KubeObject | undefined, spec: ReconcilerSpec | undefined): void {
    this.#unreachable = undefined
    if (object === undefined || spec === undefined || !showsUnreachable(object)) return
    if (this.#outdated === object.metadata.resourceVersion) return
    this.#outdated = object.metadata.resourceVersion
    this.report(object, ready(spec))
  }

  /** Forgets that the function is unreachable, because the next function may be reachable. */
  forgetFunction(): void {
    this.#unreachable = undefined
  }

  /** Changes a Reconciler that EVENTS does not have. If it exists, the change makes a bridge store it again. */
  reportNotInEvents({ apiVersion, kind, metadata: { name, uid } }: KubeObject): void {
    const { kube, now } = this.#deps
    const path = resourcePath(RECONCILERS, undefined, name)
    const write = () => {
      const condition = { type: 'Ready', ...NOT_IN_EVENTS, lastTransitionTime: now().toISOString() }
      const patch = { apiVersion, kind, metadata: { name, ...(uid && { uid }) }, status: { conditions: [condition] } }
      return this.#send(() => kube.applyStatus(path, patch, { fieldManager: 'fairlead', force: true }))
    }
    void this.#writes.run(write)
  }

  /** Resolves when all reports are written or have failed. */
  async flush(): Promise<void> {
    await this.#writes.idle()
  }

  async #write(object: KubeObject, patch: StatusPatch): Promise<void> {
    const path = resourcePath(RECONCILERS, undefined, object.metadata.name, 'status')
    await this.#send(async () => {
      await this.#deps.kube.patch(path, patch, 'merge', { fieldManager: 'fairlead' })
      if (showsUnreachable({ ...object, status: patch.status })) this.#unreachable = undefined
    })
  }

  /** Ignores a conflict: a newer version of the Reconciler is about to arrive, and causes another report. */
  async #send(request: () => Promise<unknown>): Promise<void> {
    const { gate, log } = this.#deps
    try {
      await gate.run({ reconciler: this.#name, kind: PRIORITY.status }, request)
    } catch (error) {
      if (!isConflict(error) && !isNotFound(error))
        log.warn({ err: error, reconciler: this.#name }, 'condition of the reconciler not written')
    }
  }
}

/** The condition Ready of a Reconciler. */
export interface Ready {
  status: 'True' | 'False'
  reason: string
  message?: string
}

const ready = ({ dryRun }: ReconcilerSpec): Ready =>
  dryRun
    ? { status: 'True', reason: 'DryRun', message: 'spec.dryRun: runs write nothing, and log what they would' }
    : { status: 'True', reason: 'Serving' }

export const PAUSED: Ready = {
  status: 'False',
  reason: 'Paused',
  message: 'spec.paused: nothing runs until it is false',
}

const NOT_IN_EVENTS: Ready = {
  status: 'False',
  reason: 'NotInEvents',
  message: 'EVENTS does not have this Reconciler: nothing runs until a bridge has stored it again',
}

export const identityTaken = (identity: string, holder: string): Ready => ({
  status: 'False',
  reason: 'IdentityTaken',
  message: `nothing runs: the older Reconciler ${holder} has the identity ${identity} too. If this one replaces it: kubectl delete reconciler ${holder}. If not, give this one another spec.identity`,
})

const UNREACHABLE = 'FunctionUnreachable'

const unreachable = (message: string): Ready => ({ status: 'False', reason: UNREACHABLE, message })

/**
 * Whether the Reconciler shows an unreachable function for its present generation. A changed specification may have
 * another address.
 */
function showsUnreachable({ metadata, status }: Pick<KubeObject, 'metadata' | 'status'>): boolean {
  const { conditions = [] } = (status ?? {}) as { conditions?: { reason?: string; observedGeneration?: number }[] }
  return conditions.some((one) => one.reason === UNREACHABLE && one.observedGeneration === metadata.generation)
}
