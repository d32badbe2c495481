/** The exports for code that needs CloudEvents without NATS: an HTTP function loads only these few files. */

export type { CloudEvent } from './cloud-event.ts'
export { fromHttp, type HttpLimits, type HttpMessage, type ReceivedHttp, toHttp } from './http-codec.ts'
export type { ContentMode } from './modes.ts'
export { PoisonEventError, type PoisonReason } from './poison.ts'
