import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#sdk'
import { asDrawn, drawnIn, type RenderedObject, withoutDrawn } from '../../packages/helm/drawn.ts'

const DRAWN_FOR = 'helm.fairlead.dev/drawn-for'
const config = (name: string, data: object): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name },
  data,
})
const base64 = (text: string) => Buffer.from(text).toString('base64')
const secret = (name: string, data: Record<string, string>): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name },
  data: Object.fromEntries(Object.entries(data).map(([key, text]) => [key, base64(text)])),
})
const pod = (metadata: object, spec: object): KubeObject => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'a' },
  spec: { template: { metadata, spec } },
})
/** As a chart renders it: `first` is what is written where nothing exists. */
const rendered = (
  first: KubeObject,
  again: KubeObject,
  isKeyed = false,
  template = 'templates/a.yaml',
): RenderedObject => ({
  object: first,
  drawn: drawnIn(first, [again], isKeyed),
  template,
})
const written = (
  release: RenderedObject[],
  existing: KubeObject[],
  { before, isTakenOver = false }: { before?: string | undefined; isTakenOver?: boolean } = {},
) => {
  const find = ({ kind, metadata: { name } }: KubeObject) =>
    existing.find((one) => one.kind === kind && one.metadata.name === name)
  return release.map(asDrawn(release, { find, values: 'v', before, isTakenOver }))
}
const certificate = (text: string) => `-----BEGIN CERTIFICATE-----\n${text}\n-----END CERTIFICATE-----\n`

describe('what is drawn stays as it was drawn first', () => {
  it.each<[string, (drawn: string, other: string) => KubeObject]>([
    ['a text', (drawn) => config('a', { password: drawn })],
    ['a line of a text', (drawn, other) => config('a', { conf: `host: ${other}\npassword: ${drawn}\nport: 1\n` })],
    ['a line of a text in a Secret', (drawn, other) => secret('a', { conf: `[${other}]\npassword=${drawn}` })],
    ['a part of a line', (drawn, other) => config('a', { conf: `{"password":"${drawn}","host":"${other}"}` })],
    ['an argument', (drawn, other) => pod({}, { args: [`--host=${other}`, `--token=${drawn}`] })],
    ['the last of two alike', (drawn, other) => config('a', { conf: `a:\n  key: ${other}\nb:\n  key: ${drawn}` })],
    [
      'a variable',
      (drawn, other) =>
        pod(
          {},
          {
            env: [
              { name: 'A', value: other },
              { name: 'B', value: drawn },
            ],
          },
        ),
    ],
  ])('%s, and what is fixed beside it is as it is made now', (_, made) => {
    const before = made('9Zfirst', 'old')
    const [found] = written([rendered(made('3xSecond', 'new'), made('7yThird', 'new'))], [before])
    expect(found).toEqual(made('9Zfirst', 'new'))
  })

  it('a variable, although others have come before it', () => {
    const made = (drawn: string, ...others: object[]) => pod({}, { env: [...others, { name: 'B', value: drawn }] })
    const others = [
      { name: 'A', value: 'x' },
      { name: 'C', value: 'y' },
    ]
    const [found] = written([rendered(made('second', ...others), made('third', ...others))], [made('first')])
    expect(found).toEqual(made('first', ...others))
  })

  it('an argument, although others have come before it', () => {
    const made = (...args: string[]) => pod({}, { args })
    const release = [rendered(made('-v', '--token=second'), made('-v', '--token=third'))]
    expect(written(release, [made('--token=first')])).toEqual([made('-v', '--token=first')])
  })

  it('a certificate as a whole', () => {
    const made = (text: string) => config('a', { ca: certificate(text) })
    const release = [rendered(made('MIIB+second'), made('MIIB+third'))]
    expect(written(release, [made('MIIB+first\nmore')])).toEqual([made('MIIB+first\nmore')])
  })

  it('a text that begins in two renderings alike by chance', () => {
    const made = (drawn: string) => config('a', { password: drawn })
    expect(written([rendered(made('x/second'), made('x/third'))], [made('first')])).toEqual([made('first')])
  })

  it('a text as a whole if it is not clear where it was drawn', () => {
    const made = (...lines: string[]) => config('a', { conf: lines.join('\n') })
    const release = [rendered(made('key: second', 'key: fixed'), made('key: third', 'key: fixed'))]
    const before = made('key: first')
    expect(written(release, [before])).toEqual([before])
  })
})

describe('a drawn value that objects share', () => {
  const [made, again] = ['Second12', 'Third345'].map((password) => [
    secret('a', { password }),
    config('b', { password, url: `postgres://me:${password}@db` }),
  ])
  const release = [0, 1].map((index) => rendered(made?.[index] as KubeObject, again?.[index] as KubeObject))

  it('is taken from the one that exists, also as a part of a text', () => {
    const found = written(release, [secret('a', { password: 'First678' })])
    expect(found).toEqual([
      secret('a', { password: 'First678' }),
      config('b', { password: 'First678', url: 'postgres://me:First678@db' }),
    ])
    expect(written(release, [found[1] as KubeObject])).toEqual(found)
  })

  it('is one: nothing exists, and all is as it was made', () => {
    expect(written(release, [])).toEqual(made)
  })
})

describe('certificates of one template', () => {
  const pair = (text: string) => [
    secret('a', { 'tls.crt': certificate(`${text}A`) }),
    config('b', { ca: certificate(text) }),
  ]
  const [made, again] = [pair('second'), pair('third')]
  const release = [0, 1].map((index) => rendered(made[index] as KubeObject, again[index] as KubeObject))

  it('stay while all of them exist', () => expect(written(release, pair('first'))).toEqual(pair('first')))

  it('are drawn again together when one is lost, since they would not fit together', () =>
    expect(written(release, pair('first').slice(1))).toEqual(made))

  it('stay while what a former operator has made is taken over', () =>
    expect(written(release, pair('first').slice(1), { isTakenOver: true })[1]).toEqual(pair('first')[1]))

  it('leave a password beside them as it is', () => {
    const beside = rendered(config('c', { password: 'Second12' }), config('c', { password: 'Third345' }))
    const first = config('c', { password: 'First678' })
    expect(written([...release, beside], [first])[2]).toEqual(first)
  })
})

describe('what is drawn for values', () => {
  const hashed = (drawn: string, drawnFor?: string) => {
    const made = config('a', { hash: drawn })
    return drawnFor === undefined ? made : { ...made, metadata: { name: 'a', annotations: { [DRAWN_FOR]: drawnFor } } }
  }
  const release = [rendered(hashed('second'), hashed('third'), true)]

  it.each<[string, string | undefined, string | undefined, KubeObject]>([
    ['stays for the same values', 'v', undefined, hashed('first', 'v')],
    ['is drawn again for others, whatever the last release was', 'w', 'v', hashed('second', 'v')],
    ['stays as it is if another operator has drawn it', undefined, undefined, hashed('first')],
    ['stays as it is after that, for the same values', undefined, 'v', hashed('first')],
    ['is drawn again after that, for others', undefined, 'w', hashed('second', 'v')],
  ])('%s', (_, drawnFor, before, expected) =>
    expect(written(release, [hashed('first', drawnFor)], { before })).toEqual([expected]),
  )

  it('are annotations too, as the checksum of a Secret that restarts pods', () => {
    const made = (sum: string) => pod({ annotations: { 'checksum/auth': sum } }, {})
    const checked = [rendered(made('22ff'), made('33ff'))]
    const sums = (existing: KubeObject) =>
      written(checked, [existing]).map(({ spec }) => JSON.stringify(spec).match(/\w\wff/)?.[0])
    const before = (values: string): KubeObject => ({
      ...made('11ff'),
      metadata: { name: 'a', annotations: { [DRAWN_FOR]: values } },
    })
    expect([sums(before('v')), sums(before('w')), sums(made('11ff'))]).toEqual([['11ff'], ['22ff'], ['11ff']])
  })
})

it.each<[string, (drawn: string) => KubeObject, object | null]>([
  ['a text', (drawn) => config('a', { x: drawn }), { x: null }],
  ['lines', (drawn) => config('a', { x: `host: h\nkey: ${drawn}` }), { x: 'host: h' }],
  ['a certificate', (drawn) => config('a', { x: certificate(drawn) }), { x: null }],
])('without what is drawn, an object is the same in each rendering: %s', (_, made, data) => {
  const fixed = withoutDrawn(rendered(made('first'), made('second')))
  expect(fixed).toEqual({ ...config('a', {}), data })
  expect(withoutDrawn(rendered(made('third'), made('fourth')))).toEqual(fixed)
})
