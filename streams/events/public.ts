import { DeliverPolicy, jetstream } from '@nats-io/jetstream'
import { type Binding, CloudEvent, type Message, type TransportFunction } from 'cloudevents'
import type { NatsConnection } from 'nats'
import type { KubeObject, ResourceRef } from '#contracts'
import { encodeHeaders } from '#nats'
import { doubling, retry, unlessAborted } from '#primitives'
import { PoisonEventError, type CloudEvent as ReadEvent } from './cloudevent.ts'
import { fromHttp, fromNats, toHttp, toNats } from './codec.ts'
import { verbOf } from './event.ts'
import { streamNames } from './stream.ts'
import { keyOf, objectFilter } from './subjects.ts'
import { type TriggerAnswer, triggerSubject } from './triggers.ts'

/**
 * A CloudEvent 1.0, as the package `cloudevents` has it: the constructor validates the event against the official
 * schema, and gives an event without `time` the present time.
 *
 * @example
 * import { CloudEvent } from 'fairlead/events'
 * const event = new CloudEvent({ source: '/orders', type: 'com.example.paid', data: { order: 7 } })
 * event.data?.order // => 7
 */
export { CloudEvent } from 'cloudevents'

/**
 * The NATS protocol binding of CloudEvents, in the form of the bindings of the package `cloudevents`. The headers of a
 * message are an object of texts, and its body is the payload.
 *
 * @example
 * import { CloudEvent, NATS } from 'fairlead/events'
 * const event = new CloudEvent({ source: '/orders', type: 'com.example.paid', data: { order: 7 } })
 * const { headers, body } = NATS.binary(event)
 * headers['ce-type'] // => 'com.example.paid'
 * const read = NATS.toEvent({ headers, body })
 * read instanceof CloudEvent && read.id === event.id // => true
 */
export const NATS: Binding = bindingOf(
  (event, mode) => {
    const { headers, data } = toNats(event, mode)
    return { headers, body: data }
  },
  ({ headers, body }) => fromNats({ headers: textsIn(headers), data: bytesOf(body) }),
)

/**
 * The HTTP protocol binding of CloudEvents. It differs from `HTTP` of the package `cloudevents`: it accepts the content
 * type with any parameters, keeps `false` and `0` as data, and rejects invalid events.
 *
 * @example
 * import { CloudEvent, HTTP } from 'fairlead/events'
 * const event = new CloudEvent({ source: '/lamp', type: 'com.example.switched', data: false })
 * const read = HTTP.toEvent<boolean>(HTTP.structured(event))
 * read instanceof CloudEvent && read.data // => false
 */
export const HTTP: Binding = bindingOf(toHttp, ({ headers, body }) => fromHttp({ headers, body: bytesOf(body) }))

/**
 * Returns a transport for `emitterFor` of the package `cloudevents` that publishes events to a subject. It resolves when
 * the server has the event; whether a stream stores the event is not known.
 *
 * @example
 * import { emitterFor } from 'cloudevents'
 * import { CloudEvent, NATS, natsTransport } from 'fairlead/events'
 * const sent: string[] = []
 * // Usually the result of `connect()` of @nats-io/transport-node.
 * const connection = { publish: (subject: string) => void sent.push(subject), flush: async () => {} }
 * const emit = emitterFor(natsTransport(connection, 'orders'), { binding: NATS })
 * await emit(new CloudEvent({ source: '/orders', type: 'com.example.paid' }))
 * sent // => ['orders']
 */
export function natsTransport(
  connection: Pick<NatsConnection, 'publish' | 'flush'>,
  subject: string,
): TransportFunction {
  return async ({ headers, body }) => {
    connection.publish(subject, bytesOf(body), { headers: encodeHeaders(textsIn(headers)) })
    await connection.flush()
  }
}

/**
 * Selects changes.
 *
 * @example
 * import { Pod } from 'fairlead'
 * import type { ChangesOptions } from 'fairlead/events'
 * const podsOfShop: ChangesOptions = { kinds: [Pod], namespace: 'shop' }
 * podsOfShop.namespace // => 'shop'
 */
export interface ChangesOptions {
  /** A kind such as `Pod`, or group, version and plural. Left out: all that bridges watch. */
  kinds?: readonly ResourceRef[] | undefined
  /** Left out: all namespaces. */
  namespace?: string | undefined
  /** Ends the iteration. */
  signal?: AbortSignal | undefined
  /** The prefix of the installation, as in FAIRLEAD_PREFIX. */
  prefix?: string | undefined
}

/**
 * Iterates over the last event of each selected object, then over every change, until the signal aborts. Needs the
 * permissions to read EVENTS (docs/events.md). Events `dev.fairlead.resource.moved` and messages that are no CloudEvent
 * are left out.
 *
 * @example
 * import { Pod } from 'fairlead'
 * import { changes } from 'fairlead/events'
 * const print = async (connection: Parameters<typeof changes>[0]) => {
 *   for await (const { type, data } of changes(connection, { kinds: [Pod], namespace: 'shop' }))
 *     console.log(type, data?.metadata.name)
 * }
 * print.length // => 1
 */
export async function* changes(
  connection: NatsConnection,
  { kinds = [], namespace, signal, prefix }: ChangesOptions,
): AsyncGenerator<CloudEvent<KubeObject>> {
  const { stream, root } = streamNames(prefix)
  const place = namespace === undefined ? {} : { namespace }
  const places = kinds.length === 0 ? [place] : kinds.map((ref) => ({ ref, ...place }))
  const consumer = await jetstream(connection).consumers.get(stream, {
    filter_subjects: places.map((one) => root + objectFilter(one)),
    deliver_policy: DeliverPolicy.LastPerSubject,
  })
  const messages = await consumer.consume()
  const stop = () => messages.stop()
  signal?.addEventListener('abort', stop)
  try {
    if (signal?.aborted) return
    for await (const { headers, data } of messages) {
      const texts = Object.fromEntries((headers?.keys() ?? []).map((name) => [name, headers?.get(name)]))
      const event = readable(() => NATS.toEvent<KubeObject>({ headers: texts, body: data }))
      const verb = event instanceof CloudEvent ? verbOf(event.type) : undefined
      if (verb !== undefined && verb !== 'moved') yield event as CloudEvent<KubeObject>
    }
  } finally {
    signal?.removeEventListener('abort', stop)
    stop()
  }
}

/**
 * Says which object is to run, and why. `namespace` is left out for an object without one; `cause` has 200 characters at
 * most.
 *
 * @example
 * import type { TriggerOptions } from 'fairlead/events'
 * const paid: TriggerOptions = { reconciler: 'order', namespace: 'shop', name: 'a7', cause: 'invoice 12 is paid' }
 * paid.name // => 'a7'
 */
export type TriggerOptions = {
  /** The name of the Reconciler. */
  reconciler: string
  /** Ends the attempts: the trigger may have been accepted or not. Left out: they go on until a bridge answers. */
  signal?: AbortSignal | undefined
  /** The prefix of the installation, as in FAIRLEAD_PREFIX. */
  prefix?: string | undefined
} & (
  | { namespace?: string | undefined; name: string; cause?: string | undefined; event?: never }
  | {
      /** The Reconciler declares in `trigger` where the event names the object. */
      event: CloudEvent<unknown>
      name?: never
    }
)

/**
 * Runs an object although nothing has changed in the cluster, because something outside has. After it resolves, a run
 * that starts later is certain, whichever process dies; `coalesced`: the object was queued already. The run is not given
 * the cause or the event: it reads its state as every run does, and its history shows the cause. Repeats the request
 * while no bridge answers or the limit of the Reconciler is reached, so an object may run once more than was asked.
 *
 * Throws a TriggerRefusedError if no Reconciler or object has this name, or the event names none, and the errors of the
 * client, such as that of a missing permission. Needs a user of NATS who may trigger the Reconciler (docs/events.md).
 *
 * @example
 * import { trigger } from 'fairlead/events'
 * const paid = (connection: Parameters<typeof trigger>[0], order: string) =>
 *   trigger(connection, { reconciler: 'order', namespace: 'shop', name: order, signal: AbortSignal.timeout(10_000) })
 * paid.length // => 2
 */
export function trigger(connection: NatsConnection, options: TriggerOptions): Promise<'queued' | 'coalesced'> {
  const { reconciler, signal, prefix } = options
  const { root } = streamNames(prefix)
  const { subject, headers, body } = messageOf(root, reconciler, options)
  const ask = async () => {
    const sent = { timeout: ANSWER_MS, headers: encodeHeaders(textsIn(headers)) }
    const message = await unlessAborted(connection.request(subject, bytesOf(body), sent), signal)
    const answer = message.json<TriggerAnswer>()
    if ('result' in answer) return answer.result
    if ('refused' in answer) throw new TriggerRefusedError(answer.refused)
    throw new BusyError(answer.againMs)
  }
  const nextDelay = doubling(FIRST_RETRY_MS, LAST_RETRY_MS)
  const pauseMs = (error: unknown) => {
    if (error instanceof BusyError) return error.againMs
    return isUnanswered(error) ? nextDelay() : undefined
  }
  return retry(ask, { signal, pauseMs })
}

/**
 * Thrown by `trigger` for a trigger that causes no run, and would not if it were repeated. The message says why.
 *
 * @example
 * import { TriggerRefusedError } from 'fairlead/events'
 * new TriggerRefusedError('there is no Order shop/a7').name // => 'TriggerRefusedError'
 */
export class TriggerRefusedError extends Error {
  override readonly name = 'TriggerRefusedError'
}

class BusyError extends Error {
  readonly againMs: number

  constructor(againMs: number) {
    super('the limit of triggers is reached, or the bridge is starting')
    this.againMs = againMs
  }
}

const ANSWER_MS = 5000
const FIRST_RETRY_MS = 100
const LAST_RETRY_MS = 5000

/** Whether no bridge has answered. Compares names: the caller's client may be another copy of the package. */
const isUnanswered = (error: unknown): boolean =>
  error instanceof Error &&
  (error.name === 'TimeoutError' || (error.cause instanceof Error && error.cause.name === 'NoResponders'))

function messageOf(root: string, reconciler: string, options: TriggerOptions): Message & { subject: string } {
  if (options.event !== undefined) return { subject: triggerSubject(root, reconciler), ...NATS.binary(options.event) }
  const { namespace, name, cause = '' } = options
  return { subject: triggerSubject(root, reconciler, keyOf(namespace, name)), headers: {}, body: cause }
}

function bindingOf(
  write: (event: ReadEvent, mode: 'binary' | 'structured') => Message,
  read: (message: Message) => ReadEvent,
): Binding {
  return {
    binary: (event) => write(event, 'binary'),
    structured: (event) => write(event, 'structured'),
    // Without the schema: the codec has validated the event.
    toEvent: <T>(message: Message) => new CloudEvent(read(message) as ReadEvent<T>, false),
    isEvent: (message) => readable(() => read(message)) !== undefined,
  }
}

/** Undefined: the message is not a valid CloudEvent. */
function readable<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch (error) {
    if (error instanceof PoisonEventError) return undefined
    throw error
  }
}

/** Frameworks give the body of a request as text, as bytes, or as parsed JSON. */
function bytesOf(body: unknown): Uint8Array {
  if (body === undefined || body === null) return new Uint8Array()
  return body instanceof Uint8Array ? body : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
}

const textsIn = (headers: Message['headers']): Record<string, string> =>
  Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) => (value === undefined ? [] : [[name, [value].flat()[0] ?? '']])),
  )
