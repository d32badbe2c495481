import { addUsage, NO_USAGE, type Usage, viewUsage } from '#events'
import { periodFor, sumUsage, type UsageDimension, type UsageSum, usageCells } from '#inspect'
import { table } from '#process/exit'
import { createLogger } from '#process/logging'
import { openJetStream, reportConnection } from '#process/nats'
import type { CommandContext } from '../options.ts'

export interface UsageCommandOptions {
  since: Date
  by: readonly UsageDimension[]
  output: UsageFormat
}

type UsageFormat = 'table' | 'json' | 'csv' | 'openmetrics'

/** Connects to NATS only. */
export async function usage(
  { since, by, output }: UsageCommandOptions,
  { config, print }: CommandContext,
): Promise<void> {
  const settings = await config()
  const period = periodFor(since, new Date(), by)
  await using js = await openJetStream(settings, 'usage')
  reportConnection(js, await createLogger(settings))
  const sums = await sumUsage(viewUsage(js, settings.FAIRLEAD_PREFIX).since(period, since), by)
  print(FORMATS[output](sums, by))
}

type Format = (sums: readonly UsageSum[], by: readonly UsageDimension[]) => string

const FORMATS: Record<UsageFormat, Format> = {
  table(sums, by) {
    if (sums.length === 0) return 'No usage is stored for this time.'
    const total = { of: by.map((_, index) => (index === 0 ? 'TOTAL' : '')), ...NO_USAGE }
    for (const sum of sums) addUsage(total, sum)
    const head = [...by.map((one) => one.toUpperCase()), 'RUNS', 'CPU', 'REQUESTS', 'WRITES', 'STORED']
    return table(
      head,
      [...sums, total].map((sum) => [...sum.of, ...usageCells(sum)]),
    )
  },
  json: (sums, by) =>
    JSON.stringify(
      sums.map((sum) => ({ ...named(sum, by), ...figures(sum) })),
      null,
      2,
    ),
  csv(sums, by) {
    const lines = sums.map((sum) => [...sum.of, ...Object.values(figures(sum))])
    return [[...by, ...Object.keys(figures(NO_USAGE))], ...lines].map((line) => line.join(',')).join('\n')
  },
  openmetrics: (sums, by) => [...FAMILIES.flatMap((family) => familyText(family, sums, by)), '# EOF'].join('\n'),
}

const named = ({ of }: UsageSum, by: readonly UsageDimension[]) =>
  Object.fromEntries(by.map((dimension, index) => [dimension, of[index]]))

/** Values of Kubernetes names and numbers: none of them needs quotes in CSV. */
const figures = ({ runs, cpuMs, requests, writes, storedBytes }: Usage) => ({
  runs,
  cpuMs: Math.round(cpuMs),
  requests,
  writes,
  storedBytes,
})

interface Family {
  name: string
  unit?: string
  help: string
  value: (usage: Usage) => number
}

/** Gauges: a sum over a window is no counter, since a later window has less. */
const FAMILIES: Family[] = [
  { name: 'runs', help: 'Runs that have ended', value: ({ runs }) => runs },
  { name: 'cpu_seconds', unit: 'seconds', help: 'CPU time', value: ({ cpuMs }) => cpuMs / 1000 },
  { name: 'requests', help: 'Requests to the API server', value: ({ requests }) => requests },
  { name: 'writes', help: 'Writes that the API server accepted', value: ({ writes }) => writes },
  {
    name: 'stored_bytes',
    unit: 'bytes',
    help: 'Bytes stored in EVENTS and RUNS',
    value: ({ storedBytes }) => storedBytes,
  },
]

/** The dimensions of time give the time of the sample, the shortest of them if there are several; the others are its labels. */
function familyText(
  { name, unit, help, value }: Family,
  sums: readonly UsageSum[],
  by: readonly UsageDimension[],
): string[] {
  const full = `fairlead_usage_${name}`
  const samples = sums.map((sum) => {
    const labels = by.flatMap((one, index) => (isTime(one) ? [] : [`${one}=${JSON.stringify(sum.of[index])}`]))
    const times = by.flatMap((one, index) => (isTime(one) ? [Date.parse(sum.of[index] ?? '') / 1000] : []))
    // An hour begins with its day or later.
    const time = Math.max(...times)
    const series = `${full}${labels.length === 0 ? '' : `{${labels.join()}}`}`
    return { series, time, line: [series, value(sum), ...(times.length > 0 ? [time] : [])].join(' ') }
  })
  // The samples of a series stand together, the oldest first.
  samples.sort((a, b) => a.series.localeCompare(b.series) || a.time - b.time)
  const units = unit === undefined ? [] : [`# UNIT ${full} ${unit}`]
  return [`# TYPE ${full} gauge`, ...units, `# HELP ${full} ${help}`, ...samples.map(({ line }) => line)]
}

const isTime = (dimension: UsageDimension): boolean => dimension !== 'function' && dimension !== 'namespace'
