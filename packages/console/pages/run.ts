import { type LapRecord, type LogLine, namespacedName, type RunRecord, type WriteRecord } from '#contracts'
import type { StoredRun } from '#events'
import {
  becauseOf,
  changeText,
  failureText,
  type InputChange,
  inputChanges,
  lineOffset,
  linesLeftOut,
  tookMs,
  waitedMs,
} from '#inspect'
import { duration } from '#process/exit'
import { differences } from '#reconcile'
import { type Html, html } from '../html.ts'
import { type Ask, NotFoundError, type Page, primaries } from './page.ts'
import { ago, badge, changes, empty, facts, kindPart, objectPath, runPath, section, type Tone } from './parts.ts'
import { kindsSeen, maySee, type Seen, seenChanges, withSeenCauses } from './record-kinds.ts'
import { resultBadge } from './runs.ts'

/** One run from its causes to what it wrote. */
export async function runPage(ask: Ask): Promise<Page> {
  const { run, before, after } = await demandRun(ask)
  const { record, sequence } = run
  const { reconciler, namespace, name, result, message } = record
  const kind = (await primaries(ask)).get(reconciler)
  const object = namespacedName({ namespace, name })
  const may = await kindsSeen(ask, record)
  const [seen = run] = await withSeenCauses(ask, [run])
  const changed = await seenChanges(ask, inputChanges(record, before?.record))
  const neighbours = html`<nav class="neighbours" aria-label="Runs of the object">${before ? html`<a href="${runPath(before.sequence)}">Run before</a>` : html`<span class="dim">First on record</span>`}${after ? html`<a href="${runPath(after.sequence)}">Run after</a>` : html`<span class="dim">Latest</span>`}</nav>`
  return {
    title: `Run ${sequence} of ${reconciler} ${object}`,
    section: 'runs',
    head: html`<p class="crumb">Run ${sequence} of ${reconciler}</p>
<h1>${kind ? html`<a href="${objectPath(kindPart(kind), namespace, name)}"><bdi>${object}</bdi></a>` : html`<bdi>${object}</bdi>`}</h1>${neighbours}
<p class="verdict">${resultBadge(result)} ${ago(record.endedAt, ask.now)} ago${message !== undefined && html`: <span class="error">${message}</span>`}</p>`,
    regions: {
      phases: section('Time', phases(record)),
      causes: section('Why it came', causes(seen.record, changed, may)),
      laps: section(
        'What it decided and wrote',
        html`<ol class="laps">${record.laps.map((lap, index) => lapHtml(lap, index, may))}</ol>`,
      ),
      log: runLog(record, may.all),
      side: side(ask, run, may.all),
    },
  }
}

/** The run that ended last, and each later one when it ends. */
export async function latestRunPage(ask: Ask): Promise<Page> {
  const kinds = await primaries(ask)
  const runs = (await ask.data.recentRuns({})).filter(({ record }) => kinds.has(record.reconciler))
  for (const { sequence, record } of runs) {
    const kind = kinds.get(record.reconciler)
    if (kind === undefined || !(await maySee(ask, { record }))) continue
    const page = await runPage({ ...ask, params: [String(sequence)] })
    return { ...page, title: 'Last run', everyMs: 700, head: html``, regions: { top: page.head, ...page.regions } }
  }
  const none = empty('No run is recorded yet.', 'By default only runs that write something or fail are recorded.')
  return { title: 'Last run', section: 'runs', everyMs: 700, head: html`<h1>Last run</h1>`, regions: { top: none } }
}

/** The record as `fairlead runs get` prints it: a file for `fairlead replay --from` and for tests. */
export async function runRecord(ask: Ask): Promise<string> {
  const { run } = await demandRun(ask)
  if (!(await kindsSeen(ask, run.record)).all)
    throw new NotFoundError('the record has objects of kinds that you may not get')
  return `${JSON.stringify(run.record)}\n`
}

/** The run, the one of its object that is recorded before it, and the one after it. */
async function demandRun(
  ask: Ask,
): Promise<{ run: StoredRun; before: StoredRun | undefined; after: StoredRun | undefined }> {
  const sequence = Number(ask.params[0])
  const found = Number.isSafeInteger(sequence) && sequence > 0 ? await ask.data.run(sequence) : undefined
  if (found === undefined || !(await maySee(ask, found)))
    throw new NotFoundError(
      `there is no run ${ask.params[0]} any more, or you may not see it: RUNS keeps the last 20 of each object`,
    )
  const all = await ask.data.runsOf(found.record)
  const index = all.findIndex((one) => one.sequence === sequence)
  return {
    run: all[index] ?? found,
    before: index < 0 ? undefined : all[index + 1],
    after: index < 0 ? undefined : all[index - 1],
  }
}

/** How long it was queued, and how long it ran, to scale. */
function phases(record: RunRecord): Html {
  const [waited, took] = [waitedMs(record), tookMs(record)]
  const share = Math.min(96, Math.max(4, (100 * waited) / Math.max(1, waited + took)))
  const label = `Queued for ${duration(waited)}, ran for ${duration(took)}`
  return html`<figure class="phases"><svg width="100%" height="18" role="img" aria-label="${label}"><rect class="queued" x="0" y="2" height="14" width="${share.toFixed(2)}%" rx="3"/><rect class="ran" x="${share.toFixed(2)}%" y="2" height="14" width="${(100 - share).toFixed(2)}%" rx="3"/></svg>
<figcaption><span class="key queued">queued ${duration(waited)}</span> <span class="key ran">ran ${duration(took)}</span></figcaption></figure>`
}

function causes(record: RunRecord, changed: readonly InputChange[], may: Seen): Html {
  const rows = changed.map((change) => {
    const kind = change.object.split(/[. ]/)[0] ?? ''
    return html`<li>${changeText(change)}${change.fields.length > 0 && may.kind(kind) && changes(change.fields)}</li>`
  })
  const differs = html`<p>What differs from the run before:</p><ul class="causes">${rows}</ul>`
  return html`<p>${becauseOf(record)}</p>${rows.length > 0 && differs}`
}

function lapHtml(lap: LapRecord, index: number, may: Seen): Html {
  const { error, outcome, isSame, writes } = lap
  const said =
    error !== undefined
      ? html`<span class="error">failed: ${failureText(lap)}</span>`
      : isSame || outcome === undefined
        ? html`returned the same`
        : may.all
          ? html`returned <details><summary>${Object.keys(outcome).join(', ') || 'nothing'}</summary><pre>${JSON.stringify(outcome, null, 2)}</pre></details>`
          : html`returned ${Object.keys(outcome).join(', ')} <span class="dim">(you may not get every kind in it)</span>`
  return html`<li><p class="call">Call ${index + 1}: ${said}</p>${writes.map((write) => writeHtml(write, may))}</li>`
}

function writeHtml(write: WriteRecord, may: Seen): Html {
  const { verb, kind, namespace, name, error, unchanged, differences: found, patch } = write
  const fields = found ?? (patch === undefined ? [] : differences(undefined, patch))
  if (!may.kind(kind))
    return html`<div class="write"><p><span class="verb">${verb}</span> ${kind}${error !== undefined && html` <span class="error">refused</span>`}</p><p class="dim">You may not get ${kind}: its name and what changed are not shown.</p></div>`
  const object = namespacedName({ namespace, name })
  return html`<div class="write"><p><span class="verb">${verb}</span> ${kind} <bdi>${object}</bdi>${error !== undefined && html` <span class="error">refused: ${error}</span>`}${unchanged && html` <span class="dim">unchanged</span>`}</p>${fields.length > 0 && changes(fields)}</div>`
}

function side(ask: Ask, { sequence, record }: StoredRun, mayDownload: boolean): Html {
  const {
    process,
    lane,
    attempt,
    cpuMs,
    requests,
    traceId,
    revision,
    requeueAt,
    leftOut,
    queuedAt,
    startedAt,
    endedAt,
  } = record
  const download =
    mayDownload &&
    html`<a class="button" href="/runs/${sequence}/record" download="run-${sequence}.json">Download the record</a>`
  const replay =
    ask.abilities.replay !== undefined &&
    html`<a class="button" href="/runs/${sequence}/replay">Replay on the function as it is</a>`
  return html`${section(
    'Facts',
    facts([
      ['Queued', html`<code>${queuedAt}</code>`],
      ['Started', html`<code>${startedAt}</code>`],
      ['Ended', html`<code>${endedAt}</code>`],
      ['Runs again', requeueAt === undefined ? undefined : html`<code>${requeueAt}</code>`],
      ['Process', html`<code>${process}</code>`],
      ['Lane', lane],
      ['Failures before', String(attempt)],
      ['Requests that write', String(requests)],
      ['CPU', cpuMs === undefined ? undefined : `${cpuMs.toFixed(1)} ms`],
      ['Revision', revision === undefined ? undefined : html`<code>${revision}</code>`],
      ['Trace', traceId === undefined ? undefined : html`<code>${traceId}</code>`],
      ['Left out', leftOut.length === 0 ? undefined : leftOut.join('; ')],
    ]),
  )}<p class="buttons">${download}${replay}</p>
${traceId !== undefined && html`<p class="dim">In the log and in a tracing system, the lines and spans of this run have the trace ID.</p>`}`
}

const TONES: Record<LogLine['level'], Tone> = { info: 'idle', warn: 'warn', error: 'bad' }

/** What the function logged. A line may quote every object of the run: `mayAll`, the person may get all its kinds. */
function runLog(record: RunRecord, mayAll: boolean): Html {
  const { lines = [] } = record.log ?? {}
  const rest = linesLeftOut(record)
  const shown = !mayAll
    ? html`<p class="dim">You may not get every kind of this run: ${lines.length} ${lines.length === 1 ? 'line is' : 'lines are'} not shown.</p>`
    : html`<ol class="lines">${lines.map((line) => lineHtml(record, line))}</ol>`
  const none = html`<p class="dim">No line is recorded: the function has logged nothing, or only debug lines.</p>`
  return section(
    'What it logged',
    html`${lines.length > 0 ? shown : rest === undefined && none}${rest !== undefined && html`<p class="dim">${rest}</p>`}`,
  )
}

function lineHtml(record: RunRecord, line: LogLine): Html {
  const { at, level, message, fields, withoutFields } = line
  const more = withoutFields
    ? html`<span class="dim">its fields are too large, or are not JSON</span>`
    : fields && html`<code>${JSON.stringify(fields)}</code>`
  return html`<li><code class="when" title="${at}">${lineOffset(record, line)}</code> ${badge(TONES[level], level)} <span>${message} ${more}</span></li>`
}
