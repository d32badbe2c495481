import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { declareUsage, type PeriodUsage, startOf, type UsagePeriod, type UsageRow, usageWriter } from '#events'
import type { Nats } from '#lab'
import type { JetStream } from '#nats'
import { command } from '../support/command.ts'
import { connectTo } from '../support/jetstream.ts'
import { startTestNats } from '../support/servers.ts'

let nats: Nats & AsyncDisposable
let js: JetStream
beforeAll(async () => {
  nats = await startTestNats()
  js = await connectTo(nats.url)
  await declareUsage(js, {})
  const write = usageWriter(js, undefined)
  // The second message of a process for a period takes the place of the first one.
  await write('one', inPeriod('hour', NOW, [used('at', 'shop', 1)]))
  await write('one', inPeriod('hour', NOW, HERE))
  await write('two', inPeriod('hour', NOW, THERE))
  await write('one', inPeriod('day', NOW, HERE))
  await write('two', inPeriod('day', NOW, THERE))
  await write('one', inPeriod('day', LONG_AGO, [used('at', 'shop', 1_000_000)]))
  await js.publish('usage.day.2000-01-01.other', 'no usage', {})
  await declareUsage(js, { prefix: 'hours' })
  for (const hour of [10, 11])
    await usageWriter(js, 'hours')('one', inPeriod('hour', new Date(YESTERDAY.getTime() + hour * 3_600_000), HERE))
})
afterAll(async () => {
  await js?.close()
  await nats?.[Symbol.asyncDispose]()
})

const NOW = new Date()
const YESTERDAY = new Date(Math.floor(NOW.getTime() / 86_400_000 - 1) * 86_400_000)
const LONG_AGO = new Date(NOW.getTime() - 200 * 86_400_000)
const TODAY = startOf('day', NOW)
const inPeriod = (period: UsagePeriod, time: Date, rows: UsageRow[]): PeriodUsage => ({
  period,
  start: startOf(period, time),
  rows,
})
const used = (name: string, namespace: string | undefined, cpuMs: number): UsageRow => ({
  function: name,
  namespace,
  runs: 2,
  cpuMs,
  requests: 5,
  writes: 3,
  storedBytes: 1024,
})
const HERE = [used('at', 'shop', 400.4), used('at', 'team-a', 100), { ...used('(platform)', undefined, 50), runs: 0 }]
const THERE = [used('at', 'shop', 600), used('website', 'shop', 12_300)]

const usage = (...args: string[]) => command(['usage', ...args], { NATS_URL: nats.url })
const columns = (text: string) =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => line.split(/ {2,}/))

const LABEL = String.raw`[a-z_]+="(?:[^"\\\n]|\\["\\n])*"`
const SAMPLE = new RegExp(
  String.raw`^(?<name>[a-z_]+)(?:\{(?<labels>${LABEL}(?:,${LABEL})*)\})? (?<value>\S+)(?: (?<time>\S+))?$`,
)

/**
 * Returns the values of each family of an OpenMetrics text with gauges, and the lines that break a rule of the format:
 * lines of a family, and samples of a series, stand together, a series has a label once, and its times increase.
 */
function openMetrics(text: string) {
  const values = new Map<string, number[]>()
  const times = new Map<string, number | undefined>()
  const faults: string[] = []
  let family = ''
  let last = ''
  for (const line of text.split('\n').slice(0, -2)) {
    const [, kind, about = '', rest = ''] = /^# (TYPE|UNIT|HELP) (\S+) (.+)$/.exec(line) ?? []
    if (kind === 'TYPE') {
      if (rest !== 'gauge' || values.has(about)) faults.push(line)
      values.set(about, [])
      ;[family, last] = [about, '']
    } else if (kind !== undefined) {
      if (about !== family || last !== '' || (kind === 'UNIT' && !about.endsWith(`_${rest}`))) faults.push(line)
    } else {
      const { name = '', labels = '', value = '', time } = SAMPLE.exec(line)?.groups ?? {}
      const series = `${name} ${labels}`
      const names = labels.split(',').map((label) => label.split('=')[0])
      const at = time === undefined ? undefined : Number(time)
      const isLater = at !== undefined && at > (times.get(series) ?? Number.POSITIVE_INFINITY)
      const isNext = !times.has(series) || (last === series && isLater)
      if (name !== family || new Set(names).size < names.length || !isNext || Number.isNaN(Number(value)))
        faults.push(line)
      times.set(series, at)
      last = series
      values.get(name)?.push(Number(value))
    }
  }
  if (!text.endsWith('\n# EOF\n')) faults.push('no end')
  return { values, faults }
}

describe('usage', () => {
  it('shows what each function has used in 30 days, the most CPU time first, and the sum of all', async () => {
    const { stdout, stderr, code } = await usage()
    expect({ stderr, code }).toEqual({ stderr: '', code: 0 })
    expect(columns(stdout)).toEqual([
      ['FUNCTION', 'RUNS', 'CPU', 'REQUESTS', 'WRITES', 'STORED'],
      ['website', '2', '12.3s', '5', '3', '1.0 KiB'],
      ['at', '6', '1100ms', '15', '9', '3.0 KiB'],
      ['(platform)', '0', '50ms', '5', '3', '1.0 KiB'],
      ['TOTAL', '8', '13.5s', '25', '15', '5.0 KiB'],
    ])
  })

  it.each<[string[], string[]]>([
    [
      ['--by', 'namespace'],
      [
        'namespace,runs,cpuMs,requests,writes,storedBytes',
        'shop,6,13300,15,9,3072',
        'team-a,2,100,5,3,1024',
        '-,0,50,5,3,1024',
      ],
    ],
    [
      ['--by', 'namespace', '--since', '1h'],
      [
        'namespace,runs,cpuMs,requests,writes,storedBytes',
        'shop,6,13300,15,9,3072',
        'team-a,2,100,5,3,1024',
        '-,0,50,5,3,1024',
      ],
    ],
    [
      ['--by', 'function,namespace'],
      [
        'function,namespace,runs,cpuMs,requests,writes,storedBytes',
        'website,shop,2,12300,5,3,1024',
        'at,shop,4,1000,10,6,2048',
        'at,team-a,2,100,5,3,1024',
        '(platform),-,0,50,5,3,1024',
      ],
    ],
    [
      ['--by', 'day,function', '--since', '365d'],
      [
        'day,function,runs,cpuMs,requests,writes,storedBytes',
        `${startOf('day', LONG_AGO)},at,2,1000000,5,3,1024`,
        `${TODAY},website,2,12300,5,3,1024`,
        `${TODAY},at,6,1100,15,9,3072`,
        `${TODAY},(platform),0,50,5,3,1024`,
      ],
    ],
    [
      ['--by', 'month', '--since', '365d'],
      [
        'month,runs,cpuMs,requests,writes,storedBytes',
        `${startOf('day', LONG_AGO).slice(0, 7)},2,1000000,5,3,1024`,
        `${TODAY.slice(0, 7)},8,13450,25,15,5120`,
      ],
    ],
    [['--since', '2099-01-01T00:00:00Z'], ['function,runs,cpuMs,requests,writes,storedBytes']],
  ])('exports CSV %j', async (args, lines) => {
    const { stdout, code } = await usage('-o', 'csv', ...args)
    expect({ lines: stdout.trimEnd().split('\n'), code }).toEqual({ lines, code: 0 })
  })

  it('exports OpenMetrics, with the time of a sample if rows are of a time', async () => {
    const plain = (await usage('-o', 'openmetrics', '--by', 'function,namespace')).stdout
    expect(plain).toContain('# TYPE fairlead_usage_cpu_seconds gauge\n# UNIT fairlead_usage_cpu_seconds seconds\n')
    expect(plain).toContain('\nfairlead_usage_cpu_seconds{function="website",namespace="shop"} 12.3\n')
    expect(plain.endsWith('# EOF\n')).toBe(true)
    const timed = (await usage('-o', 'openmetrics', '--by', 'day,function', '--since', '365d')).stdout
    const runs = timed.split('\n').filter((line) => line.startsWith('fairlead_usage_runs{function="at"}'))
    const at = (day: string) => Date.parse(day) / 1000
    expect(runs).toEqual([
      `fairlead_usage_runs{function="at"} 2 ${at(startOf('day', LONG_AGO))}`,
      `fairlead_usage_runs{function="at"} 6 ${at(TODAY)}`,
    ])
  })

  it.each([
    'hour',
    'function,hour',
    'day,hour,function',
    'month,day,namespace,function',
    'function,function',
    'function,namespace',
  ])('exports OpenMetrics in which no series has two values for one time, by %s', async (by) => {
    const hours = (format: string) =>
      command(['--prefix', 'hours', 'usage', '-o', format, '--by', by, '--since', '2d'], { NATS_URL: nats.url })
    const { stdout, code } = await hours('openmetrics')
    expect(code).toBe(0)
    const { values, faults } = openMetrics(stdout)
    expect(faults).toEqual([])
    const { stdout: json } = await hours('json')
    expect(values.get('fairlead_usage_runs')).toHaveLength((JSON.parse(json) as unknown[]).length)
    expect(values.get('fairlead_usage_runs')?.reduce((sum, value) => sum + value, 0)).toBe(8)
    expect([...values.keys()]).toHaveLength(5)
  })

  it('exports JSON', async () => {
    const { stdout } = await usage('-o', 'json', '--by', 'month,namespace')
    expect(JSON.parse(stdout)).toContainEqual({
      month: TODAY.slice(0, 7),
      namespace: 'team-a',
      runs: 2,
      cpuMs: 100,
      requests: 5,
      writes: 3,
      storedBytes: 1024,
    })
  })

  it.each([
    [['--by', 'tenant'], 'give some of function, namespace, hour, day, month'],
    [['--since', 'yesterday'], 'give how long ago'],
    [['--by', 'hour', '--since', '30d'], '--by hour needs --since 2d or less'],
  ])('%j ends with 2', async (args, message) => {
    const { code, stderr } = await usage(...args)
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(message) })
  })

  it('by hour reaches two days back', async () => {
    expect(await usage('--by', 'hour', '--since', '2d')).toMatchObject({ code: 0 })
  })

  it('ends with 4 where no process has stored usage', async () => {
    const away = await command(['--prefix', 'other', 'usage'], { NATS_URL: nats.url })
    expect(away).toMatchObject({ code: 4, stderr: expect.stringContaining('there is no stream other_USAGE here') })
  })

  it('is kept for a year as days, and for three days as hours', async () => {
    const { config } = await js.admin.streams.info('USAGE')
    expect(config).toMatchObject({ max_msgs_per_subject: 1, max_bytes: 64 * 2 ** 20, max_age: 400 * 86_400e9 })
    const last = await js.lastOf('USAGE', `usage.hour.${startOf('hour', NOW)}.one`)
    expect(last?.headers['Nats-TTL']).toBe(`${3 * 86_400}s`)
  })
})
