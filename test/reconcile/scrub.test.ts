import { hash } from 'node:crypto'
import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { scrubbedError } from '#contracts'
import { scrubber } from '../../reconcile/scrub.ts'

const base64 = (text: string) => Buffer.from(text).toString('base64')
const secret = (fields: object) => ({ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'name-of-it' }, ...fields })
const PEM = '-----BEGIN KEY-----\nMIIEvgIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n'

describe('a text scrubbed of what is confidential', () => {
  it.each([
    ['a value of a Secret', secret({ data: { a: base64('hunter22') } }), 'wrong: hunter22!', 'wrong: [confidential]!'],
    ['in base64', secret({ data: { a: base64('hunter22') } }), `got ${base64('hunter22')}`, 'got [confidential]'],
    ['that is about to be written', secret({ stringData: { a: 'hunter22' } }), 'a=hunter22', 'a=[confidential]'],
    ['in its base64', secret({ stringData: { a: 'hunter22' } }), base64('hunter22'), '[confidential]'],
    [
      'a number where a text should be',
      secret({ stringData: { a: 12345678 } }),
      'got {12345678}',
      'got {[confidential]}',
    ],
    ['quoted', secret({ stringData: { a: 'he said "yes"' } }), 'is "he said \\"yes\\""', 'is "[confidential]"'],
    [
      'in a URL',
      secret({ stringData: { a: 'p@ss/word é' } }),
      'connect postgres://u:p%40ss%2Fword%20%C3%A9@db',
      'connect postgres://u:[confidential]@db',
    ],
    ['that is no whole text', secret({ stringData: { a: 'half \ud800' } }), 'is half \ud800', 'is [confidential]'],
    [
      'cut off',
      secret({ stringData: { a: 'x'.repeat(16) + 'yz'.repeat(50) } }),
      `is ${'x'.repeat(16)}yzyz…`,
      'is [confidential]…',
    ],
    ['one line of several', secret({ stringData: { a: PEM } }), 'bad: hkiG9w0BAQEFAASC', 'bad: [confidential]'],
    ['more than once', secret({ stringData: { a: 'hunter22' } }), 'hunter22 hunter22', '[confidential] [confidential]'],
    [
      'a text or number anywhere in another kind',
      { apiVersion: 'x/v1', kind: 'Vault', metadata: {}, spec: { users: [{ pin: 123456 }, { word: 'hunter22' }] } },
      'hunter22 has 123456',
      '[confidential] has [confidential]',
    ],
  ])('has no value: %s', (_, object, text, scrubbed) => expect(scrubber([object])(text)).toBe(scrubbed))

  it('keeps names, types and what is too short to be told apart from any other text', () => {
    const scrub = scrubber([secret({ type: 'Opaque', data: { key: base64('abc') } })])
    expect(scrub('Secret name-of-it of type Opaque: key abc')).toBe('Secret name-of-it of type Opaque: key abc')
  })

  it.each([
    ['a hash', 'hunter22', `is ${hash('sha256', 'hunter22')}`],
    ['a user and a password together in base64', 'hunter22', `Basic ${base64('u:hunter22')}`],
    ['a part, such as the password in a URL', 'postgres://u:hunter22@db', 'password hunter22 is wrong'],
    ['the end of a long one', `${'x'.repeat(16)}hunter22`, 'ends with hunter22'],
    ['another encoding', 'hunter22', Buffer.from('hunter22').toString('hex')],
    ['a URL that escapes fewer characters', 'p@ss&word', new URL('http://u:p%40ss&word@db').href],
  ])('keeps, as the guarantees name it, of a value: %s', (_, value, text) =>
    expect(scrubber([secret({ stringData: { a: value } })])(text)).toBe(text),
  )

  it('has of two values the longer one whole', () => {
    const scrub = scrubber([secret({ stringData: { a: 'hunter22', b: 'hunter22-and-more' } })])
    expect(scrub('hunter22-and-more hunter22')).toBe('[confidential] [confidential]')
  })
})

it('shows of an error its texts, scrubbed, with those of its causes', () => {
  const cause = new TypeError('hunter22 is no number')
  const error = Object.assign(new Error('cannot use hunter22', { cause }), { details: { value: 'hunter22' } })
  const shown = scrubbedError(error, scrubber([secret({ stringData: { a: 'hunter22' } })]))
  expect(shown).toMatchObject({
    name: 'Error',
    message: 'cannot use [confidential]',
    cause: { name: 'TypeError', message: '[confidential] is no number' },
  })
  expect(inspect(shown, { showHidden: true })).not.toContain('hunter22')
})
