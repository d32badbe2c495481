import { setTimeout as sleep } from 'node:timers/promises'
import type { RunLog, Runnable, RunRecord } from '#contracts'
import type { EndedRun, RunStep } from '#dispatch'
import type { RunSender } from '#events'
import { BoundedMap } from '#primitives'
import { causesBetween, type Versions, versionsAfter, versionsIn } from './causes.ts'
import { CpuOfRuns } from './cpu.ts'
import { recordOf, resultOf } from './record.ts'

/** Which runs are recorded. */
export type Kept = 'always' | 'changed-or-failed' | 'failed' | 'never'

/** The connection to NATS, as far as the history needs it. */
interface HistoryConnection {
  /** Resolves when the server has everything that was sent before. */
  flush(): Promise<void>
  onDisconnect(listener: () => void): unknown
  onReconnect(listener: () => void): unknown
}

export interface HistoryOptions {
  connection: HistoryConnection
  /** Makes the stream if it is not there. */
  declare: () => Promise<void>
  send: RunSender
  keep: Kept
  /** Names this process. */
  process: string
  /** A record was not sent, because NATS was away or slow. */
  dropped: (reconciler: string) => void
  log: Pick<RunLog, 'warn'>
}

/** Sent and not yet known to be at the server. */
const MOST_UNCONFIRMED_BYTES = 4 * 2 ** 20
const CONFIRM_EVERY_MS = 250
const DECLARE_EVERY_MS = 60_000
/** Of other objects the next record has no causes. */
const REMEMBERED_OBJECTS = 5000
/** Longer lists are not remembered. */
const REMEMBERED_VERSIONS = 500

/**
 * Records runs in the stream RUNS. A run is over, and its end is stored, before it comes here. Records are sent without
 * waiting for an answer; what NATS does not take in time is dropped and counted.
 */
export class RunHistory implements Runnable {
  readonly #options: HistoryOptions
  readonly #cpu = new CpuOfRuns()
  readonly #before = new BoundedMap<string, { id: string; versions: Versions }>(REMEMBERED_OBJECTS)
  #isDeclared = false
  #isConnected = true
  #unconfirmedBytes = 0
  #confirming: Promise<void> | undefined

  constructor(options: HistoryOptions) {
    this.#options = options
    const { connection } = options
    connection.onDisconnect(() => {
      this.#isConnected = false
    })
    connection.onReconnect(() => {
      this.#isConnected = true
    })
  }

  /** Declares the stream, and once more each minute: somebody may have deleted it. */
  async run(signal: AbortSignal): Promise<void> {
    for (let isTold = false; !signal.aborted; ) {
      try {
        await this.#options.declare()
        this.#isDeclared = true
        isTold = false
      } catch (error) {
        this.#isDeclared = false
        if (!isTold) this.#options.log.warn({ err: error }, 'runs are not recorded: the stream RUNS cannot be made')
        isTold = true
      }
      await sleep(DECLARE_EVERY_MS, undefined, { signal, ref: false }).catch(() => undefined)
    }
    await this.#confirming
  }

  step(step: RunStep): void {
    if (step.step === 'started') this.#cpu.started(step)
    if (step.step === 'ended') this.#cpu.ended(step)
  }

  ended(run: EndedRun): void {
    const cpuMs = this.#cpu.take({ reconciler: run.of.name, key: run.lease.key })
    if (!isKept(this.#options.keep, run)) return
    const { process, dropped } = this.#options
    if (!this.#isDeclared || !this.#isConnected || this.#unconfirmedBytes > MOST_UNCONFIRMED_BYTES)
      return dropped(run.of.name)
    try {
      this.#send(this.#withCauses(recordOf(run, { process, cpuMs })))
    } catch (error) {
      dropped(run.of.name)
      this.#options.log.warn({ err: error, reconciler: run.of.name }, 'run not recorded')
    }
  }

  #send(record: RunRecord): void {
    const json = JSON.stringify(record)
    this.#options.send(record, json)
    this.#unconfirmedBytes += json.length
    this.#confirming ??= this.#confirm()
  }

  #withCauses(record: RunRecord): RunRecord {
    const [first] = record.laps
    const key = `${record.reconciler} ${record.namespace ?? ''}/${record.name}`
    const before = this.#before.get(key)
    const versions = versionsAfter(record.laps)
    if (versions !== undefined && versions.size <= REMEMBERED_VERSIONS)
      this.#before.set(key, { id: record.id, versions })
    if (before === undefined || first === undefined) return record
    return { ...record, causes: causesBetween(before.versions, versionsIn(first.input)), since: before.id }
  }

  /** One question to the server for all that was sent meanwhile. */
  async #confirm(): Promise<void> {
    await sleep(CONFIRM_EVERY_MS, undefined, { ref: false })
    const bytes = this.#unconfirmedBytes
    await this.#options.connection.flush().catch(() => undefined)
    this.#unconfirmedBytes -= bytes
    this.#confirming = this.#unconfirmedBytes > 0 ? this.#confirm() : undefined
  }
}

function isKept(keep: Kept, run: EndedRun): boolean {
  const result = resultOf(run)
  const isFailed = result !== 'success' && result !== 'requeue_after'
  if (keep === 'changed-or-failed') return isFailed || run.laps.some(({ writes }) => writes.length > 0)
  return keep === 'always' || (keep === 'failed' && isFailed)
}
