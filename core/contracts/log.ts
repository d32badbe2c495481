/**
 * A logger like pino: fields first, then a constant message. Each line has the fields `reconciler`, `key`, `attempt`
 * and `traceId`.
 *
 * @example
 * import type { RunLog } from 'fairlead'
 * const lines: string[] = []
 * const log: RunLog = { debug() {}, info: (_, message) => void lines.push(message), warn() {}, error() {} }
 * log.info({ size: 3 }, 'the cluster grows')
 * lines // => ['the cluster grows']
 */
export interface RunLog {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

/** Returns the same log with these fields in each line. */
export const withFields = (log: RunLog, fields: object): RunLog => ({
  debug: (more, message) => log.debug({ ...fields, ...more }, message),
  info: (more, message) => log.info({ ...fields, ...more }, message),
  warn: (more, message) => log.warn({ ...fields, ...more }, message),
  error: (more, message) => log.error({ ...fields, ...more }, message),
})
