/** The exports for code that needs CloudEvents without NATS: an HTTP function loads only these few files. */

export type { CloudEvent, ContentMode } from './cloudevent.ts'
export { PoisonEventError, type PoisonReason } from './cloudevent.ts'
export { fromHttp, type HttpLimits, type HttpMessage, type ReceivedHttp, toHttp } from './http-codec.ts'
