import type { FunctionInput, RunLog } from '#contracts'

/** One line that a function logged, as it was at that moment. */
export interface RunLine {
  at: Date
  level: 'info' | 'warn' | 'error'
  message: string
  /** JSON text. Undefined: the fields are too large, or are not JSON. */
  fields: string | undefined
}

/** The lines of a run. */
export interface Logged {
  lines: readonly RunLine[]
  /** The number of lines that were not kept. */
  omitted: number
  /** The inputs of the calls that have logged. Lines may quote their contents. */
  inputs: ReadonlySet<FunctionInput>
}

/** Limits for the lines of level info, and again for warnings and errors, so that many of one kind displace no other. */
const MOST_LINES = 50
const MOST_CHARS = 16 * 1024
const MOST_CHARS_OF_A_LINE = 4 * 1024

/**
 * Keeps the first lines that the functions of one run log, and passes each line on. Later lines are only counted, so
 * the cost of a run that logs without end is bounded.
 */
export class RunLines implements Logged {
  readonly lines: RunLine[] = []
  readonly inputs = new Set<FunctionInput>()
  omitted = 0
  readonly #rooms = {
    info: { lines: MOST_LINES, chars: MOST_CHARS },
    problems: { lines: MOST_LINES, chars: MOST_CHARS },
  }
  readonly #now: () => Date

  constructor(now: () => Date) {
    this.#now = now
  }

  /** Returns the log for one call of the function. Debug lines are passed on, and not kept. */
  around(log: RunLog, input: FunctionInput): RunLog {
    const kept =
      (level: RunLine['level']): RunLog[typeof level] =>
      (fields, message) => {
        log[level](fields, message)
        this.#keep(level, fields, message, input)
      }
    return {
      debug: (fields, message) => log.debug(fields, message),
      info: kept('info'),
      warn: kept('warn'),
      error: kept('error'),
    }
  }

  #keep(level: RunLine['level'], given: object, message: string, input: FunctionInput): void {
    const room = level === 'info' ? this.#rooms.info : this.#rooms.problems
    const most = Math.min(room.chars, MOST_CHARS_OF_A_LINE)
    if (room.lines === 0 || typeof message !== 'string' || message.length > most) {
      this.omitted++
      return
    }
    const fields = jsonWithin(given, most - message.length)
    room.lines--
    room.chars -= message.length + (fields?.length ?? 0)
    this.inputs.add(input)
    this.lines.push({ at: this.#now(), level, message, fields })
  }
}

/** Returns the value as JSON; undefined if that is longer, or impossible. Does not walk a large value to its end. */
function jsonWithin(value: object, most: number): string | undefined {
  let room = most
  try {
    const text = JSON.stringify({ ...value }, (name, one: unknown) => {
      room -= name.length + (typeof one === 'string' ? one.length : 1)
      if (room < 0) throw new RangeError('too large')
      if (one instanceof Error) return { type: one.name, message: one.message }
      return typeof one === 'bigint' ? String(one) : one
    })
    return text.length > most ? undefined : text
  } catch {
    return undefined
  }
}
