import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { expanded, isTrue, secondsOf } from '../../packages/helm/go.ts'
import { readWatches } from '../../packages/helm/watches.ts'

let dir: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-watches-'))
})
afterAll(() => rm(dir, { recursive: true, force: true }))

const NGINX = '- {group: demo.example.com, version: v1, kind: Nginx, chart: helm-charts/nginx'
async function read(text: string) {
  const file = join(dir, 'watches.yaml')
  await writeFile(file, text)
  return readWatches(file)
}
const message = async (text: string) =>
  read(text).then(
    () => 'was read',
    ({ message }: Error) => message.replace(`${dir}/`, ''),
  )

describe('a watches.yaml', () => {
  it('has entries with the folder of their chart', async () => {
    expect(await read(`${NGINX}}`)).toEqual([
      {
        group: 'demo.example.com',
        version: 'v1',
        kind: 'Nginx',
        chart: join(dir, 'helm-charts/nginx'),
        overrides: {},
        selector: undefined,
        periodSeconds: undefined,
        concurrency: undefined,
      },
    ])
  })

  it.each([
    ['watchDependentResources: true', {}],
    ['overrideValues: {image.tag: "$TAG"}', { overrides: { 'image.tag': '$TAG' } }],
    ['reconcilePeriod: 1m30s', { periodSeconds: 90 }],
    ['reconcilePeriod: 0s', { periodSeconds: undefined }],
    ['maxConcurrentReconciles: 7', { concurrency: 7 }],
    ['selector: {matchLabels: {tier: web, zone: a}}', { selector: 'tier=web,zone=a' }],
    ['selector: {matchExpressions: [{key: a, operator: In, values: [x, y]}]}', { selector: 'a in (x, y)' }],
    ['selector: {matchExpressions: [{key: a, operator: NotIn, values: [x]}]}', { selector: 'a notin (x)' }],
    ['selector: {matchExpressions: [{key: a, operator: Exists}]}', { selector: 'a' }],
    ['selector: {matchLabels: {b: c}, matchExpressions: [{key: a, operator: DoesNotExist}]}', { selector: 'b=c,!a' }],
    ['selector: {}', { selector: undefined }],
  ])('may have %s', async (field, expected) => {
    expect((await read(`${NGINX}, ${field}}`))[0]).toMatchObject(expected)
  })

  it.each([
    ['dryRunOption: server', '[0].dryRunOption: rendering reads no cluster'],
    ['watchDependentResources: false', '[0].watchDependentResources: objects of a release are always watched'],
    ['reconcilePeriod: 1 minute', '[0].reconcilePeriod: write a duration of Go'],
    ['overrideValues: {replicas: 3}', '[0].overrideValues.replicas: expected string, received number'],
    ['selector: {matchFields: {}}', '[0].selector has matchFields, which is not offered'],
    ['snakeCaseParameters: true', '[0] has snakeCaseParameters, which is not offered'],
    ['maxConcurrentReconciles: 0', '[0].maxConcurrentReconciles: '],
  ])('is refused with %s, which the error names', async (field, expected) => {
    expect(await message(`${NGINX}, ${field}}`)).toContain(`watches.yaml: ${expected}`)
  })

  it.each([
    ['- {group: a.b, version: v1, kind: Nginx}', '[0].chart: '],
    ['- {group: a.b, version: v1, chart: x}', '[0].kind: '],
    ['- {group: a.b, kind: Nginx, chart: x}', '[0].version: '],
    [`${NGINX}}\n${NGINX}}`, '[1] watches demo.example.com/v1 Nginx again, as [0] does: remove one of them'],
    ['[]', 'the file: '],
    ['a: [', 'Flow sequence'],
  ])('is refused if it is %j', async (text, expected) => {
    expect(await message(text)).toContain(`watches.yaml: ${expected}`)
  })
})

describe('texts are read as Go reads them', () => {
  it.each([
    ['1m', 60],
    ['1h2m3.5s', 3723.5],
    ['500ms', 0.5],
    ['0', 0],
    ['.5s', 0.5],
    ['10', undefined],
    ['-1m', undefined],
    ['1 m', undefined],
    ['', undefined],
  ])('the duration %j', (text, seconds) => expect(secondsOf(text)).toBe(seconds))

  it.each(['1', 't', 'T', 'true', 'TRUE', 'True'])('%s is true', (text) => expect(isTrue(text)).toBe(true))
  it.each(['0', 'f', 'false', 'yes', 'tRUE', '', undefined])('%s is not', (text) => expect(isTrue(text)).toBe(false))

  it.each([
    ['$A-${B}', 'one-two'],
    ['$UNSET${UNSET}.', '.'],
    ['5$', '5$'],
    ['a$/b', 'a$/b'],
    ['${}x', 'x'],
    ['${A', 'A'],
    ['$1A', 'A'],
    ['$A_', ''],
  ])('variables in %j', (text, expected) => expect(expanded(text, { A: 'one', B: 'two' })).toBe(expected))
})
