import { toList } from '#console/access'
import { namespacedName, type ResourceRef } from '#contracts'
import { placeInNamespace, type Row, type State } from '#inspect'
import { STATES } from '#inspect/states'
import { oneLine } from '#process/exit'
import { type Html, html } from '../html.ts'
import { type Ask, type Page, permitted, primaries } from './page.ts'
import { ago, ahead, badge, choice, empty, field, given, kindPart, objectPath, type Tone, withQuery } from './parts.ts'

/** Rows of a page that no script extends. */
const PAGE = 100
/** Rows of one request for a window. */
const WINDOW = 300

type Kinds = Map<string, ResourceRef & { kind: string }>

export async function queuePage(ask: Ask): Promise<Page> {
  const { url, abilities } = ask
  const reconciler = given(url, 'reconciler')
  const from = Math.max(0, Number(given(url, 'from') ?? 0) || 0)
  const names = [...(await primaries(ask)).keys()].sort()
  const { rows, isCut } = await selectedRows(ask).catch((error: unknown) => {
    if (given(url, 'from') === undefined) throw error
    return { rows: [], isCut: false }
  })
  const kinds = await primaries(ask)
  const filters = html`<form class="filters" data-filters action="/queue">
${choice('Reconciler', 'reconciler', reconciler !== undefined && !names.includes(reconciler) ? [reconciler, ...names] : names, reconciler)}
${choice('State', 'state', STATES, given(url, 'state'))}
${field('Namespace', 'namespace', given(url, 'namespace'))}
${field('Name contains', 'name', given(url, 'name'))}
<label class="check"><input type="checkbox" name="errors" value="only" ${given(url, 'errors') !== undefined && html`checked`}>with an error</label>
<button>Show</button></form>`
  const next =
    from + PAGE < rows.length &&
    withQuery('/queue', { ...Object.fromEntries(url.searchParams), from: String(from + PAGE) })
  return {
    title: 'Queue',
    section: 'queue',
    everyMs: 400,
    head: html`<h1>Queue</h1>${filters}`,
    foot: html`${abilities.writes && bulk()}<table class="rows${abilities.writes && ' acting'}" data-rows="/queue/rows${url.search}" data-total="${rows.length}" data-from="${from}" aria-rowcount="${rows.length}">
<caption class="hidden">Keys that are queued, running, waiting or parked</caption>
<thead><tr>${abilities.writes && html`<th scope="col" class="pick"><span class="hidden">Selected</span></th>`}<th scope="col" class="key">Object</th><th scope="col" class="state">State</th><th scope="col" class="since">Since</th><th scope="col" class="fails">Failures</th><th scope="col" class="detail">Detail</th></tr></thead>
<tbody>${rowsHtml(ask, rows.slice(from, from + PAGE), from, kinds)}</tbody></table>
<p class="pager">${next !== false && html`<a href="${next}">Next ${PAGE}</a>`}</p>`,
    regions: { count: counted(rows, isCut), version: html`<span data-version="${versionOf(rows)}"></span>` },
  }
}

function counted(rows: readonly Row[], isCut: boolean): Html {
  if (rows.length === 0) return empty('No key matches.', 'Idle objects are not listed: they run when they change.')
  const counts = STATES.map((state) => [state, rows.filter((row) => row.state === state).length] as const)
  const states = counts
    .filter(([, count]) => count > 0)
    .map(([state, count]) => `${count.toLocaleString('en')} ${state}`)
  const more = isCut ? ' Only the first 20,000 keys are shown.' : ''
  return html`<p class="counted" aria-live="polite">${rows.length.toLocaleString('en')} ${rows.length === 1 ? 'key' : 'keys'}: ${states.join(', ')}.${more}</p>`
}

/** A window of the table, for the script. */
export async function queueRows(ask: Ask): Promise<{ total: number; from: number; rows: Html }> {
  const { rows } = await selectedRows(ask)
  const whole = (name: string) => Math.max(0, Math.trunc(Number(given(ask.url, name) ?? 0)) || 0)
  const from = Math.min(whole('from'), rows.length)
  const to = Math.min(whole('to'), from + WINDOW, rows.length)
  const kinds = await primaries(ask)
  return { total: rows.length, from, rows: rowsHtml(ask, rows.slice(from, to), from, kinds) }
}

const ORDER: Record<State, number> = { running: 0, queued: 1, waiting: 2, parked: 3 }

/** What the filters of the address select, and the person may see. */
export async function selectedRows(ask: Ask): Promise<{ rows: Row[]; isCut: boolean }> {
  const { url } = ask
  const [reconciler, state, namespace, name] = ['reconciler', 'state', 'namespace', 'name'].map((one) =>
    given(url, one),
  )
  const isFailing = given(url, 'errors') !== undefined
  const { rows, isCut } = await ask.data.queue(reconciler)
  const matching = rows.filter(
    (row) =>
      (reconciler === undefined || row.reconciler === reconciler) &&
      (state === undefined || row.state === state) &&
      (namespace === undefined || (row.namespace ?? '_') === namespace) &&
      (name === undefined || row.name.includes(name)) &&
      (!isFailing || row.error !== undefined),
  )
  const kinds = await primaries(ask)
  const seen = await seenRows(ask, matching, kinds)
  return { rows: seen.sort((a, b) => ORDER[a.state] - ORDER[b.state] || a.since.localeCompare(b.since)), isCut }
}

/** The keys of the objects that the person may list. */
export const seenRows = (ask: Ask, rows: readonly Row[], kinds: Kinds): Promise<Row[]> =>
  permitted(ask, rows, (row) => toList(kindOf(kinds, row), row.namespace))

/** The keys of a Reconciler that is gone are shown to whoever may list Reconcilers. */
const kindOf = (kinds: Kinds, { reconciler }: Row): Pick<ResourceRef, 'group' | 'resource'> =>
  kinds.get(reconciler) ?? { group: 'fairlead.dev', resource: 'reconcilers' }

const TONES: Record<State, Tone> = { queued: 'idle', running: 'busy', waiting: 'wait', parked: 'warn' }

export const stateBadge = ({ state, error }: Row): Html =>
  badge(error === undefined ? TONES[state] : 'bad', error !== undefined && state === 'waiting' ? 'failing' : state)

function rowsHtml(ask: Ask, rows: readonly Row[], from: number, kinds: Kinds): Html {
  return html`${rows.map((row, index) => {
    const { reconciler, namespace, name } = row
    const kind = kinds.get(reconciler)
    const called = namespacedName({ namespace, name })
    const key = JSON.stringify([reconciler, namespace ?? null, name])
    const shown = html`<span class="of">${reconciler}</span> <bdi>${called}</bdi>`
    return html`<tr aria-rowindex="${from + index + 2}" data-key="${key}">${ask.abilities.writes && html`<td class="pick"><input type="checkbox" aria-label="Select ${reconciler} ${called}"></td>`}
<td class="key" title="${called}">${kind ? html`<a href="${objectPath(kindPart(kind), namespace, name)}">${shown}</a>` : shown}</td>
<td class="state">${stateBadge(row)}</td><td class="since">${ago(row.since, ask.now)}</td><td class="fails">${row.attempt}</td>
<td class="detail">${detailOf(row, ask.now)}</td></tr>`
  })}`
}

/** As `fairlead queue ls` has it, with times that go on. */
export function detailOf(row: Row, now: Date): Html {
  const { state, error, orphaned, finalizer, until } = row
  const why = error === undefined ? html`` : html`: <span class="error" title="${error}">${oneLine(error, 240)}</span>`
  const left = until === undefined ? html`` : ahead(until, now)
  if (orphaned)
    return html`its Reconciler does not exist${finalizer === undefined ? why : html`; the object waits for <code>${finalizer}</code>`}`
  if (state === 'queued') return html`${row.lane} lane, place ${row.position ?? '?'}${placeInNamespace(row)}${why}`
  if (state === 'running') return html`by ${row.by ?? row.owner ?? '?'}${row.dirty && ', changed meanwhile'}`
  if (state === 'waiting') return row.reason === 'Error' ? html`retry in ${left}${why}` : html`timer in ${left}`
  return row.reason === 'Withdrawn' ? html`by hand${why}` : html`until something changes${why}`
}

/** Changes with the rows: then the script asks for its window again. */
function versionOf(rows: readonly Row[]): string {
  let hash = 0
  for (const { reconciler, namespace = '', name, state, attempt, since, dirty } of rows) {
    const text = `${reconciler} ${namespace} ${name} ${state} ${attempt} ${since} ${dirty}`
    for (let index = 0; index < text.length; index++) hash = (Math.imul(hash, 31) + text.charCodeAt(index)) | 0
  }
  return `${rows.length}-${hash >>> 0}`
}

const bulk = (): Html => html`<div class="bulk" data-bulk hidden><span data-picked aria-live="polite"></span>
<button type="button" data-act="run">Run now</button><button type="button" data-act="retry">Retry</button><button type="button" data-act="park">Park</button>
<button type="button" data-act="purge" data-confirm="Purge: what they are due is forgotten">Purge</button>
<button type="button" data-stop hidden>Stop</button>
<button type="button" class="quiet" data-pick="all">Select all that match</button><button type="button" class="quiet" data-pick="none">Clear</button></div>`
