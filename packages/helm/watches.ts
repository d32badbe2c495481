import { readFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { parse } from 'yaml'
import { z } from '#sdk'
import { secondsOf } from './go.ts'

/** An entry of a watches.yaml of operator-sdk. */
export interface Watch {
  group: string
  version: string
  kind: string
  /** The absolute path of the folder of the chart. */
  chart: string
  /** Values that win over those of the object, as text, keyed by their paths: `image.tag`. */
  overrides: Record<string, string>
  /** A label selector as text. Undefined: all objects. */
  selector: string | undefined
  /** Undefined: no run without a change. */
  periodSeconds: number | undefined
  concurrency: number | undefined
}

const NO_CLUSTER = 'rendering reads no cluster, so that "lookup" finds nothing: leave the field out'
const ALWAYS_WATCHED = 'objects of a release are always watched, and a change by others is taken back: leave it out'

const text = z.string().min(1)
const requirement = z.strictObject({
  key: text,
  operator: z.enum(['In', 'NotIn', 'Exists', 'DoesNotExist']),
  values: z.array(z.string()).optional(),
})
const labelSelector = z.strictObject({
  matchLabels: z.record(z.string(), z.string()).optional(),
  matchExpressions: z.array(requirement).optional(),
})
const period = z.string().refine((given) => secondsOf(given) !== undefined, 'write a duration of Go, such as 1m30s')

const entry = z.strictObject({
  group: text,
  version: text,
  kind: text,
  chart: text,
  watchDependentResources: z.literal(true, ALWAYS_WATCHED).optional(),
  overrideValues: z.record(z.string(), z.string()).optional(),
  selector: labelSelector.optional(),
  reconcilePeriod: period.optional(),
  maxConcurrentReconciles: z.int().min(1).optional(),
  dryRunOption: z.undefined({ error: NO_CLUSTER }).optional(),
})

/**
 * Reads a watches.yaml. Paths of charts are relative to its folder. Rejects with an Error that names the entry and the
 * field that is wrong, or that is not offered.
 */
export async function readWatches(file: string): Promise<Watch[]> {
  const wrong = (what: string, cause?: unknown) => new Error(`${file}: ${what}`, { cause })
  const content = await readFile(file, 'utf8').catch((cause: NodeJS.ErrnoException) => {
    throw new Error(`cannot read ${file}: ${cause.code === 'ENOENT' ? 'there is no such file' : cause.message}`, {
      cause,
    })
  })
  const { success, data, error } = z.array(entry).min(1).safeParse(parsed(content, wrong))
  if (!success) throw wrong(error.issues.map(issueText).join('; '), error)
  const known = new Map<string, number>()
  for (const [index, { group, version, kind }] of data.entries()) {
    const name = `${group}/${version} ${kind}`
    const first = known.get(name)
    if (first !== undefined) throw wrong(`[${index}] watches ${name} again, as [${first}] does: remove one of them`)
    known.set(name, index)
  }
  return data.map((one) => ({
    group: one.group,
    version: one.version,
    kind: one.kind,
    chart: resolve(dirname(file), one.chart),
    overrides: one.overrideValues ?? {},
    selector: one.selector && (selectorText(one.selector) || undefined),
    periodSeconds: (one.reconcilePeriod && secondsOf(one.reconcilePeriod)) || undefined,
    concurrency: one.maxConcurrentReconciles,
  }))
}

function parsed(content: string, wrong: (what: string, cause: unknown) => Error): unknown {
  try {
    return parse(content)
  } catch (cause) {
    throw wrong((cause as Error).message.replace(/:?\n.*/s, ''), cause)
  }
}

const issueText = ({ path, message, ...issue }: z.core.$ZodIssue): string => {
  const where = path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`)).join('') || 'the file'
  return issue.code === 'unrecognized_keys'
    ? `${where} has ${issue.keys.join(', ')}, which is not offered: remove it`
    : `${where}: ${message.replace(/^Invalid input: /, '')}`
}

function selectorText({ matchLabels = {}, matchExpressions = [] }: z.output<typeof labelSelector>): string {
  const expressions = matchExpressions.map(({ key, operator, values = [] }) => {
    if (operator === 'Exists') return key
    if (operator === 'DoesNotExist') return `!${key}`
    return `${key} ${operator === 'In' ? 'in' : 'notin'} (${values.join(', ')})`
  })
  return [...Object.entries(matchLabels).map(([key, value]) => `${key}=${value}`), ...expressions].join(',')
}
