/** The part of a pino logger that functions and every room use: object first, constant message. */
export interface RunLog {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}
