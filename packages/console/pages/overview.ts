import { TO_LIST_RECONCILERS } from '#console/access'
import type { KubeObject } from '#contracts'
import { conditionOf, type Row } from '#inspect'
import { isRefused, readReconciler } from '#spec'
import type { ReconcilerCounts } from '../data/data.ts'
import { type Html, html } from '../html.ts'
import { type Ask, type Page, primaries, primaryOf } from './page.ts'
import { ago, awayNote, badge, empty, kindPart, section, table, withQuery } from './parts.ts'
import { runRows, seenRuns } from './runs.ts'

const FAILED_SHOWN = 8

/** Every reconciler, and what it has to do. */
export async function overview(ask: Ask): Promise<Page> {
  const { data, now } = ask
  const mayList = await ask.may(TO_LIST_RECONCILERS)
  const away = await data.natsAway()
  const isAway = away !== undefined
  const found = mayList ? await data.reconcilers() : []
  const byName = new Map<string, KubeObject | undefined>(found.map((object) => [object.metadata.name, object]))
  // Keys of a Reconciler that was deleted.
  if (mayList && !isAway) for (const name of await data.queues()) if (!byName.has(name)) byName.set(name, undefined)
  const counts = isAway || !mayList ? undefined : await data.counts([...byName.keys()])
  const all = [...byName]
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([name, object]) => ({ name, object, counts: counts?.get(name) }))
  const failing = isAway || !mayList ? new Map<string, number>() : countFailing((await data.queue()).rows)
  const rows = all.map((one) => row(one, failing.get(one.name) ?? 0, now))
  const none = mayList
    ? empty(
        'No reconciler is installed.',
        html`<code>fairlead install -f FILE</code> installs those of a module, and <code>fairlead dev -f FILE</code> runs them here.`,
      )
    : empty('You may not list Reconcilers.', 'Ask for the right to list reconcilers.fairlead.dev.')
  return {
    title: 'Overview',
    section: 'overview',
    everyMs: 500,
    head: html`<h1>Overview</h1>`,
    regions: {
      ...(isAway && { notice: awayNote('NATS', away) }),
      totals: totals(all.flatMap(({ counts }) => counts ?? [])),
      reconcilers: section('Reconcilers', rows.length === 0 ? none : table('Reconcilers', HEAD, rows)),
      failed: isAway ? html`` : await failed(ask),
    },
  }
}

const HEAD = ['Name', 'Reconciles', 'State', 'Queued', 'Running', 'Waiting', 'Failing', 'Parked', 'Longest queued']

function totals(counts: readonly ReconcilerCounts[]): Html {
  const sum = (state: 'queued' | 'running' | 'waiting' | 'parked') =>
    counts.reduce((total, { depth }) => total + depth[state], 0)
  const tile = (state: 'queued' | 'running' | 'waiting' | 'parked', say: string) =>
    html`<a class="tile ${state}" href="${withQuery('/queue', { state })}"><span class="number">${shownNumber(sum(state))}</span> <span>${state}</span><small>${say}</small></a>`
  return html`<div class="tiles" aria-live="polite" aria-atomic="false">${tile('queued', 'due now')}${tile('running', 'in a process')}${tile('waiting', 'for a timer or a retry')}${tile('parked', 'until they change')}</div>`
}

const shownNumber = (count: number): string => count.toLocaleString('en')

function countFailing(rows: readonly Row[]): Map<string, number> {
  const found = new Map<string, number>()
  for (const { reconciler, error } of rows)
    if (error !== undefined) found.set(reconciler, (found.get(reconciler) ?? 0) + 1)
  return found
}

interface Known {
  name: string
  /** Undefined: there is none, but keys of it. */
  object: KubeObject | undefined
  counts: ReconcilerCounts | undefined
}

function row({ name, object, counts }: Known, failing: number, now: Date): (Html | string)[] {
  const primary = object && primaryOf(object)
  const link = (state: string | undefined, count: number | undefined) =>
    count === undefined
      ? '–'
      : count === 0
        ? html`<span class="zero">0</span>`
        : html`<a href="${withQuery('/queue', { reconciler: name, state })}">${shownNumber(count)}</a>`
  const { depth, oldest } = counts ?? {}
  return [
    html`<a class="name" href="${withQuery('/queue', { reconciler: name })}">${name}</a>`,
    primary ? html`<code>${kindPart(primary)}</code>` : '–',
    stateOf(object, counts),
    link('queued', depth?.queued),
    link('running', depth?.running),
    link('waiting', depth?.waiting),
    failing === 0
      ? html`<span class="zero">0</span>`
      : html`<a class="failing" href="${withQuery('/queue', { reconciler: name, errors: 'only' })}">${shownNumber(failing)}</a>`,
    link('parked', depth?.parked),
    oldest === undefined ? html`<span class="zero">–</span>` : ago(oldest, now),
  ]
}

/** The first that is not as it should be. */
function stateOf(object: KubeObject | undefined, counts: ReconcilerCounts | undefined): Html {
  if (object === undefined) return badge('warn', 'no Reconciler')
  const spec = readReconciler(object)
  if (isRefused(spec)) return badge('bad', 'refused')
  if (spec.paused) return badge('warn', 'paused')
  const synced = conditionOf(object, 'Synced')
  if (synced?.status === 'False') return badge('bad', `not watched: ${synced.reason ?? ''}`)
  if (counts !== undefined && !counts.isServed) return badge('bad', 'not served')
  if (synced?.status !== 'True') return badge('wait', 'not watched yet')
  return spec.dryRun ? badge('warn', 'dry run') : badge('good', 'serving')
}

async function failed(ask: Ask): Promise<Html> {
  const kinds = await primaries(ask)
  const found = await ask.data.recentRuns({ result: 'error' })
  const terminal = await ask.data.recentRuns({ result: 'terminal' })
  const seen = await seenRuns(ask, [...found, ...terminal])
  const shown = seen.sort((a, b) => b.sequence - a.sequence).slice(0, FAILED_SHOWN)
  if (shown.length === 0) return section('Failed lately', html`<p class="dim">No recorded run has failed lately.</p>`)
  return section(
    'Failed lately',
    runRows('Runs that failed lately', shown, kinds, ask.now),
    html` <a href="/runs?result=error">all</a>`,
  )
}
