export { type CommonOptions, type Config, readConfig, variablesOf } from './config.ts'
