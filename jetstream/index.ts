export { type BatchLast, JetStream, type PublishAck } from './client.ts'
export { type ConnectOptions, connectJetStream, NatsUnreachableError } from './connect.ts'
export {
  DeclarationMismatchError,
  declareConsumer,
  declareStream,
  findConsumer,
  findStream,
  mayBeReplicated,
  UNLIMITED,
} from './declare.ts'
export { ConnectionClosedError, ERR, isWrongSequence, JetStreamError, UnknownOutcomeError } from './errors.ts'
export { type FollowOptions, follow } from './follow.ts'
export { encodeHeaders, type Headers } from './headers.ts'
export { incarnationOf, type Kept, StreamLostError } from './incarnation.ts'
export type { Delivery, StoredMessage } from './messages.ts'
export { Puller, type PullOptions } from './pull.ts'
