import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { main } from '#cli'
import type { RunRecord } from '#contracts'
import { ConfigMap, type Reconciler, type Run, reconciler, resource, Secret, toInvoke, z } from '#sdk'
import { replayOf, replayRun } from '#testing'
import { recordOf } from '../../cli/process/run-record.ts'
import { endedRun, input, round, secret, website } from '../process/history/runs.ts'

const Website = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Website',
  plural: 'websites',
  spec: z.object({ size: z.int32() }),
  status: z.object({ size: z.int32(), note: z.string().optional() }),
})

type Decide = (run: Run<typeof Website, typeof ConfigMap | typeof Secret, typeof Secret>) => object
const functionOf = (decide: Decide): Reconciler =>
  reconciler({
    name: 'website',
    for: Website,
    owns: [ConfigMap, Secret],
    related: [Secret],
    reconcile: (run) => decide(run) as never,
  })

const then = functionOf(({ object }) => ({
  apply: [ConfigMap.of({ metadata: { name: 'c' }, data: { size: `${object.spec.size}` } })],
  status: { size: object.spec.size },
}))

const given = input({
  object: website('1', { spec: { size: 2 } }),
  owned: { 'ConfigMap.v1': [], 'Secret.v1': [] },
  related: { 'Secret.v1': [secret('correct-horse-battery')] },
})
const context = { signal: new AbortController().signal, log: console }

/** Returns the record that a dispatcher would have made. */
async function recordBy(decided: Reconciler): Promise<RunRecord> {
  const returned = await toInvoke(decided)(given, context).catch((failed: unknown) => ({ failed }))
  const decision = 'failed' in returned ? { failed: returned.failed, returned: undefined } : { returned }
  const rounds = [round({ input: given, ...decision }), round({ input: given, ...decision })]
  const record = recordOf(endedRun({ rounds }), { process: 'vm-1', cpuMs: undefined })
  return JSON.parse(JSON.stringify(record)) as RunRecord
}

let dir: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-replay-'))
})
afterAll(() => rm(dir, { recursive: true, force: true }))

describe('replay', () => {
  it('is the same for the same function, also where the record says that a decision was that of before', async () => {
    const record = await recordBy(then)
    expect(record.laps[1]).toMatchObject({ isSame: true })
    const { isSame, calls } = await replayRun(then, record)
    expect({ isSame, calls: calls.length }).toEqual({ isSame: true, calls: 2 })
  })

  it('tells what another version of the function decides otherwise', async () => {
    const now = functionOf(({ object }) => ({
      apply: [],
      status: { size: object.spec.size + 1 },
    }))
    const { isSame, calls } = await replayRun(now, await recordBy(then))
    expect(isSame).toBe(false)
    expect(calls[0]?.differences.map(({ path }) => path)).toEqual(['.outcome.status.size', '.outcome.apply'])
    expect(calls[0]?.differences[0]).toEqual({ path: '.outcome.status.size', before: 2, after: 3 })
  })

  it('takes the order of distinct objects for the same decision, and tells by name what differs', async () => {
    const made = (names: string[], size = '1') =>
      functionOf(() => ({ apply: names.map((name) => ConfigMap.of({ metadata: { name }, data: { size } })) }))
    const record = await recordBy(made(['a', 'b']))
    expect(await replayRun(made(['b', 'a']), record)).toMatchObject({ isSame: true })
    const { calls } = await replayRun(made(['c', 'b', 'a']), record)
    expect(new Set(calls[0]?.differences.map(({ path }) => path.split(']')[0]))).toEqual(
      new Set([".outcome.apply['ConfigMap c'"]),
    )
    const [{ differences: found } = { differences: [] }] = (await replayRun(made(['b', 'a'], '2'), record)).calls
    expect(found.map(({ path }) => path)).toEqual([
      ".outcome.apply['ConfigMap a'].data.size",
      ".outcome.apply['ConfigMap b'].data.size",
    ])
  })

  it('tells which field a function draws that is not deterministic', async () => {
    let drawn = 0
    const random = functionOf(() => ({ status: { size: 2, note: `${drawn++}` } }))
    const { isSame, calls } = await replayRun(random, await recordBy(random))
    expect(isSame).toBe(false)
    expect(calls.map(({ unstable, differences }) => [unstable, differences])).toEqual([
      [['.outcome.status.note'], []],
      [['.outcome.status.note'], []],
    ])
  })

  it('compares failures', async () => {
    const failing = functionOf(() => {
      throw new Error('no route to host')
    })
    const record = await recordBy(failing)
    expect(await replayRun(failing, record)).toMatchObject({ isSame: true })
    const { calls } = await replayRun(then, record)
    expect(calls[0]?.differences[0]).toEqual({ path: '.error', before: 'no route to host' })
  })

  it('says where the function throws, then and now; an edit that moves it is no other decision', async () => {
    const failing = functionOf(() => {
      throw new TypeError('no such field')
    })
    const record = await recordBy(failing)
    const moved = { ...record, laps: record.laps.map((lap) => ({ ...lap, place: 'TypeError at src/website.ts:1:2' })) }
    const { isSame, calls } = await replayRun(failing, moved)
    expect(isSame).toBe(true)
    expect(calls[0]?.was).toEqual({ error: 'no such field', place: 'TypeError at src/website.ts:1:2' })
    const place = expect.stringMatching(/^TypeError at test\/testing\/replay\.test\.ts:\d+:\d+$/)
    expect(calls[0]?.is).toEqual({ error: 'no such field', place })
    expect(record.laps[0]?.place).toEqual(calls[0]?.is && 'place' in calls[0].is ? calls[0].is.place : undefined)
    expect(calls[0]?.stack).toContain('replay.test.ts')
  })

  it('compares all but what is made of Secrets and of the seed', async () => {
    const making = functionOf(({ related, secret: drawn }) => ({
      apply: [
        Secret.of({
          metadata: { name: 'made' },
          stringData: { password: drawn('password'), copy: JSON.stringify(related(Secret)) },
        }),
      ],
    }))
    const record = await recordBy(making)
    expect(JSON.stringify(record)).not.toContain('correct-horse')
    expect(await replayRun(making, record)).toMatchObject({ isSame: true })
  })

  it('refuses a record without the objects', async () => {
    const { objects: _objects, ...record } = await recordBy(then)
    await expect(replayRun(then, record)).rejects.toThrow('cannot be replayed')
  })
})

describe('replayOf', () => {
  it('makes a row of each recorded run, which holds or tells the difference', async () => {
    const record = await recordBy(then)
    await writeFile(join(dir, 'a-1.json'), JSON.stringify(record, null, 2))
    await writeFile(join(dir, 'a-2.json'), `${JSON.stringify(record)}\n${JSON.stringify(record)}\n`)
    const rows = replayOf(then, join(dir, 'a-*.json'))
    expect(rows.map(([name]) => name)).toEqual([
      `${dir}/a-1.json: website shop/hello, 2026-01-01T00:00:01.250Z`,
      `${dir}/a-2.json: website shop/hello, 2026-01-01T00:00:01.250Z`,
      `${dir}/a-2.json: website shop/hello, 2026-01-01T00:00:01.250Z`,
    ])
    for (const [, holds] of rows) await holds()
    const other = functionOf(() => ({ status: { size: 9 } }))
    const [row] = replayOf(other, join(dir, 'a-1.json'))
    await expect(row?.[1]()).rejects.toThrow('call 1: ~ .outcome.status.size: 2 → 9')
  })

  it('fails where there is no file, no record, or one of another function', async () => {
    expect(() => replayOf(then, join(dir, 'none-*.json'))).toThrow('fairlead runs get')
    await writeFile(join(dir, 'wrong.json'), '{"a":1}')
    expect(() => replayOf(then, join(dir, 'wrong.json'))).toThrow('not a record of a run')
    await writeFile(join(dir, 'other.json'), JSON.stringify({ ...(await recordBy(then)), reconciler: 'other' }))
    await expect(replayOf(then, join(dir, 'other.json'))[0]?.[1]()).rejects.toThrow('of the reconciler other')
  })
})

it('fairlead replay --from needs neither cluster nor NATS, and ends with 1 where the function decides otherwise', async () => {
  const sdk = JSON.stringify(join(import.meta.dirname, '../../sdk/index.ts'))
  const module = (size: string) => `
    import { ConfigMap, reconciler, resource, Secret, z } from ${sdk}
    const Website = resource({ group: 'example.com', version: 'v1', kind: 'Website', plural: 'websites',
      spec: z.object({ size: z.int32() }), status: z.object({ size: z.int32() }) })
    export const website = reconciler({ name: 'website', for: Website, owns: [ConfigMap, Secret], related: [Secret],
      reconcile: ({ object }) => ({ apply: [ConfigMap.of({ metadata: { name: 'c' }, data: { size: String(object.spec.size) } })],
        status: { size: ${size} } }) })`
  await writeFile(join(dir, 'same.ts'), module('object.spec.size'))
  await writeFile(join(dir, 'other.ts'), module('7'))
  await writeFile(join(dir, 'run.json'), JSON.stringify(await recordBy(then)))
  const replay = async (file: string, record = 'run.json') => {
    const write = process.stdout.write.bind(process.stdout)
    let stdout = ''
    process.stdout.write = (text) => {
      stdout += String(text)
      return true
    }
    const before = process.exitCode
    try {
      await main(['node', 'fairlead', 'replay', '--from', join(dir, record), '-f', join(dir, file)])
      return { stdout, code: process.exitCode }
    } finally {
      process.stdout.write = write
      process.exitCode = before
    }
  }
  expect(await replay('same.ts', 'missing.json')).toMatchObject({ code: 2, stdout: '' })
  expect(await replay('same.ts')).toMatchObject({ code: 0, stdout: expect.stringContaining('It decides as it did.') })
  expect(await replay('other.ts')).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('~ .outcome.status.size: 2 → 7'),
  })
  const failed = functionOf(() => {
    throw new TypeError('no such field')
  })
  await writeFile(join(dir, 'failed.json'), JSON.stringify(await recordBy(failed)))
  const { stdout } = await replay('same.ts', 'failed.json')
  const call = stdout.split('\n').slice(1, 4)
  expect(call).toEqual([
    '  call 1: other than it was',
    expect.stringMatching(/^ {4}then: failed: TypeError at test\/testing\/replay\.test\.ts:\d+:\d+: no such field$/),
    '    now: returned 1 object, status {"size":2}',
  ])
})
