export { createKubeClient } from './client.ts'
export { type ServedResource, servedResources } from './discovery.ts'
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
export { loadInCluster } from './in-cluster.ts'
export { kubeConfigPaths, loadKubeConfig } from './kubeconfig.ts'
export { METADATA_ONLY, METADATA_ONLY_LIST } from './metadata-only.ts'
export { resourcePath } from './paths.ts'
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
