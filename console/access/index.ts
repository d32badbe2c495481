export {
  AccessUnknownError,
  type ClusterAccess,
  type ClusterAccessOptions,
  createClusterAccess,
} from './cluster-access.ts'
export type { About, Access, Action, Person, Refusal } from './types.ts'
