import type { KubeObject, RunLog } from '#contracts'
import { isConflict, isNotFound, type KubeClient, resourcePath } from '#kube'
import { conditionPatch, type StatusPatch } from '#reconcile'
import { RECONCILERS, type ReconcilerSpec } from '#spec'
import { type Gate, PRIORITY } from '../gate.ts'
import { NOT_IN_EVENTS, type Ready, ready, showsUnreachable, unreachable } from './ready-condition.ts'

export interface ReadyReporterDependencies {
  kube: Pick<KubeClient, 'patch' | 'applyStatus'>
  gate: Gate
  now: () => Date
  log: Pick<RunLog, 'warn'>
}

/** Writes the condition Ready of one Reconciler. Nothing waits for it: a slow API server delays no change. */
export class ReadyReporter {
  readonly #name: string
  readonly #deps: ReadyReporterDependencies
  #writing: Promise<unknown> = Promise.resolve()
  #latest: StatusPatch | undefined
  /** Why the function is unreachable, as long as the Reconciler does not show it. */
  #unreachable: string | undefined
  /** The version of the Reconciler that shows an unreachable function although it has answered. */
  #disproved: string | undefined

  constructor(name: string, deps: ReadyReporterDependencies) {
    this.#name = name
    this.#deps = deps
  }

  /** Writes are sent one after the other. Of those that wait, the latest is sent. */
  report(object: KubeObject, condition: Ready): void {
    const patch = conditionPatch(object, { type: 'Ready', ...condition }, this.#deps.now())
    if (patch === undefined) return
    this.#latest = patch
    this.#writing = this.#writing.then(() => (this.#latest === patch ? this.#write(object, patch) : undefined))
  }

  /** A dispatcher whose calls are not answered knows better than one that has made no call. */
  reportServed(object: KubeObject, spec: ReconcilerSpec): void {
    if (showsUnreachable(object)) this.#unreachable = undefined
    else this.report(object, this.#unreachable === undefined ? ready(spec) : unreachable(this.#unreachable))
  }

  /** Reported by the next reportServed(). */
  functionUnreachable(why: string): void {
    this.#unreachable = why
  }

  functionAnswered(object: KubeObject | undefined, spec: ReconcilerSpec | undefined): void {
    this.#unreachable = undefined
    if (object === undefined || spec === undefined || !showsUnreachable(object)) return
    if (this.#disproved === object.metadata.resourceVersion) return
    this.#disproved = object.metadata.resourceVersion
    this.report(object, ready(spec))
  }

  /** The next function may be reachable. */
  forgetFunction(): void {
    this.#unreachable = undefined
  }

  /** If the Reconciler exists, this changes it, so that a bridge stores it again. */
  reportNotInEvents({ apiVersion, kind, metadata: { name, uid } }: KubeObject): void {
    const { kube, now } = this.#deps
    const path = resourcePath(RECONCILERS, undefined, name)
    const write = () => {
      const condition = { type: 'Ready', ...NOT_IN_EVENTS, lastTransitionTime: now().toISOString() }
      const patch = { apiVersion, kind, metadata: { name, ...(uid && { uid }) }, status: { conditions: [condition] } }
      return this.#send(() => kube.applyStatus(path, patch, { fieldManager: 'fairlead', force: true }))
    }
    this.#writing = this.#writing.then(write)
  }

  /** Resolves when all reports are written or have failed. */
  async flush(): Promise<void> {
    await this.#writing
  }

  async #write(object: KubeObject, patch: StatusPatch): Promise<void> {
    const path = resourcePath(RECONCILERS, undefined, object.metadata.name, 'status')
    await this.#send(async () => {
      await this.#deps.kube.patch(path, patch, 'merge', { fieldManager: 'fairlead' })
      if (showsUnreachable({ ...object, status: patch.status })) this.#unreachable = undefined
    })
  }

  /** After a conflict a newer version of the Reconciler is on its way here, and is reported on. */
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
