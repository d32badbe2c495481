import { z } from 'zod'
import { type FunctionInput, type Invoke, RetryAfterError, TerminalError } from '#contracts'
import { parseOutcome } from '#reconcile'
import { InvalidAnswerError, Program, type ProgramOptions } from './program.ts'

/** A program that decides instead of a function of this process. docs/adapters/executables.md has its protocol. */
export interface Executable {
  invoke: Invoke
  stop: () => Promise<void>
}

const MAX_MESSAGE_CHARS = 1000
/** Characters that some readers take for the end of a line, such as `readline` of Node.js. */
const LINE_ENDS = /[\u2028\u2029]/g

/** Throws a UsageError if the program cannot be found. */
export function executable(options: ProgramOptions): Executable {
  const program = new Program(options)
  let calls = 0
  const invoke: Invoke = async (input, context) => {
    if (input.object === null) return {}
    const id = options.lines ? ++calls : undefined
    const asked = JSON.stringify({ id, ...input }).replaceAll(LINE_ENDS, escaped)
    return program.call(asked, context, (printed) => returnedIn(answerIn(printed, id), input.ask))
  }
  return { invoke, stop: () => program.stop() }
}

const escaped = (character: string): string => `\\u${character.charCodeAt(0).toString(16)}`

const failure = z.strictObject({
  message: z.string(),
  reason: z.string().min(1).optional(),
  terminal: z.boolean().default(false),
  retryAfterSeconds: z.number().min(0).optional(),
})

/** Returns the JSON object of an output. Its text may have Secrets of the input, so that errors do not quote it. */
function answerIn(printed: Buffer, id: number | undefined): Record<string, unknown> {
  const text = textIn(printed)
  if (text.trim() === '') throw new InvalidAnswerError('the program printed nothing: print {} if nothing is to be done')
  let answer: unknown
  try {
    answer = JSON.parse(text)
  } catch {
    const expected =
      id === undefined ? 'one JSON object, and logs to stderr' : 'one line with a JSON object, and logs to stderr'
    throw new InvalidAnswerError(`the program printed ${text.length} characters that are no JSON: print ${expected}`)
  }
  if (typeof answer !== 'object' || answer === null || Array.isArray(answer))
    throw new InvalidAnswerError('the program printed JSON that is no object: print {} if nothing is to be done')
  const { id: answered, ...fields } = answer as Record<string, unknown>
  if (id !== undefined && answered !== id)
    throw new InvalidAnswerError('the program answered another call: give the answer the "id" of its call')
  return fields
}

/** Replacement characters would be written to the cluster in place of what the program has meant. */
function textIn(printed: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(printed)
  } catch {
    throw new InvalidAnswerError('the program printed bytes that are no UTF-8: set the encoding of its output')
  }
}

/** Returns the outcome, or the contents of the answer to `ask`. Throws the error that the program reports. */
function returnedIn({ error, ...answer }: Record<string, unknown>, ask: FunctionInput['ask']): unknown {
  if (error !== undefined) throw reported(error)
  if (ask === undefined) return parseOutcome(answer)
  const field = ask === 'read' ? 'external' : 'result'
  if (ask === 'read' && answer[field] === undefined)
    throw new InvalidAnswerError('the program answered "read" without "external": print { "external": … }')
  return answer[field] ?? null
}

function reported(error: unknown): Error {
  const { success, data, error: wrong } = failure.safeParse(error)
  if (!success) {
    const issues = wrong.issues.map(({ path, message }) => `${['error', ...path].join('.')}: ${message}`)
    return new InvalidAnswerError(`the program reported an error that is not valid: ${issues.join('; ')}`)
  }
  const { reason, terminal, retryAfterSeconds: afterSeconds } = data
  const message = data.message.slice(0, MAX_MESSAGE_CHARS)
  if (terminal) return new TerminalError(message, { ...(reason && { reason }) })
  if (afterSeconds !== undefined) return new RetryAfterError(message, { afterSeconds, ...(reason && { reason }) })
  return new Error(message)
}
