import type { RunLog } from '#contracts'

/** The same log with these fields in each line. */
export const withFields = (log: RunLog, fields: object): RunLog => ({
  debug: (more, message) => log.debug({ ...fields, ...more }, message),
  info: (more, message) => log.info({ ...fields, ...more }, message),
  warn: (more, message) => log.warn({ ...fields, ...more }, message),
  error: (more, message) => log.error({ ...fields, ...more }, message),
})
