export {
  AccessUnknownError,
  type ClusterAccess,
  type ClusterAccessOptions,
  createClusterAccess,
} from './cluster-access.ts'
export { type LocalAccess, localAccess } from './local.ts'
export type { About, Access, Action, Person, RecordWrite, Refusal } from './types.ts'
export {
  TO_LIST_DEAD,
  TO_LIST_NAMESPACES,
  TO_LIST_RECONCILERS,
  TO_PUBLISH,
  TO_REPLAY_DEAD,
  toChangeQueue,
  toGet,
  toList,
} from './types.ts'
export { WriteRecord } from './write-record.ts'
