import { DiscardPolicy, RetentionPolicy, StorageType } from '@nats-io/jetstream'
import type { RunLog } from '#contracts'
import {
  declareStream,
  ERR,
  findStream,
  isPassing,
  isWrongSequence,
  type JetStream,
  JetStreamError,
  UNLIMITED,
} from '#nats'
import { doubling, retry } from '#primitives'
import { parseJson } from './cloudevent.ts'

/** Thrown if the stream, or the cluster's name, belongs to another installation, so that nothing can be stored here. */
export class WrongClusterError extends Error {
  override readonly name = 'WrongClusterError'
}

/** The names of one installation in a NATS account. */
export interface StreamNames {
  stream: string
  /** The beginning of every subject: empty, or `<prefix>.`. */
  root: string
}

/** The first parts of the stream's subjects. */
const ROLES = ['k8s', 'cursor']
const DUPLICATE_WINDOW_NS = 120e9
const NO_LIMIT = { discard: DiscardPolicy.Old, max_bytes: -1 }
/** A message that always exists. It names the cluster. Published again, it is behind everything confirmed so far. */
export const ANCHOR = 'cursor._'
export const MARK = `${ANCHOR}.mark`

export function streamNames(prefix = '', name: 'EVENTS' | 'RUNS' | 'USAGE' = 'EVENTS'): StreamNames {
  if (prefix === '') return { stream: name, root: '' }
  if (!/^[A-Za-z0-9-]+$/.test(prefix))
    throw new TypeError(`prefix ${JSON.stringify(prefix)} cannot name a stream: letters, digits and - only`)
  return { stream: `${prefix}_${name}`, root: `${prefix}.` }
}

/** Whether a message of the stream can have this subject. */
export const isIn = ({ root }: StreamNames, subject: string): boolean =>
  ROLES.some((role) => subject.startsWith(`${root}${role}.`)) && !/[\s\p{Cc}*>]/u.test(subject)

export interface EventsTerms {
  replicas?: 1 | 3
  raiseReplicas?: boolean
  /** See EventStoreOptions. */
  maxBytes?: number
}

/**
 * Declares the stream and returns its number of replicas afterwards. At its size limit the stream refuses new messages
 * (discard new), so a limit never drops messages, and the space that EVENTS does not take is left for WORK.
 */
export async function declareEvents(
  js: JetStream,
  { stream, root }: StreamNames,
  { replicas, raiseReplicas, maxBytes }: EventsTerms,
): Promise<number> {
  const found = await findStream(js, stream)
  const limit = maxBytes ?? (found?.discard === 'new' ? found.max_bytes : undefined)
  const limits = limit === undefined ? NO_LIMIT : { discard: DiscardPolicy.New, max_bytes: limit }
  if (found && maxBytes !== undefined && (found.discard !== limits.discard || found.max_bytes !== maxBytes))
    await js.admin.streams.update(stream, limits)
  const config: Parameters<typeof declareStream>[1] = {
    name: stream,
    subjects: ROLES.map((role) => `${root}${role}.>`),
    retention: RetentionPolicy.Limits,
    storage: StorageType.File,
    max_msgs_per_subject: 1,
    ...UNLIMITED,
    ...limits,
    allow_direct: true,
    allow_msg_ttl: true,
    duplicate_window: DUPLICATE_WINDOW_NS,
    ...(replicas === undefined ? undefined : { num_replicas: replicas }),
  }
  return (await declareStream(js, config, { raiseReplicas })).num_replicas
}

/**
 * Throws WrongClusterError if the stream holds the objects of another cluster, because resourceVersions of two clusters
 * do not compare.
 */
export async function bindToCluster(
  js: JetStream,
  { stream, root }: StreamNames,
  cluster: string,
  persistence: Persistence,
): Promise<void> {
  try {
    await persist(() => js.publish(root + ANCHOR, anchor(cluster), { [EXPECTED]: 0 }), persistence)
  } catch (error) {
    if (!isWrongSequence(error)) throw error
    const bound = await persist(() => boundCluster(js, { stream, root }), persistence)
    if (bound !== cluster)
      throw new WrongClusterError(
        `stream ${stream} has the objects of cluster ${JSON.stringify(bound)}, not of ${cluster}: ` +
          'choose another prefix, or delete the stream if that cluster is gone',
        { cause: error },
      )
  }
}

/** Returns the cluster whose objects the stream holds. Undefined: none yet. */
export async function boundCluster(js: JetStream, { stream, root }: StreamNames): Promise<unknown> {
  const message = await js.lastOf(stream, root + ANCHOR)
  return message && (parseJson(Buffer.from(message.data).toString()) as { cluster?: unknown }).cluster
}

/** Publishes the anchor again. Returns its sequence, which is behind everything confirmed so far. */
export async function publishAnchor(
  js: JetStream,
  { root }: StreamNames,
  cluster: string,
  persistence: Persistence,
): Promise<number> {
  return (await persist(() => js.publish(root + ANCHOR, anchor(cluster), {}), persistence)).sequence
}

export const EXPECTED = 'Nats-Expected-Last-Subject-Sequence'

const anchor = (cluster: string): string => JSON.stringify({ cluster })

export interface Persistence {
  signal?: AbortSignal
  log: RunLog
}

const FIRST_PAUSE_MS = 25
const LONGEST_PAUSE_MS = 1000
/** Of a publish that meets another one to its subject: a few milliseconds, if the replicas keep up. */
const [FIRST_IN_FLIGHT_MS, LONGEST_IN_FLIGHT_MS] = [2, 128]

/**
 * Repeats a request until the server has given a definite answer, or the signal aborts. The request must be safe to
 * repeat.
 */
export function persist<T>(request: () => Promise<T>, { signal, log }: Persistence): Promise<T> {
  const nextPause = doubling(FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
  const nextInFlight = doubling(FIRST_IN_FLIGHT_MS, LONGEST_IN_FLIGHT_MS)
  const pauseMs = (error: unknown): number | undefined => {
    if (isInFlight(error)) return nextInFlight()
    if (!isPassing(error)) return undefined
    const ms = nextPause()
    if (ms === LONGEST_PAUSE_MS) log.warn({ err: error }, 'JetStream gives no definite answer, trying again')
    return ms
  }
  return retry(request, { signal, pauseMs })
}

/** Whether another publish to the same subject is under way, on a stream with replicas. */
const isInFlight = (error: unknown): boolean => error instanceof JetStreamError && error.errCode === ERR.publishInFlight
