import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { RunLog, Runnable, RunRecord } from '#contracts'
import type { EndedRun, RunStep } from '#dispatch'
import { declareRuns, type RunSender, runSender } from '#events'
import type { Config } from './config.ts'
import type { Streams } from './connections.ts'
import { prefixOf } from './nats.ts'
import { recordOf, resultOf } from './run-record.ts'

/** The part of the connection to NATS that the history needs. */
interface HistoryConnection {
  /** Resolves when the server has received all messages that were sent before. */
  flush(): Promise<void>
  onDisconnect(listener: () => void): unknown
  onReconnect(listener: () => void): unknown
}

export interface HistoryDeps {
  connection: HistoryConnection
  /** Creates the stream if it does not exist. */
  declare: () => Promise<void>
  send: RunSender
  /** The name of this process. */
  process: string
  /** Called when a record is dropped because NATS is unreachable or slow. */
  dropped: (reconciler: string) => void
  /** Called with the size of each record that is sent. */
  sent?: (record: RunRecord, bytes: number) => void
  log: Pick<RunLog, 'warn'>
}

/** The limit of bytes that were sent and are not confirmed yet. */
const MOST_UNCONFIRMED_BYTES = 4 * 2 ** 20
const CONFIRM_EVERY_MS = 250
const DECLARE_EVERY_MS = 60_000
/**
 * Records runs in the stream RUNS, after their end is stored in the queue. Sends records without waiting for an answer;
 * records that NATS does not accept in time are dropped and counted.
 */
export class RunHistory implements Runnable {
  readonly #deps: HistoryDeps
  readonly #cpu = new CpuOfRuns()
  #isDeclared = false
  #isConnected = true
  #unconfirmedBytes = 0
  #confirming: Promise<void> | undefined

  constructor(deps: HistoryDeps) {
    this.#deps = deps
    const { connection } = deps
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
        await this.#deps.declare()
        this.#isDeclared = true
        isTold = false
      } catch (error) {
        this.#isDeclared = false
        if (!isTold) this.#deps.log.warn({ err: error }, 'runs are not recorded: the stream RUNS cannot be made')
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
    if (!isKept(run)) return
    const { process, dropped } = this.#deps
    if (!this.#isDeclared || !this.#isConnected || this.#unconfirmedBytes > MOST_UNCONFIRMED_BYTES)
      return dropped(run.of.name)
    try {
      this.#send(recordOf(run, { process, cpuMs }))
    } catch (error) {
      dropped(run.of.name)
      this.#deps.log.warn({ err: error, reconciler: run.of.name }, 'run not recorded')
    }
  }

  /** Resolves when NATS has received what was sent before. */
  flush(): Promise<void> {
    return this.#deps.connection.flush()
  }

  #send(record: RunRecord): void {
    const json = JSON.stringify(record)
    this.#deps.send(record, json)
    this.#deps.sent?.(record, json.length)
    this.#unconfirmedBytes += json.length
    this.#confirming ??= this.#confirm()
  }

  /** Asks the server once for the confirmation of all records that were sent since the last confirmation. */
  async #confirm(): Promise<void> {
    await sleep(CONFIRM_EVERY_MS, undefined, { ref: false })
    const bytes = this.#unconfirmedBytes
    await this.#deps.connection.flush().catch(() => undefined)
    this.#unconfirmedBytes -= bytes
    this.#confirming = this.#unconfirmedBytes > 0 ? this.#confirm() : undefined
  }
}

/**
 * Whether the run wrote something, had a write refused, or failed. Records of other runs would replace these: an object
 * has 20 at most.
 */
function isKept(run: EndedRun): boolean {
  const result = resultOf(run)
  const isSettled = result === 'success' || result === 'requeue_after'
  return !isSettled || run.rounds.some(({ writes }) => writes.some(({ isUnchanged }) => !isUnchanged))
}

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
class CpuOfRuns {
  readonly #runs = new Map<string, { began: NodeJS.CpuUsage; starts: number; ms?: number }>()
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

export interface OpenHistoryOptions {
  raiseReplicas: boolean
  /** Called when a run of that reconciler was not recorded. */
  dropped: (reconciler: string) => void
  sent?: HistoryDeps['sent']
  log: Pick<RunLog, 'warn'>
}

/** Opens the history with these settings; undefined if the settings turn it off. */
export function openHistory(
  config: Pick<Config, 'FAIRLEAD_RUNS' | 'FAIRLEAD_RUNS_MAX_BYTES' | 'FAIRLEAD_PREFIX' | 'FAIRLEAD_REPLICAS'>,
  { js, events }: Pick<Streams, 'js' | 'events'>,
  { raiseReplicas, dropped, sent, log }: OpenHistoryOptions,
): RunHistory | undefined {
  const { FAIRLEAD_RUNS_MAX_BYTES: maxBytes, FAIRLEAD_PREFIX: prefix } = config
  if (config.FAIRLEAD_RUNS === 'off') return undefined
  const options = { ...prefixOf(config), replicas: config.FAIRLEAD_REPLICAS, raiseReplicas, maxBytes }
  return new RunHistory({
    connection: js,
    declare: () => declareRuns(js, options),
    send: runSender(js, prefix, events.cluster),
    process: `${hostname()}-${process.pid}`,
    dropped,
    ...(sent && { sent }),
    log,
  })
}
