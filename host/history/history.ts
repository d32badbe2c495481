import { setTimeout as sleep } from 'node:timers/promises'
import type { RunLog, Runnable, RunRecord } from '#contracts'
import type { EndedRun, RunStep } from '#dispatch'
import type { RunSender } from '#events'
import { BoundedMap } from '#primitives'
import { causesBetween, type Versions, versionsAfter, versionsIn } from './causes.ts'
import { CpuOfRuns } from './cpu.ts'
import { recordOf, resultOf } from './record.ts'

/** The runs that are recorded. */
export type Kept = 'always' | 'changed-or-failed' | 'failed' | 'never'

/** The part of the connection to NATS that the history needs. */
interface HistoryConnection {
  /** Resolves when the server has received all messages that were sent before. */
  flush(): Promise<void>
  onDisconnect(listener: () => void): unknown
  onReconnect(listener: () => void): unknown
}

export interface HistoryOptions {
  connection: HistoryConnection
  /** Creates the stream if it does not exist. */
  declare: () => Promise<void>
  send: RunSender
  keep: Kept
  /** The name of this process. */
  process: string
  /** Called when a record is dropped because NATS is unreachable or slow. */
  dropped: (reconciler: string) => void
  log: Pick<RunLog, 'warn'>
}

/** The limit of bytes that were sent and are not confirmed yet. */
const MOST_UNCONFIRMED_BYTES = 4 * 2 ** 20
const CONFIRM_EVERY_MS = 250
const DECLARE_EVERY_MS = 60_000
/** Objects whose last versions are kept for causes. For further objects, the next record has no causes. */
const REMEMBERED_OBJECTS = 5000
/** Longer lists of versions are not kept. */
const REMEMBERED_VERSIONS = 500

/**
 * Records runs in the stream RUNS, after their end is stored in the queue. Sends records without waiting for an answer;
 * records that NATS does not accept in time are dropped and counted.
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

  /** Declares the stream, and again each minute in case it was deleted. */
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

  /** Asks the server once for the confirmation of all records that were sent since the last confirmation. */
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
