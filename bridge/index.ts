export { createBridge } from './bridge.ts'
export type { FailureKind } from './failure.ts'
export { troubles } from './health.ts'
export { type OrphanedKeysOptions, sweepOrphanedKeys } from './orphaned-keys.ts'
export type {
  Bridge,
  BridgeObserver,
  BridgeOptions,
  BridgeStatus,
  Echo,
  OrphanStatus,
  RelistReport,
  ResourceStatus,
  SeenChange,
} from './types.ts'
export type { Relist } from './watch-state.ts'
