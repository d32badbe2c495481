export type { LastOfEach, PageFrom } from './batches.ts'
export { type ConnectOptions, connectJetStream, JetStream, NatsUnreachableError, type PublishAck } from './client.ts'
export { copyStream } from './copy.ts'
export {
  DeclarationMismatchError,
  declareConsumer,
  declareStream,
  findConsumer,
  findStream,
  mayBeReplicated,
  removeConsumer,
  UNLIMITED,
} from './declare.ts'
export {
  ConnectionClosedError,
  ERR,
  isPassing,
  isUnanswered,
  isWrongSequence,
  JetStreamError,
  UnknownOutcomeError,
} from './errors.ts'
export { type FollowOptions, follow, poll } from './follow.ts'
export type { Delivery, StoredMessage } from './messages.ts'
export { encodeHeaders, type Headers } from './messages.ts'
export type { Outbox } from './mux.ts'
export { Puller, type PullOptions } from './pull.ts'
export { incarnationOf, type MarkedStream, StreamLostError, Watermark } from './watermark.ts'
