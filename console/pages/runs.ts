import { toGet, toList } from '#console/access'
import type { ResourceRef, RunResult } from '#contracts'
import type { StoredRun } from '#events'
import { duration, oneLine } from '#host/exit'
import { becauseOf, tookMs, waitedMs, writesIn } from '#inspect'
import { type Html, html } from '../html.ts'
import { type Ask, type Page, permitted, primaries } from './page.ts'
import { ago, badge, choice, empty, field, type Tone, table } from './parts.ts'
import { given, kindPart, objectPath, runPath } from './paths.ts'

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
  const known = found.filter(({ record }) => kinds.has(record.reconciler))
  const runs = await permitted(ask, known, ({ record }) =>
    toList(kinds.get(record.reconciler) ?? NO_KIND, record.namespace),
  )
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
              'By default only runs that write something or fail are recorded (FAIRLEAD_RUNS).',
            )
          : html`<section>${runRows('Recorded runs', runs, kinds, ask.now)}</section>`,
    },
  }
}

const NO_KIND = { group: '', resource: '' }
const isResult = (text: string | undefined): text is RunResult => text !== undefined && Object.hasOwn(RESULTS, text)
const CAUSE_CHARS = 140

export function runRows(
  caption: string,
  runs: readonly StoredRun[],
  kinds: Kinds,
  now: Date,
  { isOfOne = false } = {},
): Html {
  const rows = runs.map(({ sequence, record }) => {
    const { reconciler, namespace, name, result, message, endedAt } = record
    const kind = kinds.get(reconciler)
    const called = html`<span class="of">${reconciler}</span> <bdi>${namespace !== undefined && `${namespace}/`}${name}</bdi>`
    const object = kind ? html`<a href="${objectPath(kindPart(kind), namespace, name)}">${called}</a>` : called
    const why =
      message === undefined
        ? oneLine(becauseOf(record), CAUSE_CHARS)
        : html`<span class="error">${oneLine(message, CAUSE_CHARS)}</span>`
    return [
      html`<a href="${runPath(sequence)}">${sequence}</a>`,
      html`${ago(endedAt, now)}`,
      ...(isOfOne ? [] : [object]),
      resultBadge(result),
      duration(waitedMs(record)),
      duration(tookMs(record)),
      String(writesIn(record)),
      html`${why}`,
    ]
  })
  const head = ['Run', 'Ended', ...(isOfOne ? [] : ['Object']), 'Result', 'Waited', 'Took', 'Writes', 'Because']
  return table(caption, head, rows)
}

/** Whether the person may see a run: they may get its object. */
export async function maySee(ask: Ask, { record }: StoredRun): Promise<boolean> {
  const kind = (await primaries(ask)).get(record.reconciler)
  return kind !== undefined && ask.may(toGet(kind, record.namespace, record.name))
}
