import { namespacedName, type RunRecord } from '#contracts'
import {
  declareStream,
  ERR,
  encodeHeaders,
  findStream,
  type JetStream,
  JetStreamError,
  poll,
  type StoredMessage,
} from '#nats'
import { encodeHeaderValue } from './cloudevent.ts'
import { streamNames } from './stream.ts'
import { encodeSubjectPart, keyOf } from './subjects.ts'

/** Thrown if no run history exists under these names. */
export class NoRunsError extends Error {
  override readonly name = 'NoRunsError'
}

export interface RunsOptions {
  prefix?: string
  /** Left out: an existing stream keeps its number, a new stream gets one. */
  replicas?: 1 | 3
  /** Raises the replicas of an existing stream to that number. Needs the permission to update the stream. */
  raiseReplicas?: boolean
  /** The size limit of a new stream. Default 256 MiB. */
  maxBytes?: number
}

/** Selects runs. Fields that are left out match all. */
export interface RunsFilter {
  reconciler?: string
  /** Null: objects without a namespace. */
  namespace?: string | null
  name?: string
}

/** A record with its sequence in RUNS. */
export interface StoredRun {
  sequence: number
  bytes: number
  record: RunRecord
}

/** Reads RUNS. It declares nothing and writes nothing. */
export interface RunsView {
  readonly stream: string
  /**
   * Lists runs, oldest first: all, those since a time, or those from a sequence on. Throws NoRunsError if the stream
   * does not exist.
   */
  list(filter: RunsFilter, start?: Date | number): AsyncIterable<StoredRun>
  /** Undefined: the run is no longer stored. */
  get(sequence: number): Promise<StoredRun | undefined>
  /** Follows the runs that were recorded after the sequence `after`, until the signal aborts. */
  follow(filter: RunsFilter, after: number, signal: AbortSignal): AsyncIterable<StoredRun>
  /** Returns the last sequence: later runs have a higher one. */
  end(): Promise<number>
}

const DAY_NS = 86_400 * 1e9
/**
 * The limits of a new stream. They do not change an existing stream, because an administrator may have set other
 * limits.
 */
const LIMITS = { max_age: 30 * DAY_NS, max_msgs_per_subject: 20, max_bytes: 256 * 2 ** 20 }
const TYPE = 'dev.fairlead.run.ended'

/**
 * Declares one stream for the runs of all objects. NATS drops old runs by age, by bytes, and by the number of runs of one
 * object.
 */
export async function declareRuns(js: JetStream, options: RunsOptions): Promise<void> {
  const { stream, root } = streamNames(options.prefix, 'RUNS')
  const { replicas, raiseReplicas, maxBytes = LIMITS.max_bytes } = options
  const config: Parameters<typeof declareStream>[1] = {
    name: stream,
    subjects: [`${root}runs.>`],
    retention: 'limits',
    storage: 'file',
    discard: 'old',
    allow_direct: true,
    ...(replicas === undefined ? undefined : { num_replicas: replicas }),
  }
  await declareStream(js, config, { raiseReplicas, createdWith: { ...LIMITS, max_bytes: maxBytes } })
}

/** Returns `runs.<reconciler>.<namespace|_>.<name>`. */
const runSubject = ({ reconciler, namespace, name }: RunRecord): string =>
  `runs.${reconcilerPart(reconciler)}.${keyOf(namespace, name)}`

const runFilter = ({ reconciler, namespace, name }: RunsFilter): string =>
  [
    'runs',
    reconciler === undefined ? '*' : reconcilerPart(reconciler),
    namespace === undefined ? '*' : namespace === null ? '_' : encodeSubjectPart(namespace),
    name === undefined ? '*' : encodeSubjectPart(name),
  ].join('.')

/** Replaces dots. Names of Kubernetes objects contain no `_`, so the result is unique. */
const reconcilerPart = (reconciler: string): string => reconciler.replaceAll('.', '_')

/** Sends the records of this process to NATS at the end of the turn, without waiting for an answer. */
export type RunSender = (record: RunRecord, json: string) => void

export function runSender(js: JetStream, prefix: string | undefined, cluster: string): RunSender {
  const { root } = streamNames(prefix, 'RUNS')
  const source = encodeHeaderValue(`https://${cluster}/runs`)
  return (record, json) => {
    const { id, reconciler, namespace, name, endedAt, traceId } = record
    const subject = `${reconciler}/${namespacedName({ namespace, name })}`
    const headers = encodeHeaders({
      'ce-specversion': '1.0',
      'ce-id': encodeHeaderValue(id),
      'ce-source': source,
      'ce-type': TYPE,
      'ce-subject': encodeHeaderValue(subject),
      'ce-time': endedAt,
      'ce-datacontenttype': 'application/json',
      'content-type': 'application/json',
      'ce-traceid': traceId,
    })
    js.outbox.send(root + runSubject(record), json, { headers })
  }
}

export function viewRuns(js: JetStream, prefix?: string): RunsView {
  const { stream, root } = streamNames(prefix, 'RUNS')
  const explained = (error: unknown): never => {
    if (error instanceof JetStreamError && (error.code === 404 || error.errCode === ERR.streamNotFound))
      throw new NoRunsError(noRuns(stream), { cause: error })
    throw error
  }
  const demand = async () => {
    if ((await findStream(js, stream)) === undefined) throw new NoRunsError(noRuns(stream))
  }
  async function* read(messages: AsyncIterable<StoredMessage>): AsyncGenerator<StoredRun> {
    for await (const message of messages) {
      const record = recordIn(message)
      if (record) yield { sequence: message.sequence, bytes: message.data.length, record }
    }
  }
  return {
    stream,
    async *list(filter, start) {
      await demand()
      const from = typeof start === 'number' ? { first: start } : { since: start }
      yield* read(js.scan(stream, root + runFilter(filter), from))
    },
    async get(sequence) {
      await demand()
      const message = await js.nextFrom(stream, sequence, `${root}runs.>`, 'any replica')
      const record = message?.sequence === sequence ? recordIn(message) : undefined
      return record && message && { sequence, bytes: message.data.length, record }
    },
    async *follow(filter, after, signal) {
      await demand()
      yield* read(poll(js, stream, [root + runFilter(filter)], signal, after))
    },
    end: () => js.lastSequence(stream).catch(explained),
  }
}

const noRuns = (stream: string): string =>
  `there is no stream ${stream} here: a dispatcher makes it, unless FAIRLEAD_RUNS is off; or is this another NATS (--nats), or another --prefix?`

/** Returns the record in a message. Undefined: another program has stored the message. */
function recordIn({ data }: StoredMessage): RunRecord | undefined {
  try {
    const record = JSON.parse(Buffer.from(data).toString()) as Partial<RunRecord> | null
    const isRecord =
      typeof record?.id === 'string' && typeof record.reconciler === 'string' && Array.isArray(record.laps)
    return isRecord ? (record as RunRecord) : undefined
  } catch {
    return undefined
  }
}
