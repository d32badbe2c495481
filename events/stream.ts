import { declareStream, isWrongSequence, type JetStream, UNLIMITED } from '#jetstream'
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

/** Returns the number of replicas that the stream has after that. */
export async function declareEvents(
  js: JetStream,
  { stream, root }: StreamNames,
  { replicas, raiseReplicas }: { replicas?: 1 | 3; raiseReplicas?: boolean },
): Promise<number> {
  const config: Parameters<typeof declareStream>[1] = {
    name: stream,
    subjects: ROLES.map((role) => `${root}${role}.>`),
    retention: 'limits',
    storage: 'file',
    discard: 'old',
    max_msgs_per_subject: 1,
    ...UNLIMITED,
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
