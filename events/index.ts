export type { CloudEvent } from './cloud-event.ts'
export type { Cursor, Finalized, StoredCursor } from './cursors.ts'
export { type DeadLetters, type DeadLettersOptions, openDeadLetters } from './dead.ts'
export { CODES, type DeadLetter, type DeadMessage, type DeadReason, deadKey, keyIn } from './dead-letter.ts'
export { asReference, asTravelling, IncompleteObjectError, type ObjectEventInput, objectEvent } from './event.ts'
export { fromHttp, type HttpLimits, type HttpMessage, type ReceivedHttp, toHttp } from './http-codec.ts'
export type { ContentMode } from './modes.ts'
export { fromNats, type NatsMessage, toNats } from './nats-codec.ts'
export { FIRST_READ_BYTES } from './pages.ts'
export { PoisonEventError, type PoisonReason } from './poison.ts'
export { MAX_OBJECT_BYTES, type Publication, publicationOf, type TravelRules } from './publication.ts'
export { referenceRule } from './references.ts'
export {
  declareRuns,
  NoRunsError,
  type RunSender,
  type RunsFilter,
  type RunsOptions,
  type RunsView,
  runSender,
  type StoredRun,
  viewRuns,
} from './runs.ts'
export type { RelatedQuery, Selection } from './selection.ts'
export { openEventStore } from './store.ts'
export { WrongClusterError } from './stream.ts'
export { decodeSubjectPart, encodeSubjectPart, SubjectError } from './subject-part.ts'
export {
  childrenFilter,
  cursorSubject,
  identityFilter,
  isKey,
  keyOf,
  NO_OWNER,
  type ObjectFilter,
  type ObjectKey,
  type OwnerKey,
  objectFilter,
  objectSubject,
  ownerPart,
  parseCursorSubject,
  parseKey,
  parseObjectSubject,
  parseOwner,
  type SubjectParts,
  shownKey,
} from './subjects.ts'
export { type Span, spanAfter, traceparentOf } from './trace.ts'
export type {
  Allowance,
  EventStore,
  EventStoreOptions,
  Identity,
  ObjectEvent,
  Observed,
  ObserveQuery,
  PutOptions,
  PutResult,
  StoredEvent,
  StoredObject,
  Verb,
  View,
} from './types.ts'
export { compareVersions, isPresent } from './version-conflict.ts'
export { type EventsView, NoEventsError, viewEvents } from './view.ts'
