import { describe, expect, it } from 'vitest'
import { toHttp } from '#events'
import { type HttpAnswer, type Question, returnedIn } from '../../dispatch/http/http-answer.ts'
import { HUNDRED_YEARS_S } from '../../reconcile/outcome.ts'

const now = new Date('2030-01-01T00:00:00Z')
const answer = (code: number, content: string | object = '', headers: HttpAnswer['headers'] = {}): HttpAnswer => {
  const body = Buffer.from(typeof content === 'string' ? content : JSON.stringify(content))
  const type = typeof content === 'string' ? {} : { 'content-type': 'application/json' }
  return { code, headers: { 'content-length': String(body.length), ...type, ...headers }, body }
}
const asked: Question = { name: 'shops', ask: 'reconcile', finalizing: false, now }
/** What `serve` adds to each answer. */
const own = { 'fairlead-function': 'shops' }
const thrownBy = (one: HttpAnswer, question = asked): unknown => {
  try {
    return returnedIn(one, question)
  } catch (error) {
    return error
  }
}
const outcome = { status: { phase: 'DONE' } }
const eventOf = (data: object, type = 'dev.fairlead.outcome') =>
  toHttp({ specversion: '1.0', id: '1', source: '/f', type, datacontenttype: 'application/json', data })

describe('an answer of a function over HTTP', () => {
  it.each([
    ['an outcome in binary mode', { code: 200, ...eventOf(outcome) }],
    ['JSON without attributes', answer(200, outcome)],
  ])('is its outcome: %s', (_, { code, headers, body }) =>
    expect(returnedIn({ code, headers, body: Buffer.from(body) }, asked)).toEqual(outcome),
  )

  it.each([200, 201, 204])(
    '%d without a body asks for nothing if the function has signed it, and is of no function otherwise',
    (code) => {
      expect(returnedIn(answer(code, '', own), asked)).toEqual({})
      const untyped = { 'ce-specversion': '1.0' }
      for (const given of [answer(code), answer(code, '', untyped)])
        expect(thrownBy(given)).toMatchObject({
          name: 'FunctionError',
          isAway: true,
          message: expect.stringContaining('fairlead-function: shops'),
        })
    },
  )

  it('without a sign that is {} asks for nothing', () => expect(returnedIn(answer(200, {}), asked)).toEqual({}))

  it('that is to be asked for after the end of all time is asked for in a hundred years, in its own words', () => {
    const endless = { 'retry-after': '9'.repeat(400) }
    expect(thrownBy(answer(429, { reason: 'Wait', message: 'for ever' }, { ...own, ...endless }))).toMatchObject({
      name: 'RetryAfterError',
      message: 'for ever',
      afterSeconds: HUNDRED_YEARS_S,
    })
  })

  it.each([answer(202), answer(202, outcome), answer(202, outcome, own)])(
    '202 says that the request was accepted, not what the function decided: it is called again',
    (accepted) =>
      expect(thrownBy(accepted)).toMatchObject({
        name: 'FunctionError',
        isAway: false,
        message: expect.stringContaining('Broker'),
      }),
  )

  it.each([
    ['204', answer(204)],
    ['200 without a body', answer(200)],
    ['200 with JSON alone', answer(200, {})],
    ['202', answer(202)],
  ])('without a sign of the function never ends finalizing: %s', (_, unsigned) =>
    expect(thrownBy(unsigned, { ...asked, finalizing: true })).toMatchObject({ name: 'FunctionError' }),
  )

  it.each([
    ['204 with the header', { ...answer(204, '', own) }],
    ['200 with the header and JSON alone', { ...answer(200, {}, own) }],
    ['an outcome as a CloudEvent', { code: 200, ...eventOf({}) }],
  ])('that identifies itself may end finalizing: %s', (_, { code, headers, body }) =>
    expect(returnedIn({ code, headers, body: Buffer.from(body) }, { ...asked, finalizing: true })).toEqual({}),
  )

  it('of the server of another function is not taken, whatever it says', () => {
    for (const code of [200, 204, 422])
      expect(thrownBy(answer(code, {}, { 'fairlead-function': 'carts' }))).toMatchObject({
        name: 'FunctionError',
        isAway: true,
        message: expect.stringContaining('serves carts, not shops'),
      })
  })

  it.each([
    ['another type', { code: 200, ...eventOf(outcome, 'other') }, 'its type is other, not dev.fairlead.outcome'],
    ['no JSON', answer(200, '<html>'), 'no valid outcome'],
    ['JSON of somebody else', answer(200, { error: 'no healthy upstream' }), 'no valid outcome'],
    ['a broken event', answer(200, '{}', { 'ce-specversion': '1.0' }), 'attribute id'],
  ])('200 that is no outcome is terminal only if the function has signed it: %s', (_, given, message) => {
    const { code, headers, body } = given
    const unsigned = { code, headers, body: Buffer.from(body) }
    expect(thrownBy(unsigned)).toMatchObject({ name: 'FunctionError', message: expect.stringContaining(message) })
    expect(thrownBy({ ...unsigned, headers: { ...headers, ...own } })).toMatchObject({
      name: 'TerminalError',
      reason: 'InvalidOutcome',
      message: expect.stringContaining(message),
    })
  })

  it('that is too large is terminal only if the function has signed it', () => {
    expect(thrownBy({ ...answer(200), isTooLarge: true })).toMatchObject({ name: 'FunctionError' })
    expect(thrownBy({ ...answer(200, '', own), isTooLarge: true })).toMatchObject({
      name: 'TerminalError',
      reason: 'AnswerTooLarge',
    })
  })

  it.each([
    [400, 'bare', answer(400, 'no such thing')],
    [422, 'with reason and message, but unsigned', answer(422, { reason: 'Forbidden', message: 'no such thing' })],
    [422, 'signed, but without reason and message', answer(422, 'no such thing', own)],
    [413, 'of a proxy', answer(413, '<html>no such thing')],
  ])('%d is no refusal of the function: %s', (code, _, given) =>
    expect(thrownBy(given)).toMatchObject({
      name: 'FunctionError',
      isAway: false,
      message: expect.stringMatching(new RegExp(`the function answered ${code}: .*no such thing`)),
    }),
  )

  it.each([401, 403, 407])('%d of a proxy says that the function was not reached', (code) => {
    expect(thrownBy(answer(code, 'RBAC: access denied'))).toMatchObject({ name: 'FunctionError', isAway: true })
    expect(thrownBy(answer(code, 'no', own))).toMatchObject({ name: 'FunctionError', isAway: false })
  })

  it('has reason and message of the function itself where it gives and signs them', () => {
    const said = { reason: 'InvalidSchedule', message: 'spec.schedule is no time' }
    for (const code of [400, 401, 403, 410, 422])
      expect(thrownBy(answer(code, said, own))).toMatchObject({ name: 'TerminalError', ...said })
    expect(thrownBy(answer(429, said, { 'retry-after': '7', ...own }))).toMatchObject({
      name: 'RetryAfterError',
      afterSeconds: 7,
      ...said,
    })
    const moved = { reason: 'Conflict', message: 'moved' }
    expect(thrownBy(answer(409, moved, own))).toMatchObject({ name: 'ConflictError' })
    expect(thrownBy(answer(409, moved))).toMatchObject({ name: 'FunctionError' })
  })

  it('of a proxy puts nothing off for longer than an hour', () =>
    expect(thrownBy(answer(503, '', { 'retry-after': '86400' }))).toMatchObject({ afterSeconds: 3600 }))

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

describe('an answer to a read or an effect over HTTP', () => {
  const read: Question = { ...asked, ask: 'read' }
  const perform: Question = { ...asked, ask: 'perform' }
  const event = (data: object, type: string) => {
    const { headers, body } = eventOf(data, type)
    return { code: 200, headers, body: Buffer.from(body) }
  }

  it.each<[what: string, question: Question, given: HttpAnswer, returned: unknown]>([
    ['a signed state', read, answer(200, { external: ['a'] }, own), ['a']],
    ['a signed state that is null', read, answer(200, { external: null }, own), null],
    ['a state in an event', read, event({ external: 1 }, 'dev.fairlead.external'), 1],
    ['a signed result', perform, answer(200, { result: { id: 7 } }, own), { id: 7 }],
    ['a result in an event', perform, event({ result: 7 }, 'dev.fairlead.result'), 7],
    ['a signed 204 to an effect', perform, answer(204, '', own), null],
  ])('is taken: %s', (_, question, given, returned) => expect(returnedIn(given, question)).toEqual(returned))

  it.each<[what: string, question: Question, given: HttpAnswer, error: object]>([
    ['a page of a proxy', read, answer(200, { external: [] }), { name: 'FunctionError' }],
    ['a 204 of a proxy', perform, answer(204), { name: 'FunctionError' }],
    ['a 204 to a read', read, answer(204, '', own), { name: 'TerminalError', reason: 'InvalidAnswer' }],
    ['an outcome', read, event({ external: 1 }, 'dev.fairlead.outcome'), { name: 'FunctionError' }],
    ['no envelope', perform, answer(200, { id: 7 }, own), { reason: 'InvalidAnswer' }],
    [
      'a refusal in its own words',
      perform,
      answer(422, { reason: 'NoZone', message: 'no' }, own),
      { reason: 'NoZone' },
    ],
    ['503', perform, answer(503), { name: 'FunctionError', isAway: true }],
  ])('is an error: %s', (_, question, given, error) => expect(thrownBy(given, question)).toMatchObject(error))
})
