import { DeliverPolicy, jetstream } from '@nats-io/jetstream'
import { type Binding, CloudEvent, type Message, type TransportFunction } from 'cloudevents'
import type { NatsConnection } from 'nats'
import type { KubeObject, ResourceRef } from '#contracts'
import { encodeHeaders } from '#nats'
import { PoisonEventError, type CloudEvent as ReadEvent } from './cloudevent.ts'
import { fromHttp, fromNats, toHttp, toNats } from './codec.ts'
import { verbOf } from './event.ts'
import { streamNames } from './stream.ts'
import { objectFilter } from './subjects.ts'

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
