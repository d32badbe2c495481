export { type FunctionsChart, functionsChart } from './functions.ts'
export { platformChart } from './platform.ts'
