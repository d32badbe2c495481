export { createLogger } from './logging.ts'
