/** Runs whose CPU time is kept. The limit exists for dry runs, which end without a record. */
const MOST_RUNS = 1000

interface OfRun {
  reconciler: string
  key: string
}

/**
 * Measures the CPU time of runs. The runs of one process share its CPU, so it is known only for a run without
 * concurrent runs.
 */
export class CpuOfRuns {
  readonly #runs = new Map<string, { began: NodeJS.CpuUsage; starts: number; ms?: number | undefined }>()
  #active = 0
  #starts = 0

  started(run: OfRun): void {
    this.#starts++
    if (this.#runs.size > MOST_RUNS) this.#runs.clear()
    if (this.#active++ === 0) this.#runs.set(nameOf(run), { began: process.cpuUsage(), starts: this.#starts })
  }

  ended(run: OfRun): void {
    this.#active--
    const own = this.#runs.get(nameOf(run))
    if (own === undefined || own.starts !== this.#starts) return
    const { user, system } = process.cpuUsage(own.began)
    own.ms = (user + system) / 1000
  }

  /** Returns the CPU time in milliseconds; undefined if another run was active at the same time. */
  take(run: OfRun): number | undefined {
    const ms = this.#runs.get(nameOf(run))?.ms
    this.#runs.delete(nameOf(run))
    return ms
  }
}

const nameOf = ({ reconciler, key }: OfRun): string => `${reconciler} ${key}`
