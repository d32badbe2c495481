import { ConflictError, type Outcome, RetryAfterError, TerminalError } from '#contracts'
import { type CloudEvent, fromHttp, PoisonEventError } from '#events'
import { FunctionError, HUNDRED_YEARS_S } from '#reconcile'

/** What a function over HTTP said, read to its end. */
export interface HttpAnswer {
  code: number
  headers: Record<string, string | string[] | undefined>
  body: Buffer
}

const OUTCOME_TYPE = 'dev.fairlead.outcome'

/** The same may be taken later (Knative data plane: 404 is a route that is not there yet, 409 "in progress"). */
const PASSING = new Set([404, 408, 409, 425, 429])
/** What proxies say of a function that is starting, stopping or away: no word of its own. */
const AWAY = new Set([502, 503, 504])
const LONGEST_QUOTE = 1000

/**
 * The outcome in an answer, still to be checked; throws what its status stands for. Reason and message are the
 * function's own where it gives them, as `{"reason":…,"message":…}`.
 */
export function outcomeIn(answer: HttpAnswer, now: Date): Outcome {
  const { code } = answer
  if (code === 202 || code === 204) return {}
  if (code >= 200 && code < 300) return outcomeOf(answer)
  const said = reportIn(answer)
  const message = `the function answered ${code}${said.message === '' ? '' : `: ${said.message}`}`
  if (code === 409 && said.reason === 'Conflict') throw new ConflictError(message)
  if (code < 500 && code >= 400 && !PASSING.has(code))
    throw new TerminalError(said.reason === undefined ? message : said.message, {
      reason: said.reason ?? 'FunctionRefused',
    })
  const afterSeconds = retryAfter(answer, now)
  if (afterSeconds !== undefined && said.reason !== undefined)
    throw new RetryAfterError(said.message, { afterSeconds, reason: said.reason })
  throw new FunctionError(message, { afterSeconds, isAway: AWAY.has(code) })
}

/** Where neither says how long it is, the end of the connection is its end: also where the server was killed. */
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

function outcomeOf(answer: HttpAnswer): Outcome {
  const { headers, body } = answer
  if (mayBePart(answer))
    throw new FunctionError('the answer broke off, or should have a content-length', { isAway: true })
  if (body.length === 0) return {}
  const event = eventIn(headers, body)
  if (event.type !== OUTCOME_TYPE) throw invalid(`its type is ${event.type}, not ${OUTCOME_TYPE}`)
  return event.data as Outcome
}

/** JSON without any attribute is taken for the data of an outcome: the least that a function can answer. */
function eventIn(headers: HttpAnswer['headers'], body: Buffer): Pick<CloudEvent, 'type' | 'data'> {
  try {
    if (
      headers['ce-specversion'] !== undefined ||
      String(headers['content-type']).startsWith('application/cloudevents')
    )
      return fromHttp({ headers, body })
    return { type: OUTCOME_TYPE, data: JSON.parse(body.toString()) as unknown }
  } catch (cause) {
    if (cause instanceof PoisonEventError || cause instanceof SyntaxError) throw invalid(cause.message, cause)
    throw cause
  }
}

const invalid = (why: string, cause?: unknown): TerminalError =>
  new TerminalError(`the function answered with no valid outcome: ${why}`, { reason: 'InvalidOutcome', cause })

function reportIn({ headers, body }: HttpAnswer): { reason?: string; message: string } {
  const text = body.toString().trim().slice(0, LONGEST_QUOTE)
  if (!String(headers['content-type']).includes('json')) return { message: text }
  try {
    const { reason, message } = JSON.parse(body.toString()) as { reason?: unknown; message?: unknown }
    if (typeof message !== 'string') return { message: text }
    return typeof reason === 'string' ? { reason, message } : { message }
  } catch {
    return { message: text }
  }
}

/** Seconds, or an HTTP date (RFC 9110 §10.2.3). */
function retryAfter({ headers }: HttpAnswer, now: Date): number | undefined {
  const asked = String(headers['retry-after'] ?? '').trim()
  if (/^\d+$/.test(asked)) return Math.min(Number(asked), HUNDRED_YEARS_S)
  const at = Date.parse(asked)
  return Number.isNaN(at) ? undefined : Math.max(0, (at - now.getTime()) / 1000)
}
