import {
  ConflictError,
  inBase64,
  notePlace,
  placeOf,
  RetryAfterError,
  type RunContext,
  type RunLog,
  type Scrub,
  scrubbedError,
  scrubberOfValues,
  TerminalError,
  withoutConfidential,
  withPlace,
} from '#contracts'
import { type ConfigValue, isSecretValue } from '#spec'
import type { External } from './definition.ts'

/** The configuration in one call of an external system. */
export interface CallConfig {
  config: (name: string) => string
  /** Removes secret values from each line. */
  log: RunLog
  /** Returns an error of the call without secret values, and with the same consequence. */
  withoutSecrets: (error: unknown) => unknown
  /** Throws a TerminalError for an answer that has a secret value. */
  demandWithoutSecrets: (answer: unknown, what: string) => void
}

/** A shorter value may be in an answer by chance: a user name, for example. */
const SHORTEST_IN_ANSWER = 16

/**
 * Returns the values that the function has declared, and what keeps the secret ones among them in its call. `names`: see
 * scrubberOfValues().
 */
export function configOf(
  reconciler: string,
  declared: External['config'] = [],
  { config: given = {}, log }: Pick<RunContext, 'config' | 'log'>,
  names: () => Iterable<string>,
): CallConfig {
  const secrets = (declared as ConfigValue[]).filter(isSecretValue).flatMap(({ name }) => {
    const value = given[name]
    return value === undefined ? [] : [{ name, value }]
  })
  const config = (name: string): string => {
    if (!declared.some((one) => one.name === name))
      throw new TerminalError(
        `reconciler ${reconciler} asks for config "${name}": add it to "config" of its "external"`,
        {
          reason: 'UndeclaredConfig',
        },
      )
    const value = given[name]
    if (value === undefined)
      throw new Error(`the Reconciler ${reconciler} does not declare config "${name}" yet: install the function again`)
    return value
  }
  if (secrets.length === 0)
    return { config, log, withoutSecrets: (error) => error, demandWithoutSecrets: () => undefined }
  const values = secrets.flatMap(({ value }) => [value, inBase64(value)])
  const scrub = scrubberOfValues(values, names)
  return {
    config,
    log: scrubbedLog(log, scrub),
    withoutSecrets: (error) => withoutSecrets(error, scrub),
    demandWithoutSecrets(answer, what) {
      const text = JSON.stringify(answer)
      const found = secrets.find(({ value }) => value.length >= SHORTEST_IN_ANSWER && hasValue(text, value))
      if (found === undefined) return
      throw new TerminalError(`${what} has the secret value of config "${found.name}": leave it out`, {
        reason: 'SecretReturned',
      })
    },
  }
}

const hasValue = (json: string, value: string): boolean =>
  [value, inBase64(value)].some((one) => json.includes(JSON.stringify(one).slice(1, -1)))

/** Keeps the class that decides when the run is repeated. An error may have a request with its headers: only texts stay. */
function withoutSecrets(error: unknown, scrub: Scrub): unknown {
  const place = placeOf(withPlace(error))
  const shown = scrubbedError(error, scrub)
  const { message, cause } = shown
  const options = { ...(cause !== undefined && { cause }) }
  const kept =
    error instanceof TerminalError
      ? new TerminalError(message, { ...options, reason: scrub(error.reason) })
      : error instanceof RetryAfterError
        ? new RetryAfterError(message, { ...options, afterSeconds: error.afterSeconds, reason: scrub(error.reason) })
        : error instanceof ConflictError
          ? new ConflictError(message, options)
          : shown
  if (shown.stack !== undefined) kept.stack = shown.stack
  if (place !== undefined) notePlace(kept, place)
  return kept
}

function scrubbedLog(log: RunLog, scrub: Scrub): RunLog {
  const told =
    (level: keyof RunLog): RunLog[typeof level] =>
    (fields, message) =>
      log[level](scrubbedFields(fields, scrub), scrub(message))
  return { debug: told('debug'), info: told('info'), warn: told('warn'), error: told('error') }
}

function scrubbedFields(fields: object, scrub: Scrub): object {
  try {
    return JSON.parse(JSON.stringify({ ...fields }, textsOfErrors), withoutConfidential(scrub)) as object
  } catch {
    return { withoutFields: true }
  }
}

function textsOfErrors(_: string, value: unknown): unknown {
  if (typeof value === 'bigint') return String(value)
  return value instanceof Error ? { type: value.name, message: value.message, stack: value.stack } : value
}
