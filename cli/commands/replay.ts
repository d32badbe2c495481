import { readFile } from 'node:fs/promises'
import { namespacedName, type RunRecord } from '#contracts'
import { viewRuns } from '#events'
import { failureText } from '#inspect'
import { EXIT, oneLine, showsStacks, UsageError } from '#process/exit'
import { functionNamed, namableFunctions } from '#process/functions'
import { openJetStream } from '#process/nats'
import { changeText, type ReplayedRun, recordsIn, replayRun } from '#testing'
import type { CommandContext } from '../options.ts'
import { demandRun } from './runs.ts'

export interface ReplayOptions {
  from?: string
  function: string[]
  output: 'text' | 'json'
}

/**
 * Replays recorded runs with the functions on disk. Reads records from NATS or from files; needs no cluster, and writes
 * nothing.
 */
export async function replayRuns(
  ids: readonly number[],
  options: ReplayOptions,
  context: CommandContext,
): Promise<void> {
  const records = await recordsOf(ids, options.from, context)
  const functions = await namableFunctions(options.function)
  const replayed: ReplayedRun[] = []
  for (const record of records) {
    const found = functionNamed(functions, record.reconciler)
    replayed.push(await replayRun(found, record).catch(asUsage))
  }
  if (options.output === 'json') context.print(JSON.stringify(replayed.map(jsonOf), null, 2))
  else context.print(replayed.map(textOf).join('\n\n'))
  if (replayed.some(({ isSame }) => !isSame)) context.setExitCode(EXIT.failed)
}

async function recordsOf(
  ids: readonly number[],
  from: string | undefined,
  { config }: CommandContext,
): Promise<RunRecord[]> {
  if ((from === undefined) === (ids.length === 0))
    throw new UsageError('give numbers of runs, or --from FILE, one of the two')
  if (from !== undefined) {
    const text = await readFile(from, 'utf8').catch((cause: Error) => {
      throw new UsageError(`cannot read ${from}: ${cause.message}`, { cause })
    })
    try {
      return recordsIn(text, from)
    } catch (error) {
      return asUsage(error as Error)
    }
  }
  const settings = await config()
  await using js = await openJetStream(settings, 'runs')
  const view = viewRuns(js, settings.FAIRLEAD_PREFIX)
  return await Promise.all(ids.map(async (id) => (await demandRun(view, id)).record))
}

/** Reports a file without a valid record as a usage error: exit code 1 means that decisions differ. */
const asUsage = (cause: Error): never => {
  throw new UsageError(cause.message, { cause })
}

const jsonOf = ({ record, calls, isSame }: ReplayedRun) => {
  const { id, reconciler, namespace, name, leftOut } = record
  return { id, reconciler, namespace, name, isSame, calls, leftOut }
}

function textOf({ record, calls, isSame }: ReplayedRun): string {
  const { id, reconciler, namespace, name, startedAt, leftOut } = record
  const head = `Run ${id} of ${reconciler} ${namespacedName({ namespace, name })}, ${startedAt}`
  const lines = calls.flatMap(({ call, differences, unstable, was, is, stack }) => {
    const frames = stack === undefined || !showsStacks(process.env) ? [] : [stack.replaceAll(/^/gm, '    ')]
    const isSameNow = differences.length + unstable.length === 0
    if (isSameNow && 'error' in is) return [`  call ${call}: as it was: ${decisionText(is)}`, ...frames]
    if (isSameNow) return [`  call ${call}: as it was`]
    const drawn = unstable.map((path) => `    ? ${path}: differs between two calls on the same input`)
    const changed =
      'error' in is || 'error' in was
        ? [`    then: ${decisionText(was)}`, `    now: ${decisionText(is)}`]
        : differences.map((one) => `    ${oneLine(changeText(one))}`)
    return [`  call ${call}: other than it was`, ...changed, ...frames, ...drawn]
  })
  const none = calls.length === 0 ? ['  the function was not called, or the record leaves out what it returned'] : []
  const ends = isSame ? 'It decides as it did.' : 'It decides otherwise than it did.'
  return [head, ...lines, ...none, `  left out of the record: ${leftOut.join('; ')}`, ends].join('\n')
}

const STATUS_CHARS = 120

/** Describes a decision in one line. */
function decisionText(decision: ReplayedRun['calls'][number]['is']): string {
  if ('error' in decision) return oneLine(`failed: ${failureText(decision)}`)
  const { apply = [], status, ...others } = decision.outcome
  const parts = [
    `${apply.length} ${apply.length === 1 ? 'object' : 'objects'}`,
    ...(status === undefined ? [] : [`status ${oneLine(JSON.stringify(status), STATUS_CHARS)}`]),
    ...Object.keys(others),
  ]
  return `returned ${parts.join(', ')}`
}
