export { APPLY_TYPE } from './caller.ts'
export {
  createKubeClient,
  createKubeClientOver,
  METADATA_ONLY,
  METADATA_ONLY_LIST,
  resourcePath,
  type ServedResource,
  servedResources,
} from './client.ts'
export { loadInCluster } from './credentials.ts'
export {
  ApiAnswerError,
  ApiConnectionError,
  ApiError,
  ApiPathError,
  ClusterAccessError,
  isAlreadyExists,
  isConflict,
  isExpired,
  isForbidden,
  isInvalid,
  isNotFound,
  isRetriable,
  isUnauthorized,
} from './errors.ts'
export { type ForeignKubeConfig, kubeConfigPaths, loadForeignKubeConfig, loadKubeConfig } from './kubeconfig.ts'
export { deadlineError, type HttpAnswer, type Transport } from './transport.ts'
export type {
  ApplyOptions,
  Bookmark,
  ClusterAccess,
  DeleteOptions,
  GetOptions,
  KubeClient,
  KubeClientOptions,
  KubeRequest,
  ListOptions,
  ListPage,
  PatchType,
  Query,
  RequestOptions,
  RequestReport,
  Status,
  StatusDetails,
  TextOptions,
  TokenSource,
  WatchEvent,
  WatchOptions,
  WriteOptions,
} from './types.ts'
export { endsInitialEvents } from './watch.ts'
