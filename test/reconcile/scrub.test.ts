import { hash } from 'node:crypto'
import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { publicNames, scrubbedError, scrubberOfValues } from '#contracts'
import { shownOutcome } from '../../dispatch/dry-run/dry-run.ts'
import { scrubber } from '../../reconcile/scrub.ts'
import { child, widget } from '../dispatch/objects.ts'
import { randomFrom } from '../support/random.ts'
import { widgets } from './driver.ts'

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

it('keeps the object of an act in the outcome of a dry run', () => {
  const owned = [child('Secret', 'key', { data: { user: base64('web-0') } })]
  const on = child('Pod', 'web-0')
  const { act, effect } = shownOutcome(
    {
      act: [{ act: 'Evict', on }],
      effect: { kind: 'login', text: 'as web-0 for Widget default/w' },
    },
    { object: widget(), owned: { 'Secret.v1': owned }, related: {} } as never,
    widgets(),
  )
  expect(act).toMatchObject([{ on: { kind: 'Pod', metadata: { name: 'web-0' } } }])
  expect(effect).toEqual({ kind: 'login', text: 'as [confidential] for Widget default/w' })
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

describe('a public name in a text', () => {
  const kinds = [
    { group: 'tenant.example.dev', version: 'v1', resource: 'tenantdatabases', kind: 'TenantDatabase' },
    { group: 'apps', version: 'v1', resource: 'deployments', kind: 'Deployment' },
  ]
  const object = (kind: string, name: string) => ({ apiVersion: 'x/v1', kind, metadata: { name, namespace: 'shop' } })
  const scrubbed = (value: string, text: string, ...names: string[]) => {
    const objects = ['tenant-a', ...names].map((name) => object('TenantDatabase', name))
    return scrubberOfValues([value], () => publicNames('tenant-databases', kinds, objects))(text)
  }

  it.each([
    ['that of the Reconciler', 'tenant', 'reconciler tenant-databases asks for config'],
    ['that of a kind', 'Tenant', 'the kind TenantDatabase is not served'],
    ['that of a resource', 'tenant', 'tenantdatabases.tenant.example.dev is forbidden'],
    ['that of an object', 'tenant', 'cannot reach tenant-a, nor tenant-a.shop.svc'],
    ['one that begins with that of the object', 'tenant', 'Deployment shop/tenant-a-web: no quota'],
    ['a namespace, before a name', 'shop', 'Deployment shop/web and TenantDatabase shop/tenant-a'],
    ['a kind, before a name', 'Deployment', 'Deployment shop/web: no quota'],
    ['in JSON', 'tenant', '{"name":"tenant-a","on":["tenant-a"]}'],
  ])('keeps a value that is a part of it: %s', (_, value, text) => expect(scrubbed(value, text)).toBe(text))

  it('keeps a value that is the name of an object where its kind or namespace is before it', () => {
    const text = 'TenantDatabase shop/tenant, so shop/tenant:'
    expect(scrubbed('tenant', `${text} no user tenant`, 'tenant')).toBe(`${text} no user [confidential]`)
  })

  it.each([
    'jobs.batch "tenant-a-schema-3" is forbidden: exceeded quota',
    'waits for Job tenant-a-schema-3, Deployment tenant-a-app',
    'deployments.apps "tenant-a" is forbidden: exceeded quota',
    'Deployment.apps "tenant-a" is invalid: spec.replicas',
    'waits for Deployment tenant-a. TenantDatabase tenant-a: {"on":"Deployment \\"tenant-a\\""}',
  ])('keeps a value that is the name of its object where the text names an object: %s', (text) =>
    expect(scrubbed('tenant-a', text)).toBe(text),
  )

  it.each([
    ['of no object', 'hunter22', 'Job hunter22-x', 'Job [confidential]-x'],
    [
      'in a URL',
      'tenant-a',
      'postgres://tenant-a-x:y@db/tenant-a-x',
      'postgres://[confidential]-x:y@db/[confidential]-x',
    ],
    ['with a password behind it', 'tenant-a', 'is tenant-a-x:y', 'is [confidential]-x:y'],
    ['behind a kind of others', 'tenant-a', 'Account tenant-a', 'Account [confidential]'],
    ['behind a piece of a kind', 'tenant-a', 'MyDeployment tenant-a', 'MyDeployment [confidential]'],
    ['behind a kind, with a password', 'tenant-a', 'Deployment tenant-a:y', 'Deployment [confidential]:y'],
    ['behind a kind, of no object', 'hunter22', 'Deployment "hunter22"', 'Deployment "[confidential]"'],
    ['in a longer value', 'tenant-a-key', 'is tenant-a-key-2', 'is [confidential]-2'],
    ['behind another word', 'tenant-a', 'is my-tenant-a-x', 'is my-[confidential]-x'],
  ])('hides a value elsewhere: %s', (_, value, text, shown) => expect(scrubbed(value, text)).toBe(shown))

  it('hides a value that begins with the name of an object, which is hidden then', () => {
    const names = () => ['acme']
    expect(scrubberOfValues(['acme', 'acme-key-9'], names)('is acme-key-9')).toBe('is [confidential]')
  })

  it.each([
    ['alone', 'tenant', 'no user tenant', 'no user [confidential]'],
    ['in a URL', 'tenant', 'postgres://tenant:x@tenant-a/db', 'postgres://[confidential]:x@tenant-a/db'],
    ['that is a whole name', 'tenant-a', 'no user tenant-a', 'no user [confidential]'],
    ['that is longer than the name in it', 'tenant-a:hunter22', 'is tenant-a:hunter22', 'is [confidential]'],
    ['that is partly in a name', 'a-hunter22', 'is tenant-a-hunter22', 'is tenant-[confidential]'],
    ['in a part of a longer word', 'tenant', 'tenant-ab mytenant-a', '[confidential]-ab my[confidential]-a'],
    ['in a piece of a name', 'tenant', 'tenant-', '[confidential]-'],
  ])('hides no value elsewhere: %s', (_, value, text, shown) => expect(scrubbed(value, text)).toBe(shown))

  it.each(['hunter22', 'x-hunter22', 'hunter22-x', 'x.hunter22.y', 'hunter2', 'a'.repeat(250)])(
    'makes no Secret readable that somebody guesses as a name: %s',
    (name) => {
      const text = 'hunter22: "hunter22" u:hunter22@db /hunter22/ x hunter22 y'
      expect(scrubbed('hunter22', text, name)).not.toContain('hunter22')
    },
  )

  it('is the only place where a value is left, whatever texts, names and values are', () => {
    // Always the same texts: where a text is masked in several ways, the parts that are left can be found in other places too.
    const random = randomFrom(1)
    const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T
    const parts = ['ab', 'abc', 'b', 'bca', 'cab', '-', '-', '.', '/']
    const made = (most: number) => Array.from({ length: 1 + Math.floor(random() * most) }, () => pick(parts)).join('')
    for (let round = 0; round < 3000; round++) {
      const values = Array.from({ length: 3 }, () => made(3)).filter(({ length }) => length >= 4 && length <= 16)
      const names = Array.from({ length: 3 }, () => made(5))
      const text = Array.from({ length: 6 }, () => pick([...values, ...names, made(3), ' ', ':'])).join('')
      const shown = scrubberOfValues(values, () => names)(text)
      const inNames = names.flatMap((name) => spans(text, name))
      let at = 0
      for (const left of shown.split('[confidential]')) {
        const start = text.indexOf(left, at)
        at = start + left.length
        for (const value of values)
          for (const [from, to] of spans(left, value).map((span) => span.map((one) => start + one) as [number, number]))
            expect(
              inNames.some(([begin, end]) => begin <= from && to <= end && end - begin > to - from) ||
                (names.includes(value) && /^-[a-z]/.test(text.slice(to))),
              `${value} of ${text} in ${shown}, where the names are ${names.join(', ')}`,
            ).toBe(true)
      }
    }
  })
})

const spans = (text: string, part: string): [number, number][] => {
  const found: [number, number][] = []
  for (let at = text.indexOf(part); at !== -1; at = text.indexOf(part, at + 1)) found.push([at, at + part.length])
  return found
}

describe('the stack of an error', () => {
  const HERE = import.meta.filename
  const shownStack = (value: string, message: string, frames: readonly string[]) => {
    const error = new Error(message)
    error.stack = `Error: ${message}\n${frames.map((frame) => `    at ${frame}`).join('\n')}`
    return scrubbedError(error, scrubberOfValues([value])).stack
  }

  it('keeps the paths of files that exist, and no other part of a frame', () => {
    const frames = [`scrub (${HERE}:1:2)`, `async file://${HERE}?v=scrub:3:4`, `${HERE}:5:6`]
    expect(shownStack('scrub', 'no scrub', frames)?.split('\n')).toEqual([
      'Error: no [confidential]',
      `    at [confidential] (${HERE}:1:2)`,
      `    at async file://${HERE}?v=[confidential]:3:4`,
      `    at ${HERE}:5:6`,
    ])
  })

  it.each([
    `${HERE}/../hunter22.ts:1:1`,
    `file:///hunter22/..${HERE}:1:1`,
    `x (/hunter22${HERE}:1:1)`,
    `hunter22 (${HERE}:1:1)`,
    `/hunter22:1:1`,
  ])('has no value in a line of its message that looks like a frame: %s', (frame) =>
    expect(shownStack('hunter22', `x\n    at ${frame}`, [])).not.toContain('hunter22'),
  )
})
