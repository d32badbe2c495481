import { DiscardPolicy, RetentionPolicy, StorageType } from '@nats-io/jetstream'
import { declareStream, findStream, isWrongSequence, type JetStream, UNLIMITED } from '#jetstream'
import { parseJson } from './data.ts'
import { type Persistence, persist } from './persist.ts'

/** The stream, or the cluster's name, belongs to somebody else: nothing can be stored here. */
export class WrongClusterError extends Error {
  override readonly name = 'WrongClusterError'
}

/** Names of one installation in a NATS account. */
export interface StreamNames {
  stream: string
  /** Before every subject: empty, or `<prefix>.`. */
  root: string
}

/** With what the subjects begin. */
const ROLES = ['k8s', 'cursor']
const DUPLICATE_WINDOW_NS = 120e9
const NO_LIMIT = { discard: DiscardPolicy.Old, max_bytes: -1 }
/** One message that always exists: it names the cluster, and rewriting it marks a point in the stream's order. */
export const ANCHOR = 'cursor._'
export const MARK = `${ANCHOR}.mark`

export function streamNames(prefix = ''): StreamNames {
  if (prefix === '') return { stream: 'EVENTS', root: '' }
  if (!/^[A-Za-z0-9-]+$/.test(prefix))
    throw new TypeError(`prefix ${JSON.stringify(prefix)} cannot name a stream: letters, digits and - only`)
  return { stream: `${prefix}_EVENTS`, root: `${prefix}.` }
}

/** A subject that a message of the stream can have. */
export const isIn = ({ root }: StreamNames, subject: string): boolean =>
  ROLES.some((role) => subject.startsWith(`${root}${role}.`)) && !/[\s\p{Cc}*>]/u.test(subject)

export interface EventsTerms {
  replicas?: 1 | 3 | undefined
  raiseReplicas?: boolean | undefined
  /** See EventStoreOptions. */
  maxBytes?: number | undefined
}

/**
 * Returns the number of replicas that the stream has after that. With a limit the stream refuses what is beyond (discard
 * new), so that a limit never drops anything, and what EVENTS does not take is left for WORK.
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

/** Fails if the stream has the objects of another cluster: their resourceVersions do not compare with ours. */
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
    const message = await persist(() => js.lastOf(stream, root + ANCHOR), persistence)
    const bound = message && (parseJson(Buffer.from(message.data).toString()) as { cluster?: unknown }).cluster
    if (bound !== cluster)
      throw new WrongClusterError(
        `stream ${stream} has the objects of cluster ${JSON.stringify(bound)}, not of ${cluster}: ` +
          'choose another prefix, or delete the stream if that cluster is gone',
        { cause: error },
      )
  }
}

/** A place in the stream behind everything confirmed so far: its sequence. */
export async function markPlace(
  js: JetStream,
  { root }: StreamNames,
  cluster: string,
  persistence: Persistence,
): Promise<number> {
  return (await persist(() => js.publish(root + ANCHOR, anchor(cluster), {}), persistence)).sequence
}

export const EXPECTED = 'Nats-Expected-Last-Subject-Sequence'

const anchor = (cluster: string): string => JSON.stringify({ cluster })
