export { type HelmOptions, helmFunctions } from './functions.ts'
