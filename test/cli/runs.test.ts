import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunRecord } from '#contracts'
import { declareRuns, runSender, viewRuns } from '#events'
import type { Nats } from '#lab'
import type { JetStream } from '#nats'
import { recordOf } from '../../cli/process/run-record.ts'
import { configMap, endedRun, input, logged, round, website } from '../process/history/runs.ts'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'
import { connectTo } from '../support/jetstream.ts'
import { startTestNats } from '../support/servers.ts'
import { until } from '../support/wait.ts'

let nats: Nats & AsyncDisposable
let js: JetStream
beforeAll(async () => {
  nats = await startTestNats()
  js = await connectTo(nats.url)
  await declareRuns(js, {})
  for (const record of [FIRST, SECOND, FAILED]) send(record)
  await js.flush()
  await until(async () => (await viewRuns(js).end()) === 3)
})
afterAll(async () => {
  await js?.close()
  await nats?.[Symbol.asyncDispose]()
})

const send = (record: RunRecord) => runSender(js, undefined, 'test')(record, JSON.stringify(record))
const FACTS = { process: 'vm-1', cpuMs: undefined }
const [before, after] = [website('1', { spec: { size: 1 } }), website('2', { spec: { size: 2 } })]
const owned = (version: string, size: string) => ({ 'ConfigMap.v1': [configMap('c', version, { size })] })

const FIRST = recordOf(
  endedRun({ rounds: [round({ input: input({ object: before, owned: owned('3', '1') }) })] }, 'one'),
  FACTS,
)
const applied = {
  verb: 'apply' as const,
  object: configMap('c', '3'),
  before: configMap('c', '3', { size: '1' }),
  after: configMap('c', '4', { size: '2' }),
}
const shown = {
  verb: 'status' as const,
  object: before,
  patch: { size: 2 },
  before: undefined,
  after: undefined,
}
const edited = endedRun(
  {
    rounds: [
      round({
        input: input({ object: after, owned: owned('3', '1') }),
        returned: { apply: [configMap('c', '', { size: '2' })], status: { size: 2 } },
        writes: [applied, shown],
      }),
    ],
    logged: logged(
      [
        ['grows', '{"size":2}'],
        ['is slow\u001b[31m', undefined],
      ],
      { omitted: 3 },
    ),
  },
  'two',
)
const causes = ['modified Website.v1.example.com shop/hello@2']
const SECOND = recordOf({ ...edited, lease: { ...edited.lease, causes } }, FACTS)
const other = endedRun({ finish: { kind: 'terminal', message: 'spec.size\nis \u001b[31m-1' }, rounds: [] }, 'three')
const FAILED = recordOf({ ...other, lease: { ...other.lease, key: 'team-a.broken' } }, FACTS)

const runs = (...args: string[]) => command(['runs', ...args], { NATS_URL: nats.url })
const columns = (text: string) =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => line.split(/ {2,}/))

describe('runs', () => {
  it('lists what is recorded, with why it came', async () => {
    const { stdout, code } = await runs('ls')
    expect(code).toBe(0)
    const [head, ...rows] = columns(stdout)
    expect(head).toEqual(['RUN', 'ENDED', 'RECONCILER', 'NAMESPACE', 'NAME', 'RESULT', 'TOOK', 'WRITES', 'BECAUSE'])
    expect(rows.map((row) => row.toSpliced(1, 1))).toEqual([
      ['1', 'website', 'shop', 'hello', 'success', '250ms', '0', 'not recorded'],
      ['2', 'website', 'shop', 'hello', 'success', '250ms', '2', 'modified Website shop/hello@2'],
      [
        '3',
        'website',
        'team-a',
        'broken',
        'terminal',
        '250ms',
        '0',
        expect.stringMatching(/^not recorded; failed: spec\.size is .*-1$/),
      ],
    ])
  })

  it.each<[string[], string[]]>([
    [['website'], ['1', '2', '3']],
    [
      ['website', 'shop/hello'],
      ['1', '2'],
    ],
    [['website', '-n', 'team-a'], ['3']],
    [
      ['website', 'hello', '-n', 'shop'],
      ['1', '2'],
    ],
    [['--result', 'terminal', '--result', 'error'], ['3']],
    [['--limit', '1'], ['3']],
    [['--since', '2099-01-01T00:00:00Z'], []],
    [['other'], []],
  ])('selects by %j', async (args, found) => {
    const { stdout } = await runs('ls', ...args, '-o', 'json')
    expect((JSON.parse(stdout) as { run: number }[]).map(({ run }) => String(run))).toEqual(found)
  })

  it('shows one run: what differs from the run before, its calls and its writes', async () => {
    const { stdout } = await runs('show', '2')
    expect(stdout).toContain('Because:   modified Website shop/hello@2\n')
    expect(stdout).toContain(
      'What differs from the run before:\n  changed Website shop/hello\n    ~ .spec.size: 1 → 2\n',
    )
    expect(stdout).toContain('Call 1: returned apply ConfigMap c; status {"size":2}\n')
    expect(stdout).toContain('  apply ConfigMap shop/c\n    ~ .data.size: "1" → "2"\n')
    expect(stdout).toContain('  status Website shop/hello\n    = .size: 2\n')
    expect(stdout).toContain('Left out:  seed')
    expect(stdout).toMatch(
      /\nLog:\n  \+\S+ +info   grows \{"size":2\}\n  \+\S+ +warn   is slow.* \(fields left out\)\n  3 more lines are not recorded: see the log of the process, as far as its LOG_LEVEL includes them\.\n$/,
    )
  })

  it('gives whole records, and keeps their text from the terminal', async () => {
    const { stdout } = await runs('get', '2', '3')
    const records = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as RunRecord)
    expect(records).toEqual([SECOND, FAILED])
    expect(stdout + (await runs('show', '2')).stdout + (await runs('show', '3')).stdout).not.toContain('\u001b')
  })

  it('says what is not there, and what to do', async () => {
    expect(await runs('show', '99')).toMatchObject({ code: 2, stderr: expect.stringContaining('fairlead runs ls') })
    const away = await command(['runs', 'ls'], { NATS_URL: nats.url, FAIRLEAD_PREFIX: 'other' })
    expect(away).toMatchObject({ code: 4, stderr: expect.stringContaining('there is no stream other_RUNS here') })
  })

  it('follows runs as they end', async () => {
    await using tail = startFairlead(['runs', 'ls', 'website', 'shop/hello', '--watch', '-o', 'json'], {
      NATS_URL: nats.url,
    })
    const shown = (count: number) => until(async () => tail.output.length >= count, { what: 'shown', leastMs: 50 })
    await shown(2)
    send({ ...SECOND, id: 'four' })
    await shown(3)
    expect(JSON.parse(tail.output[2] ?? '')).toMatchObject({ run: 4, id: 'four' })
  })
})
