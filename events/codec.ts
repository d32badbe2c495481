/** The door for who needs CloudEvents and no NATS: a function behind HTTP starts with these few files alone. */

export type { CloudEvent } from './cloud-event.ts'
export { fromHttp, type HttpLimits, type HttpMessage, type ReceivedHttp, toHttp } from './http-codec.ts'
export type { ContentMode } from './modes.ts'
export { PoisonEventError, type PoisonReason } from './poison.ts'
