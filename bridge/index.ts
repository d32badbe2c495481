export { createBridge } from './bridge.ts'
export type { FailureKind } from './failure.ts'
export { troubles } from './health.ts'
export { createOrphanedKeySweeper, type OrphanedKeysOptions } from './orphaned-keys.ts'
export type {
  Bridge,
  BridgeObserver,
  BridgeOptions,
  BridgeStatus,
  ChangeTracer,
  Echo,
  OrphanStatus,
  OwnWrites,
  RelistReport,
  ResourceStatus,
  SeenChange,
} from './types.ts'
export type { Relist } from './watch-state.ts'
