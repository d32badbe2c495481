export type { CloudEvent, ContentMode } from './cloudevent.ts'
export { PoisonEventError, type PoisonReason } from './cloudevent.ts'
export {
  fromHttp,
  fromNats,
  type HttpLimits,
  type HttpMessage,
  type NatsMessage,
  type ReceivedHttp,
  toHttp,
  toNats,
} from './codec.ts'
export type { Cursor, Finalized, StoredCursor } from './cursors.ts'
export {
  CODES,
  type DeadLetter,
  type DeadLetters,
  type DeadLettersOptions,
  type DeadMessage,
  type DeadReason,
  deadKey,
  keyIn,
  openDeadLetters,
} from './dead-letters.ts'
export {
  asReference,
  asTravelling,
  IncompleteObjectError,
  MAX_OBJECT_BYTES,
  type ObjectEventInput,
  objectEvent,
  type Publication,
  publicationOf,
  type Span,
  spanAfter,
  type TravelRules,
  traceparentOf,
} from './event.ts'
export { FIRST_READ_BYTES } from './pages.ts'
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
export { openEventStore, referenceRule } from './store.ts'
export { boundCluster, streamNames, WrongClusterError } from './stream.ts'
export {
  childrenFilter,
  cursorSubject,
  decodeSubjectPart,
  encodeSubjectPart,
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
  SubjectError,
  type SubjectParts,
  shownKey,
} from './subjects.ts'
export { acceptTriggers, type TakeTrigger, type Trigger, type TriggerAnswer } from './triggers.ts'
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
  RelatedQuery,
  Selection,
  StoredEvent,
  StoredEventReport,
  StoredObject,
  Verb,
  View,
} from './types.ts'
export {
  addUsage,
  declareUsage,
  HOURS_KEPT_DAYS,
  NO_USAGE,
  NoUsageError,
  OTHER,
  type PeriodUsage,
  startOf,
  USAGE_FIELDS,
  type Usage,
  type UsageOf,
  type UsageOptions,
  type UsagePeriod,
  type UsageRow,
  UsageRows,
  type UsageView,
  type UsageWriter,
  usageWriter,
  viewUsage,
} from './usage.ts'
export { compareVersions, isPresent } from './version-conflict.ts'
export { type EventsView, NoEventsError, viewEvents } from './view.ts'
