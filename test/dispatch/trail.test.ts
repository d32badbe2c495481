import { randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import type { RunLog } from '#contracts'
import type { Ask } from '#reconcile'
import { seedsFrom } from '../../dispatch/run/dependencies.ts'
import { RunLines, Trail } from '../../dispatch/run/trail.ts'
import { silent } from '../support/silent.ts'

const object = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a', resourceVersion: '1' } }
const input = { object, owned: {}, related: {}, attempt: 0, now: '2026-01-01T00:00:00Z', finalizing: false }
const effect = { kind: 'addMember' }
const call: Ask = { do: 'call', input }
const perform: Ask = { do: 'perform', input: { ...input, ask: 'perform', effect }, shown: '' }
const status: Ask = {
  do: 'writeStatus',
  object,
  patch: { metadata: { resourceVersion: '1' }, status: { a: 1 } },
  mayBeDropped: true,
}
const finalizers: Ask = { do: 'writeFinalizers', object, finalizers: ['fairlead.dev/a'] }
const after = { ...object, metadata: { name: 'a', resourceVersion: '2' } }

describe('the trail of a run', () => {
  it.each([null, undefined, 'dropped', 0, { failed: 'is a field of the result' }])(
    'takes whatever an effect returns: %j',
    (result) => {
      const trail = new Trail()
      trail.note(call, { did: 'call', returned: { effect } })
      trail.note(perform, { did: 'perform', result })
      expect(trail.rounds[0]?.writes).toEqual([{ verb: 'effect', object, before: undefined, after: undefined }])
    },
  )

  it('has what is written before the first call', () => {
    const trail = new Trail()
    trail.note(finalizers, { did: 'writeFinalizers', result: { object: after, isOld: false } })
    trail.note(call, { did: 'call', returned: {} })
    expect(trail.rounds).toMatchObject([{ writes: [{ verb: 'finalizers', after }] }])
  })

  it('has no status that was not sent, and each that was refused with why', () => {
    const trail = new Trail()
    trail.note(call, { did: 'call', returned: {} })
    trail.note(status, { did: 'writeStatus', result: 'dropped' })
    trail.note(status, { failed: new Error('no') })
    expect(trail.rounds[0]?.writes).toMatchObject([{ verb: 'status', patch: { a: 1 }, failed: new Error('no') }])
  })

  it('has why a call failed', () => {
    const trail = new Trail()
    trail.note(call, { failed: new Error('no') })
    expect(trail.rounds).toEqual([{ input, failed: new Error('no'), writes: [] }])
  })
})

const AT = new Date('2026-01-01T00:00:00Z')

function logging(to: RunLog = silent): { lines: RunLines; log: RunLog } {
  const lines = new RunLines(() => AT)
  return { lines, log: lines.around(to, input) }
}

describe('the lines of a run', () => {
  it('are passed on as they are, and kept as they were when they were logged, without debug lines', () => {
    const passed: unknown[] = []
    const line = (fields: object, message: string) => passed.push([fields, message])
    const { lines, log } = logging({ debug: line, info: line, warn: line, error: line })
    const fields = { size: 1 }
    log.info(fields, 'grows')
    fields.size = 2
    log.warn({ err: new TypeError('no route') }, 'is slow')
    log.debug({}, 'looks')
    log.error({}, 'gives up')
    expect(passed.map((one) => (one as unknown[])[1])).toEqual(['grows', 'is slow', 'looks', 'gives up'])
    expect((passed[0] as unknown[])[0]).toBe(fields)
    expect(lines.lines).toEqual([
      { at: AT, level: 'info', message: 'grows', fields: '{"size":1}' },
      { at: AT, level: 'warn', message: 'is slow', fields: '{"err":{"type":"TypeError","message":"no route"}}' },
      { at: AT, level: 'error', message: 'gives up', fields: '{}' },
    ])
    expect([...lines.inputs]).toEqual([input])
  })

  it('are the first 50 of level info and the first 50 warnings and errors; later ones are counted', () => {
    const { lines, log } = logging()
    for (let number = 0; number < 1000; number++) log.info({ number }, 'again')
    log.error({}, 'the last word')
    expect(lines.lines).toHaveLength(51)
    expect(lines.lines.at(-2)?.fields).toBe('{"number":49}')
    expect(lines.lines.at(-1)?.message).toBe('the last word')
    expect(lines.omitted).toBe(950)
  })

  it('have 16 KiB at most, and a line that is larger than 4 KiB has no fields', () => {
    const { lines, log } = logging()
    for (let number = 0; number < 50; number++) log.info({ text: 'x'.repeat(3000) }, 'm')
    log.info({}, 'y'.repeat(5000))
    log.warn({ text: 'x'.repeat(5000) }, 'too large')
    const kept = lines.lines.filter(({ level }) => level === 'info')
    const chars = kept.reduce((sum, { message, fields = '' }) => sum + message.length + fields.length, 0)
    expect(chars).toBeLessThanOrEqual(16 * 1024)
    expect(kept.filter(({ fields }) => fields !== undefined)).toHaveLength(5)
    expect(lines.omitted).toBe(1)
    expect(lines.lines.at(-1)).toEqual({ at: AT, level: 'warn', message: 'too large', fields: undefined })
  })

  it('do not walk a large object to its end, and never throw', () => {
    const { lines, log } = logging()
    const circular: Record<string, unknown> = {}
    circular['self'] = [circular]
    const bomb = Object.defineProperty({ text: 'x'.repeat(5000) }, 'late', {
      enumerable: true,
      value: { toJSON: () => expect.fail('walked too far') },
    })
    const thrower = { inner: { toJSON: () => expect.fail('cannot be read') } }
    for (const fields of [circular, bomb, thrower, null, undefined, 'text']) log.info(fields as object, 'odd')
    log.info({}, undefined as unknown as string)
    expect(lines.lines.map(({ fields }) => fields?.slice(0, 8))).toEqual([
      undefined,
      undefined,
      undefined,
      '{}',
      '{}',
      '{"0":"t"',
    ])
    expect(lines.omitted).toBe(1)
  })
})

it('no two runs have one seed, however many there are', () => {
  const seed = seedsFrom(randomBytes)
  const seeds = Array.from({ length: 1000 }, seed)
  expect(new Set(seeds).size).toBe(1000)
  expect(seeds.filter((one) => !/^[\w-]{32}$/.test(one))).toEqual([])
})

it('the bytes that a process is given decide its seeds, whatever another dispatcher has drawn', () => {
  const zeros = (size: number) => Buffer.alloc(size)
  const other = seedsFrom(randomBytes)
  other()
  expect(seedsFrom(zeros)()).toBe('A'.repeat(32))
})
