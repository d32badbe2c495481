import { toList } from '#console/access'
import type { ResourceRef, RunResult } from '#contracts'
import type { StoredRun } from '#events'
import { becauseOf, tookMs, waitedMs, writesText } from '#inspect'
import { duration, oneLine } from '#process/exit'
import { type Html, html } from '../html.ts'
import { type Ask, type Page, primaries } from './page.ts'
import { ago, badge, choice, empty, field, given, kindPart, objectPath, runPath, type Tone, table } from './parts.ts'
import { maySee, withSeenCauses } from './record-kinds.ts'

const RESULTS: Record<RunResult, [Tone, string]> = {
  success: ['good', 'success'],
  requeue_after: ['good', 'success, timer set'],
  error: ['bad', 'error'],
  terminal: ['bad', 'failed for good'],
  fenced: ['warn', 'lease lost'],
}

export const resultBadge = (result: RunResult): Html => badge(...RESULTS[result])

type Kinds = Map<string, ResourceRef & { kind: string }>

/** Runs that are recorded, the newest first. */
export async function runsPage(ask: Ask): Promise<Page> {
  const { url } = ask
  const kinds = await primaries(ask)
  const [reconciler, namespace, name] = ['reconciler', 'namespace', 'name'].map((one) => given(url, one))
  const result = given(url, 'result')
  const selection = { reconciler, namespace, name, result: isResult(result) ? result : undefined }
  const found = await ask.data.recentRuns(selection)
  const runs = await seenRuns(ask, found)
  return {
    title: 'Runs',
    section: 'runs',
    everyMs: 1000,
    head: html`<h1>Runs</h1><form class="filters" data-filters action="/runs">
${choice('Reconciler', 'reconciler', [...kinds.keys()].sort(), reconciler)}
${choice('Result', 'result', Object.keys(RESULTS), result)}
${field('Namespace', 'namespace', namespace)}${field('Name', 'name', name)}<button>Show</button></form><p><a href="/runs/latest">The last run, as it happens</a></p>`,
    regions: {
      runs:
        runs.length === 0
          ? empty(
              'No such run is recorded.',
              'Only runs that write something or fail are recorded, unless FAIRLEAD_RUNS is off.',
            )
          : html`<section>${runRows('Recorded runs', runs, kinds, ask.now)}</section>`,
    },
  }
}

/** The runs of objects that the person may list, without the names of causes that they may not get. */
async function seenRuns(ask: Ask, runs: readonly StoredRun[]): Promise<StoredRun[]> {
  const isSeen = await Promise.all(runs.map((run) => maySee(ask, run, toList)))
  return withSeenCauses(
    ask,
    runs.filter((_, index) => isSeen[index]),
  )
}

const isResult = (text: string | undefined): text is RunResult => text !== undefined && Object.hasOwn(RESULTS, text)
const CAUSE_CHARS = 140

/** `untold`: the runs are of one object, whose page leaves out what it has told. */
export function runRows(
  caption: string,
  runs: readonly StoredRun[],
  kinds: Kinds,
  now: Date,
  untold?: (text: string) => string,
): Html {
  const isOfOne = untold !== undefined
  const rows = runs.map(({ sequence, record }) => {
    const { reconciler, namespace, name, result, message, endedAt } = record
    const kind = kinds.get(reconciler)
    const called = html`<span class="of">${reconciler}</span> <bdi>${namespace !== undefined && `${namespace}/`}${name}</bdi>`
    const object = kind ? html`<a href="${objectPath(kindPart(kind), namespace, name)}">${called}</a>` : called
    const why =
      message === undefined || untold?.(message) === ''
        ? oneLine(becauseOf(record), CAUSE_CHARS)
        : html`<span class="error">${oneLine(message, CAUSE_CHARS)}</span>`
    return [
      html`<a href="${runPath(sequence)}">${sequence}</a>`,
      html`${ago(endedAt, now)}`,
      ...(isOfOne ? [] : [object]),
      resultBadge(result),
      duration(waitedMs(record)),
      duration(tookMs(record)),
      writesText(record),
      html`${why}`,
    ]
  })
  const head = ['Run', 'Ended', ...(isOfOne ? [] : ['Object']), 'Result', 'Waited', 'Took', 'Writes', 'Because']
  return table(caption, head, rows)
}
