import type { Invoke, KubeObject } from '#contracts'
import type { RunObserver } from '#dispatch'
import { parseKey, type StoredEventReport, type UsageOf, type UsageRow, UsageRows } from '#events'

/** The function of rows that belong to no function. The names of Reconcilers have no parentheses. */
const PLATFORM = '(platform)'
const BRIDGE = '(bridge)'

/** The limit of rows with a namespace between two readings, and that of all rows. */
const MOST_ROWS = [10_000, 20_000] as const

/**
 * Attributes what this process uses to functions and namespaces.
 *
 * CPU: each step of a run pays for the CPU time that the process has used since the step before, of any run. The steps are
 * the start, each call of the function with its begin, its synchronous part and its end, each write, and the end. The first
 * step after a time without runs pays nothing: that time is a row of its own, PLATFORM. A change that the bridge stores pays
 * in the same way, as BRIDGE in the namespace of the object. So all rows together are the CPU time of the process, and a run
 * that waits pays nothing.
 *
 * Requests that no run sends, such as watches, belong to PLATFORM too.
 */
export class UsageMeter {
  readonly #cpu: CpuAccount
  #used = (): void => undefined
  #rows = new UsageRows(...MOST_ROWS)
  /** Requests of the process that no row has yet. Negative: a run has counted a request that was never sent. */
  #requests = 0

  constructor(cpu: CpuAccount = cpuAccount()) {
    this.#cpu = cpu
  }

  /** Calls the listener when a run has ended, or a change is stored. */
  onUse(listener: () => void): void {
    this.#used = listener
  }

  /** Returns what was used since the last call. */
  take(): UsageRow[] {
    this.#pay({ function: PLATFORM })
    if (this.#requests > 0) {
      this.#rows.of({ function: PLATFORM }).requests += this.#requests
      this.#requests = 0
    }
    const rows = [...this.#rows]
    this.#rows = new UsageRows(...MOST_ROWS)
    return rows
  }

  readonly run: RunObserver = (step) => {
    const of = { function: step.reconciler, namespace: parseKey(step.key).namespace }
    if (step.step === 'started') this.#pay(this.#cpu.activeRuns++ === 0 ? { function: PLATFORM } : of)
    if (step.step === 'written') this.#pay(of).writes++
    if (step.step === 'ended') {
      this.#cpu.activeRuns--
      this.#pay(of)
    }
    if (step.step !== 'finished') return
    const row = this.#pay(of)
    // Another process counts a run that was fenced or handed back.
    if (step.result !== 'fenced') row.runs++
    this.#used()
  }

  /** The bridge has received a change. */
  seen(): void {
    if (this.#cpu.activeRuns === 0) this.#pay({ function: PLATFORM })
  }

  /** The bridge has stored a change. */
  published({ object }: { object: KubeObject }): void {
    this.#pay({ function: BRIDGE, namespace: object.metadata.namespace })
    this.#used()
  }

  around(reconciler: string, invoke: Invoke): Invoke {
    return async (input, context) => {
      const of = { function: reconciler, namespace: input.object?.metadata.namespace }
      this.#pay(of)
      const answer = invoke(input, context)
      this.#pay(of)
      try {
        return await answer
      } finally {
        this.#pay(of)
      }
    }
  }

  /** The process has sent a request to the API server. */
  requested(): void {
    this.#requests++
  }

  /** A run, or the dispatcher for a Reconciler, has sent one of these requests. */
  requestedBy({ reconciler, namespace }: { reconciler: string; namespace?: string | undefined }): void {
    this.#rows.of({ function: reconciler, namespace }).requests++
    this.#requests--
  }

  /** An event was stored in EVENTS. `origin`: the run that has written the object. */
  storedEvent({ namespace, origin, bytes }: StoredEventReport): void {
    const [reconciler, key] = origin?.split('/') ?? []
    const of =
      reconciler === undefined || key === undefined
        ? { function: BRIDGE, namespace }
        : { function: reconciler, namespace: parseKey(key).namespace }
    this.#rows.of(of).storedBytes += bytes
  }

  /** A record was sent to RUNS. */
  storedRun({ reconciler, namespace }: { reconciler: string; namespace?: string | undefined }, bytes: number): void {
    this.#rows.of({ function: reconciler, namespace }).storedBytes += bytes
  }

  #pay(of: UsageOf): UsageRow {
    const row = this.#rows.of(of)
    const now = this.#cpu.spentMs()
    row.cpuMs += now - this.#cpu.paidMs
    this.#cpu.paidMs = now
    return row
  }
}

/** The CPU time of the process, which all meters of the process pay once together. */
export interface CpuAccount {
  /** The CPU time of the process up to now, in milliseconds. */
  spentMs: () => number
  /** The part that rows have. */
  paidMs: number
  activeRuns: number
}

export const cpuAccount = (spentMs: () => number = ownCpuMs): CpuAccount => ({ spentMs, paidMs: 0, activeRuns: 0 })

function ownCpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}
