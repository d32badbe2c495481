import { describe, expect, it, vi } from 'vitest'
import { notePlace, type RunRecord } from '#contracts'
import type { EndedRun, TrailWrite } from '#dispatch'
import { reconciled } from '#reconcile'
import { becauseOf, inputChanges, writesText } from '../../../cli/inspect/runs.ts'
import { type HistoryDeps, RunHistory } from '../../../cli/process/history.ts'
import { recordOf, sizeOf } from '../../../cli/process/run-record.ts'
import { configMap, endedRun, input, logged, round, secret, website } from './runs.ts'

const FACTS = { process: 'vm-1', cpuMs: 3 }
const CONFIG_MAPS = {
  group: '',
  version: 'v1',
  resource: 'configmaps',
  kind: 'ConfigMap',
  within: 'Namespace' as const,
}
const SECRETS = { ...CONFIG_MAPS, resource: 'secrets', kind: 'Secret' }
const isSecret = ({ resource }: { resource: string }) => resource === 'secrets'
const PASSWORD = 'correct-horse-battery'
const inBase64 = (text: string) => Buffer.from(text).toString('base64')
const { of: declaring } = endedRun()
/** Its Reconciler names no Secret, and no kind of FAIRLEAD_REFERENCE_ONLY. */
const undeclaring = reconciled('website', { ...declaring.spec, related: [] }, ({ resource }) =>
  ['secrets', 'vaults'].includes(resource),
)

describe('a record', () => {
  it('has who ran what, when, how it ended, and what it wrote with the difference', () => {
    const before = website('1', { status: { size: 1 } })
    const after = website('2', { status: { size: 2 } })
    const write = { verb: 'status' as const, object: before, before, after, patch: { size: 2 } }
    const finish = { kind: 'requeue' as const, at: new Date('2026-01-01T01:00:00Z') }
    const record = recordOf(
      endedRun({ finish, rounds: [round({ returned: { status: { size: 2 } }, writes: [write] })] }),
      FACTS,
    )
    expect(record).toMatchObject({
      id: 'run-1',
      reconciler: 'website',
      namespace: 'shop',
      name: 'hello',
      uid: 'u1',
      process: 'vm-1',
      lane: 'high',
      queuedAt: '2026-01-01T00:00:00.000Z',
      startedAt: '2026-01-01T00:00:01.000Z',
      endedAt: '2026-01-01T00:00:01.250Z',
      result: 'requeue_after',
      requeueAt: '2026-01-01T01:00:00.000Z',
      requests: 1,
      cpuMs: 3,
      leftOut: ['seed'],
    })
    expect(record.laps).toEqual([
      {
        input: {
          object: 'Website.v1.example.com shop/hello@1',
          owned: { 'ConfigMap.v1': [] },
          related: {},
          attempt: 0,
          now: '2026-01-01T00:00:00.000Z',
          finalizing: false,
        },
        outcome: { status: { size: 2 } },
        writes: [
          {
            verb: 'status',
            kind: 'Website',
            namespace: 'shop',
            name: 'hello',
            resourceVersion: '2',
            patch: { size: 2 },
          },
        ],
      },
    ])
    expect(record.objects).toEqual({ 'Website.v1.example.com shop/hello@1': website('1') })
  })

  it('counts writes as written, refused or unchanged', () => {
    const object = configMap('c', '7')
    const write = { verb: 'apply' as const, object, before: object, after: configMap('c', '8') }
    const writes = [write, { ...write, isUnchanged: true }, { ...write, after: undefined, failed: new Error('no') }]
    const record = recordOf(endedRun({ rounds: [round({ writes })] }), { process: 'vm-1', cpuMs: undefined })
    expect(record.laps[0]?.writes.map(({ error, unchanged }) => error ?? unchanged)).toEqual([undefined, true, 'no'])
    expect([record.requests, writesText(record)]).toEqual([3, '1 (1 refused, 1 unchanged)'])
  })

  it('has an object once, however many decisions have seen it', () => {
    const owned = { 'ConfigMap.v1': [configMap('a', '3')] }
    const rounds = [round({ input: input({ owned }) }), round({ input: input({ owned, attempt: 0 }) })]
    expect(Object.keys(recordOf(endedRun({ rounds }), FACTS).objects ?? {})).toHaveLength(2)
  })

  it('has neither the seed nor anything of a Secret: not its values, not a copy, not in a message, not in what is made of it', () => {
    const given = secret(PASSWORD)
    const made = {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'made' },
      stringData: { token: `x-${PASSWORD}` },
    }
    const rounds = [
      round({
        input: input({ related: { 'Secret.v1': [given] } }),
        returned: { apply: [made, configMap('c', '1', { url: `http://u:${PASSWORD}@h` })], status: { said: PASSWORD } },
        writes: [{ verb: 'apply', object: made, before: given, after: { ...given, data: { password: 'bmV3' } } }],
      }),
      round({ failed: new Error(`login with ${PASSWORD} failed`), returned: undefined }),
    ]
    const record = recordOf(endedRun({ rounds }), FACTS)
    const text = JSON.stringify(record)
    for (const value of [PASSWORD, Buffer.from(PASSWORD).toString('base64'), 'bmV3', 'the-seed-of-the-run'])
      expect(text).not.toContain(value)
    expect(record.leftOut).toEqual(['seed', 'contents of Secret shop/key'])
    expect(record.objects?.['Secret.v1 shop/key@5']).toMatchObject({ data: { password: '(withheld)' } })
    expect(record.laps[0]?.writes[0]?.differences).toEqual([
      { path: '.data.password', before: '(withheld)', after: '(withheld)' },
    ])
  })

  it('has the fields that were set on objects of others and given back, and of a Secret none of the values', () => {
    const key = { ...secret(''), metadata: secret(PASSWORD).metadata }
    const of = reconciled('website', { ...declaring.spec, patches: [CONFIG_MAPS, SECRETS] }, isSecret)
    const fields = { ...secret(PASSWORD), metadata: { name: 'key', namespace: 'shop' } }
    const map = configMap('c', '1', { a: '1' })
    const writes: TrailWrite[] = [
      { verb: 'setFields', object: fields, before: key, after: secret(PASSWORD) },
      { verb: 'setFields', object: map, before: map, after: configMap('c', '2', { a: '2' }) },
      { verb: 'giveBack', object: map, before: undefined, after: configMap('c', '3') },
    ]
    const returned = { patch: [fields, map] }
    const record = recordOf(endedRun({ of, rounds: [round({ returned, writes })] }), FACTS)
    expect(record.laps[0]?.outcome?.patch).toMatchObject([{ data: { password: '(withheld)' } }, { data: { a: '1' } }])
    expect(record.laps[0]?.writes.map(({ verb, kind, differences }) => [verb, kind, differences])).toEqual([
      ['setFields', 'Secret', [{ path: '.data.password', before: '(withheld)', after: '(withheld)' }]],
      ['setFields', 'ConfigMap', [{ path: '.data.a', before: '1', after: '2' }]],
      ['giveBack', 'ConfigMap', undefined],
    ])
    expect(JSON.stringify(record)).not.toMatch(new RegExp(`${PASSWORD}|${inBase64(PASSWORD)}`))
  })

  describe('of an outcome that was refused has nothing of a Secret or of a reference-only kind, declared or not', () => {
    const made = {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'made', annotations: { copy: PASSWORD } },
      stringData: { token: PASSWORD },
    }
    const encoded = { ...made, stringData: {}, data: { token: inBase64(PASSWORD) } }
    const { apiVersion: _, ...untyped } = made
    it.each<[string, unknown]>([
      ['a Secret', { apply: [made] }],
      ['fields of a Secret', { patch: [encoded] }],
      ['fields of a Secret that are not in a list', { patch: encoded }],
      ['a Secret in base64', { apply: [encoded] }],
      ['a kind of FAIRLEAD_REFERENCE_ONLY', { apply: [{ ...made, apiVersion: 'example.com/v1', kind: 'Vault' }] }],
      ['another version of a declared kind', { apply: [{ ...made, apiVersion: 'v1beta1' }] }],
      ['a List of Secrets', { apply: [{ apiVersion: 'v1', kind: 'List', metadata: {}, items: [encoded] }] }],
      ['a Secret without apiVersion', { apply: [untyped] }],
      ['a Secret without metadata', { apply: [{ kind: 'Secret', stringData: { token: PASSWORD } }] }],
      ['a Secret that is not in a list', { apply: made }],
      ['a Secret in an unknown field', { objects: [made] }],
      ['a Secret as the object of an act', { act: [{ act: 'Evict', on: made, data: encoded }] }],
      ['a Secret as the outcome', made],
    ])('%s', (_name, returned) => {
      const run = endedRun({
        of: undeclaring,
        finish: { kind: 'terminal', message: 'no valid outcome' },
        rounds: [round({ returned }), round({ failed: new Error(`cannot use ${PASSWORD}`) })],
        logged: logged([[`uses ${PASSWORD}`, '{}']]),
      })
      expect(JSON.stringify(recordOf(run, FACTS))).not.toMatch(new RegExp(`${PASSWORD}|${inBase64(PASSWORD)}`))
    })
    it.each<[string, unknown]>([
      ['text in place of objects', { apply: [PASSWORD, [PASSWORD]] }],
      ['text in place of acts', { act: [PASSWORD, { act: 'Evict', on: PASSWORD }] }],
      ['text in an unknown field', { token: PASSWORD }],
      ['text as the outcome', PASSWORD],
    ])('%s', (_name, returned) => {
      const record = recordOf(endedRun({ of: undeclaring, rounds: [round({ returned })] }), FACTS)
      expect(JSON.stringify(record)).not.toContain(PASSWORD)
    })
  })

  it('has places and public names, of which a value of a Secret is a part', () => {
    const failed = new TypeError('ConfigMap shop/hello-web has no user hello in shop')
    notePlace(failed, 'TypeError at src/hello.ts:1:2')
    const seen = input({
      owned: { 'ConfigMap.v1': [configMap('hello', '1')] },
      related: { 'Secret.v1': [secret('hello'), secret('shop')] },
      refused: { 'ConfigMap.v1': [{ name: 'hello', namespace: 'shop', reason: 'Invalid', message: 'not hello' }] },
    })
    const returned = {
      apply: [configMap('hello', '1'), { ...configMap('other', '1'), data: { user: 'hello' } }],
      act: [{ act: 'Evict', on: configMap('hello', '1') }],
      status: { user: 'hello' },
    }
    const { laps } = recordOf(endedRun({ rounds: [round({ input: seen, returned }), round({ failed })] }), FACTS)
    const named = (name: string) => ({ kind: 'ConfigMap', metadata: { name, namespace: 'shop' } })
    expect(laps[0]).toMatchObject({
      input: { refused: { 'ConfigMap.v1': [{ name: 'hello', namespace: 'shop', message: 'not [confidential]' }] } },
      outcome: {
        apply: [named('hello'), { ...named('other'), data: { user: '[confidential]' } }],
        act: [{ on: named('hello') }],
        status: { user: '[confidential]' },
      },
    })
    expect(laps[1]).toMatchObject({
      place: 'TypeError at src/hello.ts:1:2',
      error: 'ConfigMap shop/hello-web has no user [confidential] in [confidential]',
    })
  })

  it('has the objects of declared kinds in an outcome that was refused, and says what it leaves out', () => {
    const plain = configMap('c', '1', { size: '2' })
    const { laps, leftOut } = recordOf(
      endedRun({ rounds: [round({ returned: { apply: [plain, 'c'], status: {} } })] }),
      FACTS,
    )
    expect(laps[0]).toMatchObject({ outcome: { apply: [plain], status: {} } })
    expect(leftOut).toEqual(['seed', 'outcome 1: values in "apply" that are not objects'])
  })

  it('of a reference-only primary has the conditions, and no other value of its status', () => {
    const { of } = endedRun()
    const before = website('1')
    const conditions = [{ type: 'Ready', status: 'True' }]
    const patch = { url: PASSWORD, conditions, observedGeneration: 2 }
    const write = { verb: 'status' as const, object: before, before, after: website('2'), patch }
    const record = recordOf(
      endedRun({
        of: reconciled('website', of.spec, ({ resource }) => resource === 'websites'),
        rounds: [round({ returned: { status: { url: PASSWORD } }, writes: [write] })],
      }),
      FACTS,
    )
    expect(JSON.stringify(record)).not.toContain(PASSWORD)
    expect(record.laps[0]?.writes[0]?.patch).toEqual({ url: '(withheld)', conditions, observedGeneration: 2 })
  })

  it('has what the function logged, and how much it leaves out', () => {
    const given = logged(
      [
        ['grows', '{"size":2}'],
        ['is slow', '{}'],
        ['is large', undefined],
      ],
      { omitted: 7 },
    )
    expect(recordOf(endedRun({ logged: given }), FACTS).log).toEqual({
      lines: [
        { at: '2026-01-01T00:00:01.000Z', level: 'info', message: 'grows', fields: { size: 2 } },
        { at: '2026-01-01T00:00:01.010Z', level: 'warn', message: 'is slow' },
        { at: '2026-01-01T00:00:01.020Z', level: 'warn', message: 'is large', withoutFields: true },
      ],
      omitted: 7,
    })
    expect(recordOf(endedRun({ logged: logged([]) }), FACTS)).not.toHaveProperty('log')
  })

  it('has nothing of a Secret in a line, whether a call decided or only read its external system', () => {
    const seen = input({ related: { 'Secret.v1': [secret(PASSWORD), secret('54321')] } })
    const fields = { text: `as ${PASSWORD}`, port: 54_321, free: 8080, [`at-${PASSWORD}`]: [{ deep: PASSWORD }] }
    const given = logged([[`login as ${PASSWORD}`, JSON.stringify(fields)]], { inputs: new Set([seen]) })
    const { log } = recordOf(endedRun({ rounds: [], logged: given }), FACTS)
    expect(log?.lines[0]).toMatchObject({
      message: 'login as [confidential]',
      fields: {
        text: 'as [confidential]',
        port: '[confidential]',
        free: 8080,
        'at-[confidential]': [{ deep: '[confidential]' }],
      },
    })
  })

  it('tells that a function runs over HTTP, whose lines do not come to the dispatcher', () => {
    const run = endedRun()
    const spec = { ...run.of.spec, invoke: { http: { url: 'http://shops.default.svc' } } }
    const record = recordOf({ ...run, of: { ...run.of, spec } }, FACTS)
    expect(record.overHttp).toBe(true)
    expect(recordOf(run, FACTS)).not.toHaveProperty('overHttp')
  })

  it('leaves objects and outcomes out that are too large, and says so', () => {
    const large = website('1', { spec: { text: 'x'.repeat(300_000) } })
    const record = recordOf(
      endedRun({
        rounds: [round({ input: input({ object: large }), returned: { status: { text: 'y'.repeat(200_000) } } })],
      }),
      FACTS,
    )
    expect(record.objects).toBeUndefined()
    expect(record.laps[0]).not.toHaveProperty('outcome')
    expect(record.laps[0]?.input.object).toBe('Website.v1.example.com shop/hello@1')
    expect(record.leftOut).toEqual(['seed', 'outcome 1: more than 128 KiB', 'objects: more than 256 KiB'])
    expect(JSON.stringify(record).length).toBeLessThan(2000)
  })

  it('does not walk what is large to its end', () => {
    const endless: Record<string, unknown> = { text: 'x'.repeat(100) }
    Object.defineProperty(endless, 'bomb', { enumerable: true, get: () => expect.fail('walked too far') })
    expect(sizeOf({ first: endless['text'], endless }, 50)).toBe(51)
  })
})

describe('what differs from the run before', () => {
  const changesOf = (after: EndedRun, before: EndedRun) =>
    inputChanges(recordOf(after, FACTS), recordOf(before, FACTS)).map(({ is, object }) => `${is} ${object}`)
  const seeing = (size: string, names: string[]) => {
    const owned = { 'ConfigMap.v1': names.map((name) => configMap(name, '1')) }
    return endedRun({ rounds: [round({ input: input({ object: website(size), owned }) })] })
  }

  it('is what is new, changed and gone', () => {
    expect(changesOf(seeing('2', ['b', 'c']), seeing('1', ['a', 'b']))).toEqual([
      'changed Website.v1.example.com shop/hello',
      'new ConfigMap.v1 shop/c',
      'gone ConfigMap.v1 shop/a',
    ])
  })

  it('is nothing where the run before has written what is seen now', () => {
    const wrote = { verb: 'status' as const, object: website('1'), before: website('1'), after: website('2') }
    const before = endedRun({ rounds: [round({ writes: [wrote] })] })
    expect(changesOf(endedRun({ rounds: [round({ input: input({ object: website('2') }) })] }), before)).toEqual([])
  })

  it('is nothing where a run has not called the function', () => {
    expect(changesOf(endedRun(), endedRun({ rounds: [] }))).toEqual([])
  })
})

it.each<[because: string, lease: object]>([
  ['its timer came due', { fired: true }],
  ['another try after a failure', { fired: true, attempt: 1 }],
  ['another try after 2 failures', { attempt: 2 }],
  ['another try after 2 failures, resync', { fired: true, attempt: 2, causes: ['resync'] }],
  ['resync', { attempt: 2, causes: ['resync'] }],
  ['the run before did not end in its lease, another try after a failure', { fired: true, attempt: 1, cutShort: true }],
  ['not recorded', {}],
])('a run came because: %s', (because, lease) => {
  const run = endedRun()
  expect(becauseOf(recordOf({ ...run, lease: { ...run.lease, ...lease } }, FACTS))).toBe(because)
})

function historyOf(options: Partial<HistoryDeps> = {}) {
  const sent: RunRecord[] = []
  const dropped = vi.fn<(reconciler: string) => void>()
  const listeners: Record<string, () => void> = {}
  const history = new RunHistory({
    connection: {
      flush: () => new Promise(() => undefined),
      onDisconnect: (listener) => (listeners['gone'] = listener),
      onReconnect: (listener) => (listeners['back'] = listener),
    },
    declare: async () => undefined,
    send: (record) => sent.push(record),
    process: 'vm-1',
    dropped,
    log: { warn: () => undefined },
    ...options,
  })
  const stop = new AbortController()
  void history.run(stop.signal)
  return { history, sent, dropped, listeners, stop, declared: () => Promise.resolve() }
}

const failedRun: typeof endedRun = (more, ...id) =>
  endedRun({ finish: { kind: 'error', message: 'no', retryAt: new Date() }, ...more }, ...id)

describe('the history', () => {
  const wrote = { verb: 'status' as const, object: website('1'), before: website('1'), after: website('2') }
  const RUNS = {
    dull: endedRun(),
    'a timer that is set': endedRun({ finish: { kind: 'requeue', at: new Date() } }),
    changed: endedRun({ rounds: [round({ writes: [wrote] })] }),
    'a write that had nothing to change': endedRun({ rounds: [round({ writes: [{ ...wrote, isUnchanged: true }] })] }),
    refused: endedRun({ rounds: [round({ writes: [{ ...wrote, after: undefined, failed: new Error('no') }] })] }),
    failed: endedRun({ finish: { kind: 'error', message: 'no', retryAt: new Date() } }),
    terminal: endedRun({ finish: { kind: 'terminal', message: 'no' } }),
    fenced: endedRun({ finish: undefined }),
  }
  it('keeps runs that wrote something or failed', async () => {
    const { history, sent, declared } = historyOf()
    await declared()
    const found = Object.entries(RUNS).filter(([, run]) => {
      const before = sent.length
      history.ended(run)
      return sent.length > before
    })
    expect(found.map(([name]) => name)).toEqual(['changed', 'refused', 'failed', 'terminal', 'fenced'])
  })

  it('tells what queued the key', async () => {
    const { history, sent, declared } = historyOf()
    await declared()
    const run = failedRun()
    history.ended(run)
    history.ended({ ...run, lease: { ...run.lease, causes: ['resync'] } })
    expect(sent.map(({ causes }) => causes)).toEqual([undefined, ['resync']])
  })

  it('drops and counts while NATS is away, and goes on when it is back', async () => {
    const { history, sent, dropped, listeners, declared } = historyOf()
    await declared()
    listeners['gone']?.()
    history.ended(failedRun())
    expect([sent.length, dropped.mock.calls]).toEqual([0, [['website']]])
    listeners['back']?.()
    history.ended(failedRun())
    expect([sent.length, dropped.mock.calls.length]).toEqual([1, 1])
  })

  it('holds at most 4 MiB that NATS has not confirmed, and drops and counts the rest', async () => {
    const { history, sent, dropped, declared } = historyOf()
    await declared()
    const large = failedRun({
      rounds: [round({ input: input({ object: website('1', { spec: 'x'.repeat(250_000) }) }) })],
    })
    for (let runs = 0; runs < 40; runs++) history.ended(large)
    expect(sent.length).toBe(17)
    expect(dropped).toHaveBeenCalledTimes(23)
  })

  it('drops and counts as long as there is no stream, and says why once', async () => {
    const warn = vi.fn()
    const declare = () => Promise.reject(new Error('insufficient storage'))
    const { history, sent, dropped, declared } = historyOf({ declare, log: { warn } })
    await declared()
    history.ended(failedRun())
    expect([sent.length, dropped.mock.calls.length, warn.mock.calls.length]).toEqual([0, 1, 1])
  })

  it('knows the CPU of a run that was alone, and of no other', async () => {
    const { history, sent, declared } = historyOf()
    await declared()
    const of = { reconciler: 'website', key: 'shop.hello' }
    const other = { reconciler: 'website', key: 'shop.other' }
    const started = { attempt: 0, fired: false, queuedMs: 0, leaseUntil: new Date() }
    history.step({ ...of, step: 'started', ...started })
    history.step({ ...of, step: 'ended', leaseUntil: new Date() })
    history.ended(failedRun())
    history.step({ ...of, step: 'started', ...started })
    history.step({ ...other, step: 'started', ...started })
    history.step({ ...of, step: 'ended', leaseUntil: new Date() })
    history.ended(failedRun())
    expect(sent[0]?.cpuMs).toBeGreaterThanOrEqual(0)
    expect(sent[1]).not.toHaveProperty('cpuMs')
  })
})
