export { type OperatorOptions, type RunningOperators, runOperators } from './operators.ts'
