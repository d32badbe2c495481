import type { CloudEventV1 } from 'cloudevents'

/** A CloudEvent 1.0 as plain data; bytes that are neither JSON nor text are a Uint8Array in `data`. */
export type CloudEvent<T = unknown> = CloudEventV1<T>
