import {
  ConflictError,
  EVENT_TYPES,
  FUNCTION_HEADER,
  notePlace,
  type Outcome,
  placeIn,
  RetryAfterError,
  TerminalError,
} from '#contracts'
import { fromHttp, PoisonEventError } from '#events'
import { FunctionError, HUNDRED_YEARS_S, parseOutcome } from '#reconcile'

/** An answer of a function over HTTP, read to its end. */
export interface HttpAnswer {
  code: number
  headers: Record<string, string | string[] | undefined>
  body: Buffer
  /** The body was too large and was not read. */
  isTooLarge?: boolean
}

/** The request that an answer belongs to. */
export interface Question {
  /** The name of the Reconciler, which its function has too. */
  name: string
  ask: keyof typeof EVENT_TYPES
  finalizing: boolean
  now: Date
}

/** Sufficient for all owned objects of one owner. */
export const MAX_ANSWER_BYTES = 32 * 1024 * 1024

/**
 * Codes after which the same request may succeed later (Knative data plane: 404 is a route that does not exist yet, 409
 * "in progress").
 */
const PASSING = new Set([404, 408, 409, 425, 429])
/** Codes of proxies for a function that is starting, stopping or away. */
const AWAY = new Set([502, 503, 504])
/** Codes of proxies for a caller that they reject. */
const KEPT_OUT = new Set([401, 403, 407])
/** The longest delay that is accepted from an answer without the function's header, which may come from a proxy. */
const LONGEST_UNSIGNED_WAIT_S = 3600
const LONGEST_QUOTE = 1000

/**
 * Returns the contents of an answer: the outcome, not validated, or the answer to `ask`. Throws the error that the
 * status stands for. Only an answer with the function's name in its header can end the retries or the finalizing of an
 * object.
 */
export function returnedIn(answer: HttpAnswer, question: Question): unknown {
  const isSigned = isSignedBy(question.name, answer)
  if (answer.isTooLarge) {
    const why = `the function's answer is larger than ${MAX_ANSWER_BYTES} bytes: return fewer or smaller objects`
    throw refusal(isSigned, 'AnswerTooLarge', why)
  }
  if (answer.code < 200 || answer.code >= 300) throw placedFailure(answer, isSigned, question)
  if (answer.code === 202)
    throw new FunctionError(
      'the function answered 202, which has no outcome: does spec.invoke.http.url lead to a Broker?',
      { isAway: false },
    )
  return question.ask === 'reconcile' ? outcomeOf(answer, isSigned, question) : externalOf(answer, isSigned, question)
}

function isSignedBy(name: string, { headers }: HttpAnswer): boolean {
  const answering = headers[FUNCTION_HEADER]
  if (answering === undefined || answering === name) return answering === name
  const other = String(answering).slice(0, LONGEST_QUOTE)
  throw new FunctionError(`the server serves ${other}, not ${name}: give the URL of ${name} in spec.invoke.http.url`, {
    isAway: true,
  })
}

/** Returns the error that the status stands for, with the place where the function has thrown it. */
function placedFailure(answer: HttpAnswer, isSigned: boolean, question: Question): Error {
  const report = reportIn(answer)
  const failure = failureIn(answer, report, isSigned, question)
  if (isSigned && report.place !== undefined) notePlace(failure, report.place)
  return failure
}

function failureIn(answer: HttpAnswer, { reason, message: said }: Report, isSigned: boolean, { now }: Question): Error {
  const { code } = answer
  const message = `the function answered ${code}${said === '' ? '' : `: ${said}`}`
  const afterSeconds = retryAfter(answer, now)
  if (!isSigned)
    return new FunctionError(message, {
      afterSeconds: afterSeconds && Math.min(afterSeconds, LONGEST_UNSIGNED_WAIT_S),
      isAway: AWAY.has(code) || KEPT_OUT.has(code),
    })
  if (reason !== undefined) {
    if (code === 409 && reason === 'Conflict') return new ConflictError(message)
    if (code < 500 && code >= 400 && !PASSING.has(code)) return new TerminalError(said, { reason })
    if (afterSeconds !== undefined) return new RetryAfterError(said, { afterSeconds, reason })
  }
  return new FunctionError(message, { afterSeconds, isAway: AWAY.has(code), isSigned: true })
}

/**
 * Whether the body may be incomplete. If no header gives its length, the end of the connection ends it, and a killed
 * server ends the connection too.
 */
function mayBePart({ headers, body }: HttpAnswer): boolean {
  const isMeasured = headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined
  return !isMeasured && !isJson(body)
}

function isJson(body: Buffer): boolean {
  try {
    JSON.parse(body.toString())
    return true
  } catch {
    return false
  }
}

/** Returns the contents of `{ external: … }` for a read, and of `{ result: … }` or an empty body for an effect. */
function externalOf(answer: HttpAnswer, isSigned: boolean, { name, ask }: Question): unknown {
  const { code, headers, body } = answer
  demandWhole(answer)
  // The answer of a proxy must not count as the state of the external system.
  if (!isSigned && !isCloudEvent(headers))
    throw new FunctionError(`the answer ${code} to ${ask} has no header ${FUNCTION_HEADER}: ${name}`, { isAway: false })
  const field = ask === 'read' ? 'external' : 'result'
  if (ask === 'perform' && (code === 204 || body.length === 0)) return null
  try {
    const data = dataIn(answer, ask) as Record<string, unknown> | null
    if (data?.[field] === undefined) throw new SyntaxError(`it has no "${field}"`)
    return data[field]
  } catch (cause) {
    if (!isWrongContent(cause)) throw cause
    throw refusal(isSigned, 'InvalidAnswer', `the function answered ${ask} with no valid JSON: ${cause.message}`, cause)
  }
}

/**
 * Returns the data of an answer. JSON without CloudEvents attributes counts as the data, so that simple functions need
 * no envelope.
 */
function dataIn({ headers, body }: HttpAnswer, ask: Question['ask']): unknown {
  if (!isCloudEvent(headers)) return JSON.parse(body.toString())
  const event = fromHttp({ headers, body })
  const { answer: expected } = EVENT_TYPES[ask]
  if (event.type !== expected) throw new SyntaxError(`its type is ${event.type}, not ${expected}`)
  return event.data
}

function demandWhole(answer: HttpAnswer): void {
  if (answer.code !== 204 && mayBePart(answer))
    throw new FunctionError('the answer broke off, or should have a content-length', { isAway: true })
}

function outcomeOf(answer: HttpAnswer, isSigned: boolean, { name, ask, finalizing }: Question): Outcome {
  const { code, headers, body } = answer
  demandWhole(answer)
  const isEmpty = code === 204 || body.length === 0
  // Proxies answer so too, for example during maintenance.
  if (isEmpty && !isSigned)
    throw new FunctionError(
      `an answer ${code} without a body and without the header ${FUNCTION_HEADER}: ${name} is not of the function: ` +
        'let the function set the header, or answer {}',
      { isAway: true },
    )
  const isEvent = isCloudEvent(headers)
  if (finalizing && !isSigned && !isEvent)
    throw new FunctionError(
      `the function answered ${code} to finalizing without the header ${FUNCTION_HEADER}: ${name}, so the finalizer stays`,
      { isAway: false },
    )
  if (isEmpty) return {}
  try {
    const data = dataIn(answer, ask) as Outcome
    return isEvent ? data : checked(data)
  } catch (cause) {
    if (!isWrongContent(cause)) throw cause
    const why =
      cause instanceof TerminalError ? cause.message : `the function answered with no valid outcome: ${cause.message}`
    throw refusal(isSigned, 'InvalidOutcome', why, cause)
  }
}

const isCloudEvent = (headers: HttpAnswer['headers']): boolean =>
  headers['ce-specversion'] !== undefined || String(headers['content-type']).startsWith('application/cloudevents')

function checked(outcome: Outcome): Outcome {
  parseOutcome(outcome)
  return outcome
}

const isWrongContent = (error: unknown): error is Error =>
  error instanceof PoisonEventError || error instanceof SyntaxError || error instanceof TerminalError

/** Returns a TerminalError only for an answer of the function itself. The answer of a proxy may change. */
const refusal = (isSigned: boolean, reason: string, message: string, cause?: Error): Error =>
  isSigned ? new TerminalError(message, { reason, cause }) : new FunctionError(message, { isAway: false, cause })

interface Report {
  reason?: string
  message: string
  place?: string | undefined
}

function reportIn({ headers, body }: HttpAnswer): Report {
  const text = body.toString().trim().slice(0, LONGEST_QUOTE)
  if (!String(headers['content-type']).includes('json')) return { message: text }
  try {
    const { reason, message, place } = JSON.parse(body.toString()) as Record<keyof Report, unknown>
    if (typeof message !== 'string') return { message: text }
    return { ...(typeof reason === 'string' && { reason }), message, place: placeIn(place) }
  } catch {
    return { message: text }
  }
}

/** Returns the delay in seconds, from seconds or an HTTP date (RFC 9110 §10.2.3). */
function retryAfter({ headers }: HttpAnswer, now: Date): number | undefined {
  const asked = String(headers['retry-after'] ?? '').trim()
  if (/^\d+$/.test(asked)) return Math.min(Number(asked), HUNDRED_YEARS_S)
  const at = Date.parse(asked)
  return Number.isNaN(at) ? undefined : Math.max(0, (at - now.getTime()) / 1000)
}
