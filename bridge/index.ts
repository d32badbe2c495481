export { createBridge } from './bridge.ts'
export { troubles } from './health.ts'
export { createOrphanedKeySweeper, type OrphanedKeysOptions } from './orphaned-keys.ts'
export type {
  Bridge,
  BridgeDeps,
  BridgeObserver,
  BridgeStatus,
  ChangeTracer,
  DeclaredReconciler,
  Echo,
  OrphanStatus,
  OwnWrites,
  RelistReport,
  ResourceStatus,
  SeenChange,
} from './types.ts'
export type { FailureKind, Relist } from './watch-state.ts'
