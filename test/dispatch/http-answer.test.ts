import { describe, expect, it } from 'vitest'
import { toHttp } from '#events'
import { type HttpAnswer, outcomeIn } from '../../dispatch/http-answer.ts'
import { HUNDRED_YEARS_S } from '../../reconcile/outcome.ts'

const now = new Date('2030-01-01T00:00:00Z')
const answer = (code: number, content: string | object = '', headers: HttpAnswer['headers'] = {}): HttpAnswer => {
  const body = Buffer.from(typeof content === 'string' ? content : JSON.stringify(content))
  const type = typeof content === 'string' ? {} : { 'content-type': 'application/json' }
  return { code, headers: { 'content-length': String(body.length), ...type, ...headers }, body }
}
const thrownBy = (one: HttpAnswer): unknown => {
  try {
    return outcomeIn(one, now)
  } catch (error) {
    return error
  }
}
const outcome = { status: { phase: 'DONE' } }
const event = (type: string) =>
  toHttp({ specversion: '1.0', id: '1', source: '/f', type, datacontenttype: 'application/json', data: outcome })

describe('an answer of a function over HTTP', () => {
  it.each([
    ['an outcome in binary mode', { code: 200, ...event('dev.fairlead.outcome') }],
    ['JSON without attributes', answer(200, outcome)],
  ])('is its outcome: %s', (_, { code, headers, body }) =>
    expect(outcomeIn({ code, headers, body: Buffer.from(body) }, now)).toEqual(outcome),
  )

  it.each([200, 201, 202, 204])('%d without a body asks for nothing', (code) =>
    expect(outcomeIn(answer(code), now)).toEqual({}),
  )

  it('that is to be asked for after the end of all time is asked for in a hundred years, in its own words', () => {
    const endless = { 'retry-after': '9'.repeat(400) }
    expect(thrownBy(answer(429, { reason: 'Wait', message: 'for ever' }, endless))).toMatchObject({
      name: 'RetryAfterError',
      message: 'for ever',
      afterSeconds: HUNDRED_YEARS_S,
    })
  })

  it('202 is never taken for an outcome', () => expect(outcomeIn(answer(202, outcome), now)).toEqual({}))

  it.each([
    ['another type', { code: 200, ...event('other') }, 'its type is other, not dev.fairlead.outcome'],
    ['no JSON', answer(200, '<html>'), 'no valid outcome'],
    ['a broken event', answer(200, '{}', { 'ce-specversion': '1.0' }), 'attribute id'],
  ])('200 that is no outcome is terminal: %s', (_, { code, headers, body }, message) =>
    expect(thrownBy({ code, headers, body: Buffer.from(body) })).toMatchObject({
      name: 'TerminalError',
      reason: 'InvalidOutcome',
      message: expect.stringContaining(message),
    }),
  )

  it.each([400, 401, 403, 405, 410, 413, 415, 422])('%d is terminal, with what it said', (code) =>
    expect(thrownBy(answer(code, 'no such thing'))).toMatchObject({
      name: 'TerminalError',
      reason: 'FunctionRefused',
      message: `the function answered ${code}: no such thing`,
    }),
  )

  it('has reason and message of the function itself where it gives them', () => {
    const said = { reason: 'InvalidSchedule', message: 'spec.schedule is no time' }
    expect(thrownBy(answer(422, said))).toMatchObject({ name: 'TerminalError', ...said })
    expect(thrownBy(answer(429, said, { 'retry-after': '7' }))).toMatchObject({
      name: 'RetryAfterError',
      afterSeconds: 7,
      ...said,
    })
    expect(thrownBy(answer(409, { reason: 'Conflict', message: 'moved' }))).toMatchObject({ name: 'ConflictError' })
  })

  it.each([404, 408, 409, 425, 429, 500, 501, 507, 301, 399])('%d is tried again, by backoff, and counts', (code) =>
    expect(thrownBy(answer(code, 'later'))).toMatchObject({
      name: 'FunctionError',
      isAway: false,
      afterSeconds: undefined,
      message: `the function answered ${code}: later`,
    }),
  )

  it.each([502, 503, 504])('%d is a function that is starting or away', (code) =>
    expect(thrownBy(answer(code))).toMatchObject({ name: 'FunctionError', isAway: true }),
  )

  it.each([
    ['12', 12],
    ['0', 0],
    ['Tue, 01 Jan 2030 00:00:30 GMT', 30],
    ['Mon, 31 Dec 2029 00:00:00 GMT', 0],
    ['soon', undefined],
  ])('Retry-After %s wins over backoff', (asked, afterSeconds) => {
    for (const code of [429, 503, 500, 404])
      expect(thrownBy(answer(code, '', { 'retry-after': asked }))).toMatchObject({ afterSeconds })
  })
})
