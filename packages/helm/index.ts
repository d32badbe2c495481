export { type Chart, readChart } from './chart.ts'
export { type HelmOptions, helmFunctions } from './functions.ts'
