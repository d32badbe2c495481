export {
  describe,
  dieBecause,
  EXIT,
  exitCodeOf,
  IgnoredSignalError,
  IncompatibleError,
  showsStacks,
  UsageError,
} from './exit.ts'
export { endInTime, untilStopped } from './signals.ts'
export { duration, oneLine, table } from './table.ts'
export { harmless } from './terminal.ts'
