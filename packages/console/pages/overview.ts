import { TO_LIST_RECONCILERS, toList } from '#console/access'
import type { KubeObject } from '#contracts'
import { conditionOf, type Row, wordsOf } from '#inspect'
import { oneLine } from '#process/exit'
import { isRefused, keepsStatus, readReconciler } from '#spec'
import type { ReconcilerCounts, Unready } from '../data/data.ts'
import { type Html, html } from '../html.ts'
import { type Ask, type Page, permitted, primaries, primaryOf } from './page.ts'
import { ago, awayNote, badge, empty, kindPart, objectPath, section, type Tone, table, withQuery } from './parts.ts'
import { seenRows, stateBadge } from './queue.ts'

const CAUSES_SHOWN = 10
/** An object that has been without Ready for less time is probably starting. */
const LONG_MS = 5 * 60_000

/** What fails and what is not ready, most urgent first; then every reconciler, and what it has to do. */
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
  const failingRows = isAway ? [] : (await data.queue()).rows.filter(isFailing)
  const failures = Map.groupBy(mayList ? failingRows : [], ({ reconciler }) => reconciler)
  const rows = all.map((one) => row(one, failures.get(one.name)?.length ?? 0, now))
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
      failing: isAway || all.length === 0 ? html`` : await failing(ask, all, failingRows),
      unready: isAway || !mayList ? html`` : await unready(ask, found, failingRows),
      totals: totals(all.flatMap(({ counts }) => counts ?? [])),
      reconcilers: section('Reconcilers', rows.length === 0 ? none : table('Reconcilers', HEAD, rows)),
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

/** A key that a person has parked does not fail. */
const isFailing = ({ error, reason }: Row): boolean => error !== undefined && reason !== 'Withdrawn'

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
    stateBadgeOf({ object, counts }),
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

/** How a Reconciler as a whole stands: the first that is not as it should be. */
interface Stand {
  tone: Tone
  word: string
  /** Why its objects do not run, and what helps. Left out: they run, or a person wants it so. */
  why?: string
  since?: Date | string | undefined
}

function standOf({ object, counts }: Pick<Known, 'object' | 'counts'>): Stand {
  const since = counts?.oldest
  if (object === undefined)
    return {
      tone: 'warn',
      word: 'no Reconciler',
      why: 'The Reconciler was deleted, and keys of it are left: install its function again, or purge them.',
      since,
    }
  const spec = readReconciler(object)
  if (isRefused(spec)) return { tone: 'bad', word: 'refused', why: spec.message }
  if (spec.paused) return { tone: 'warn', word: 'paused' }
  const synced = conditionOf(object, 'Synced')
  if (synced?.status === 'False')
    return { tone: 'bad', word: 'not watched', why: wordsOf(synced), since: synced.lastTransitionTime }
  if (counts !== undefined && !counts.isServed)
    return { tone: 'bad', word: 'not served', why: 'No dispatcher runs its function: start one that has it.', since }
  if (synced?.status !== 'True') return { tone: 'wait', word: 'not watched yet' }
  return spec.dryRun ? { tone: 'warn', word: 'dry run' } : { tone: 'good', word: 'serving' }
}

function stateBadgeOf(known: Pick<Known, 'object' | 'counts'>): Html {
  const { tone, word } = standOf(known)
  return badge(tone, word)
}

const FAILING_HEAD = ['State', 'Object', 'Reconciler', 'Namespace', 'Since', 'Cause']

/** Reconcilers whose objects do not run, then objects that fail: one row for each cause, those of most objects first. */
async function failing(ask: Ask, all: readonly Known[], rows: readonly Row[]): Promise<Html> {
  const kinds = await primaries(ask)
  const broken = all.flatMap((one) => {
    const { tone, word, why, since } = standOf(one)
    return why === undefined
      ? []
      : [[badge(tone, word), 'all', reconcilerLink(one.name), 'all', sinceOf(since, ask), why]]
  })
  const causes = Map.groupBy(await seenRows(ask, rows, kinds), causeOf)
  const ranked = [...causes.values()].sort((a, b) => b.length - a.length)
  const shown = await Promise.all(ranked.slice(0, CAUSES_SHOWN).map((own) => causeRow(ask, own, kinds)))
  const more = ranked.length - shown.length
  const link = html` <a href="/queue?errors=only">all</a>`
  if (broken.length + shown.length === 0)
    return section(
      'Failing',
      empty('Nothing fails.', 'Every Reconciler is watched and served, and no object waits to be tried again.'),
    )
  return section(
    'Failing',
    html`${table('What fails', FAILING_HEAD, [...broken, ...shown])}
${more > 0 && html`<p class="dim">… and ${more} more causes</p>`}`,
    rows.length > 0 ? link : undefined,
  )
}

const reconcilerLink = (name: string): Html => html`<a href="${withQuery('/queue', { reconciler: name })}">${name}</a>`
const sinceOf = (since: Date | string | undefined, { now }: Ask): Html =>
  since === undefined ? html`–` : ago(since, now)

/** The same error of another object of the namespace has the same cause, although it names that object. */
const causeOf = ({ reconciler, namespace = '', name, error = '', state }: Row): string =>
  JSON.stringify([reconciler, namespace, state, error.replaceAll(name, '*')])

async function causeRow(
  ask: Ask,
  own: readonly Row[],
  kinds: Awaited<ReturnType<typeof primaries>>,
): Promise<(Html | string)[]> {
  // It fails longest.
  const [first] = own.toSorted((a, b) => b.attempt - a.attempt || a.since.localeCompare(b.since))
  if (first === undefined) return []
  const { reconciler, namespace, name, error = '', since } = first
  const ref = kinds.get(reconciler)
  const object =
    own.length > 1
      ? html`<a href="${withQuery('/queue', { reconciler, namespace: namespace ?? '_', errors: 'only' })}">${own.length} objects</a>`
      : ref
        ? html`<a href="${objectPath(kindPart(ref), namespace, name)}"><bdi>${name}</bdi></a>`
        : html`<bdi>${name}</bdi>`
  return [
    stateBadge(first),
    object,
    reconciler,
    namespace ?? '–',
    sinceOf((ref && (await ask.data.failingSince(reconciler, { ref, namespace, name }))) ?? since, ask),
    html`<span class="error clamp" title="${error}">${oneLine(error, 400)}</span>`,
  ]
}

/** Objects whose runs succeed, and that are not Ready for long: one row for each cause, those of most objects first. */
async function unready(ask: Ask, reconcilers: readonly KubeObject[], failingRows: readonly Row[]): Promise<Html> {
  const served = reconcilers.flatMap((object) => {
    const spec = readReconciler(object)
    if (isRefused(spec) || !keepsStatus(spec)) return []
    const { group, version, resource } = spec.for
    return [{ ref: { group, version, resource }, kind: kindPart(spec.for), name: object.metadata.name }]
  })
  const byKind = Map.groupBy(served, ({ kind }) => kind)
  const refs = [...byKind.values()].flatMap(([first]) => first?.ref ?? [])
  if (refs.length === 0) return html``
  const { objects, isCut } = await ask.data.unready(refs)
  const fails = new Set(failingRows.map(({ reconciler, namespace, name }) => keyOf(reconciler, namespace, name)))
  const namesOf = ({ ref }: Unready) => (byKind.get(kindPart(ref)) ?? []).map(({ name }) => name)
  const long = objects.filter(
    (one) =>
      ask.now.getTime() - Date.parse(one.since) >= LONG_MS &&
      namesOf(one).every((name) => !fails.has(keyOf(name, one.namespace, one.name))),
  )
  const seen = await permitted(ask, long, ({ ref, namespace }) => toList(ref, namespace))
  if (seen.length === 0) return html``
  const causes = Map.groupBy(seen, ({ ref, namespace = '', name, why }) =>
    JSON.stringify([kindPart(ref), namespace, why.replaceAll(name, '*')]),
  )
  const ranked = [...causes.values()]
    .map((own) => own.toSorted((a, b) => a.since.localeCompare(b.since)))
    .sort((a, b) => b.length - a.length)
  const rows = ranked.slice(0, CAUSES_SHOWN).flatMap(([first, ...others]) => {
    if (first === undefined) return []
    const { ref, namespace, name, since, why } = first
    const link = html`<a href="${objectPath(kindPart(ref), namespace, name)}"><bdi>${name}</bdi></a>`
    const object = others.length === 0 ? link : html`${link} and ${shownNumber(others.length)} more`
    const cause = html`<span class="clamp" title="${why}">${oneLine(why, 400)}</span>`
    return [
      [badge('wait', 'not ready'), object, namesOf(first).join(', '), namespace ?? '–', ago(since, ask.now), cause],
    ]
  })
  const more = ranked.length - rows.length
  return section(
    'Not ready',
    html`${table('What is not ready', FAILING_HEAD, rows)}
${more > 0 && html`<p class="dim">… and ${more} more causes</p>`}${isCut && html`<p class="dim">Only the first 20,000 objects are shown.</p>`}`,
  )
}

const keyOf = (reconciler: string, namespace: string | undefined, name: string): string =>
  JSON.stringify([reconciler, namespace ?? null, name])
