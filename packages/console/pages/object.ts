import { toGet, toList } from '#console/access'
import { controllerOf, namespacedName } from '#contracts'
import {
  type Asked,
  conditionsOf,
  type Explanation,
  explain,
  type Finding,
  type Health,
  healthOf,
  type Known,
  nameOf,
  type ReconcilerSituation,
  type Relative,
  reachOf,
  type Situation,
  type Target,
  untoldBy,
  wordsOf,
  writersOf,
} from '#inspect'
import { UsageError } from '#process/exit'
import { isRefused, readReconciler } from '#spec'
import { type Html, html } from '../html.ts'
import { history, toneOf } from './history.ts'
import { type Ask, NotFoundError, type Page, permitted } from './page.ts'
import {
  ago,
  awayNote,
  badge,
  command,
  facts,
  kindPart,
  namespaceIn,
  objectPath,
  previewPath,
  section,
  type Tone,
} from './parts.ts'
import { detailOf, stateBadge } from './queue.ts'
import { maySee, withSeenCauses } from './record-kinds.ts'
import { runRows } from './runs.ts'

/** Shows what `fairlead explain` prints, with links to each thing that it names. */
export async function objectPage(ask: Ask): Promise<Page> {
  const [kind = '', place = '', name = ''] = ask.params
  const situation = await seen(ask, { kind, namespace: namespaceIn(place), name })
  const { target } = situation
  const explanation = explain(situation)
  const untold = untoldBy(situation, explanation)
  const runs = situation.natsAway === undefined ? await runsOf(ask, situation) : []
  const called = namespacedName(target)
  const kinds = new Map(
    situation.reconcilers.map(({ object }) => [nameOf(object), { ...target.ref, kind: target.kind }]),
  )
  return {
    title: `${target.kind} ${called}`,
    section: 'none',
    everyMs: 2000,
    head: html`<p class="crumb">${target.kind} <code>${kindPart(target.ref)}</code></p><h1><bdi>${called}</bdi></h1>`,
    regions: {
      ...(situation.natsAway !== undefined && { notice: awayNote('NATS', situation.natsAway) }),
      ...(situation.apiAway !== undefined && { notice: awayNote('The API server', situation.apiAway) }),
      summary: summary(situation, explanation),
      acts: acts(ask, situation),
      tree: section('Owner, owned and named objects', tree(situation, untold)),
      runs:
        runs.length === 0
          ? section(
              'Runs',
              html`<p class="dim">None is recorded. By default only runs that write something or fail are.</p>`,
            )
          : section('Runs', runRows('Runs of this object', runs.slice(0, 8), kinds, ask.now, untold)),
      history: history(situation, runs, ask.now, untold),
      side: side(ask, situation, untold),
    },
  }
}

/** Returns the situation without the parts that the person may not see. */
async function seen(ask: Ask, asked: Asked): Promise<Situation> {
  await demandRight(ask, await ask.data.target(asked).catch(asNotFound))
  const situation = await ask.data.situation(asked).catch(asNotFound)
  // The API server may have come back meanwhile, and may know the names better.
  await demandRight(ask, situation.target)
  const { ref, namespace, name } = situation.target
  const maySeePods = await ask.may(toList({ group: '', resource: 'pods' }, namespace))
  const relatives = async (all: readonly Relative[]) => {
    const seen = await permitted(ask, all, (one) => toGet(one.ref, one.namespace, one.name))
    return maySeePods ? seen : seen.map(({ stuckPod: _hidden, ...one }) => one)
  }
  const reconcilers = await Promise.all(
    situation.reconcilers.map(async (one) => ({
      ...withoutHidden(one, await relatives(one.owned)),
      named: await relatives(one.named),
    })),
  )
  const elsewhere = await permitted(ask, situation.elsewhere, (one) => toGet(ref, one.split('/')[0], name))
  const maySeeEvents = await ask.may(toList({ group: '', resource: 'events' }, namespace))
  return { ...situation, reconcilers, elsewhere, events: maySeeEvents ? situation.events : [] }
}

function asNotFound(error: unknown): never {
  if (error instanceof UsageError) throw new NotFoundError(error.message, { cause: error })
  throw error
}

async function demandRight(ask: Ask, { ref, namespace, name, kind }: Target): Promise<void> {
  if (await ask.may(toGet(ref, namespace, name))) return
  throw new NotFoundError(`${ask.person.name} may not get ${kind} ${name}: ask for the right to get ${kindPart(ref)}`)
}

/** An owned object that the person may not see is not missing. */
function withoutHidden(situation: ReconcilerSituation, owned: Relative[]): ReconcilerSituation {
  const { lastRun } = situation
  const called = ({ kind, namespace, name }: Pick<Relative, 'kind' | 'namespace' | 'name'>) =>
    JSON.stringify([kind, namespace, name])
  const hidden = new Set(situation.owned.filter((one) => !owned.includes(one)).map(called))
  if (lastRun === undefined || hidden.size === 0) return { ...situation, owned }
  const declared = lastRun.declared.filter((one) => !hidden.has(called(one)))
  return { ...situation, owned, lastRun: { ...lastRun, declared } }
}

async function runsOf(ask: Ask, { reconcilers, target }: Situation) {
  const { namespace, name } = target
  const all = await Promise.all(
    reconcilers.map(({ object }) =>
      ask.data.runsOf({ reconciler: nameOf(object), ...(namespace !== undefined && { namespace }), name }),
    ),
  )
  const own = await Promise.all(all.flat().map(async (run) => ((await maySee(ask, run)) ? [run] : [])))
  return (await withSeenCauses(ask, own.flat())).sort((a, b) => b.sequence - a.sequence)
}

const LEVELS: Record<Finding['level'], [Tone, string]> = {
  problem: ['bad', 'Problem'],
  unknown: ['warn', 'Not known'],
  pending: ['busy', 'Under way'],
  note: ['idle', 'Note'],
}

function summary(situation: Situation, { healthy, findings, next }: Explanation): Html {
  const isThere = situation.object !== undefined
  const tone = !isThere ? 'idle' : healthy ? 'good' : LEVELS[findings[0]?.level ?? 'problem'][0]
  const verdict = !isThere
    ? badge('idle', 'not there')
    : healthy && html`${badge('good', 'healthy')} <span class="dim">Nothing has to be done.</span>`
  const step =
    next &&
    html`<div class="step"><h2>Next step</h2><p>${next.say}</p>${next.command !== undefined && command(next.command)}</div>`
  const list = findings.map(
    ({ level, message, reconciler, next: own }) =>
      html`<li>${badge(...LEVELS[level])}<span class="clamp" title="${message}">${reconciler !== undefined && html`<span class="of">${reconciler}</span> `}${message}${level === 'note' && own && html` <span class="dim">${own.say}</span>`}</span></li>`,
  )
  return html`<div class="summary ${tone}">${verdict && html`<p class="verdict">${verdict}</p>`}
${list.length > 0 && html`<ul class="findings">${list}</ul>`}${step}</div>`
}

function acts({ abilities }: Ask, { reconcilers, target }: Situation): Html {
  if (!abilities.writes && abilities.preview === undefined) return html``
  const { namespace, name } = target
  const buttons = reconcilers.map(({ object }) => {
    const reconciler = nameOf(object)
    const key = JSON.stringify([reconciler, namespace ?? null, name])
    const act = (which: string, label: string) =>
      html`<button type="button" data-act="${which}" data-key="${key}">${label}</button>`
    return html`<p class="buttons">${reconcilers.length > 1 && html`<span class="of">${reconciler}</span>`}
${abilities.writes && html`${act('run', 'Run now')}${act('retry', 'Retry')}${act('park', 'Park')}`}
${abilities.preview !== undefined && html`<a class="button" href="${previewPath(reconciler, namespace, name)}">Preview the next run</a>`}</p>`
  })
  const publish =
    abilities.writes && abilities.publish !== undefined
      ? html`<p class="buttons"><button type="button" class="quiet" data-act="publish" data-object="${JSON.stringify([kindPart(target.ref), namespace ?? null, name])}">Publish its event again</button></p>`
      : html``
  return html`${buttons}${publish}`
}

const KNOWN: Record<Known, [Tone, string]> = {
  yes: ['good', 'yes'],
  no: ['bad', 'no'],
  'not known': ['warn', 'not known'],
}

type Untold = ReturnType<typeof untoldBy>

/** What a finding says is not said again. */
function side(ask: Ask, situation: Situation, untold: Untold): Html {
  const { object, reconcilers, events } = situation
  const conditions = conditionsOf(object).map(({ type, status, lastTransitionTime: since, reason, message = '' }) =>
    entry(
      html`${type} ${badge(toneOf({ type, status }), status)}`,
      since,
      wordsOf({ type, status, reason, message: untold(message) }),
      ask.now,
    ),
  )
  const reported = events.map(({ type, reason, message, count, last }) =>
    entry(
      html`${badge(type === 'Warning' ? 'bad' : 'idle', reason)}${count > 1 && ` ×${count}`}`,
      last,
      untold(message),
      ask.now,
    ),
  )
  const finalizers = object?.metadata.finalizers ?? []
  const writers = writersOf(object).map(
    ({ manager = '-', time, subresource }) =>
      html`<li><code>${manager}</code>${subresource !== undefined && html` <span class="dim">${subresource}</span>`}${time !== undefined && html` ${ago(time, ask.now)} ago`}</li>`,
  )
  return html`${reconcilers.map((one) => reconcilerFacts(one, situation, ask.now, untold))}
${conditions.length > 0 && section('Conditions', html`<ul class="plain entries">${conditions}</ul>`)}
${reported.length > 0 && section('Events', html`<ul class="plain entries">${reported}</ul>`)}
${finalizers.length > 0 && section('Finalizers', html`<ul class="plain">${finalizers.map((one) => html`<li><code>${one}</code></li>`)}</ul>`)}
${section('Changed by', html`<ul class="plain">${writers}</ul>`)}`
}

const entry = (head: Html, since: string | undefined, text: string, now: Date): Html =>
  html`<li><p class="beside"><span>${head}</span><span class="dim">${since !== undefined && ago(since, now)}</span></p>${text !== '' && html`<p class="clamp dim" title="${text}">${text}</p>`}</li>`

function reconcilerFacts(one: ReconcilerSituation, situation: Situation, now: Date, untold: Untold): Html {
  const { watched, selected, served } = reachOf(one, situation)
  const spec = readReconciler(one.object)
  const held = isRefused(spec)
    ? [badge('bad', 'refused')]
    : [spec.paused && badge('warn', 'paused'), spec.dryRun && badge('warn', 'dry run')]
  const rows = one.rows?.map(
    (row) =>
      html`<p>${stateBadge(row)} since ${ago(row.since, now)}${row.attempt > 0 && html`, ${row.attempt} ${row.attempt === 1 ? 'failure' : 'failures'} in a row`}<br><span class="dim clamp">${detailOf({ ...row, error: untold(row.error ?? '') || undefined }, now)}</span></p>`,
  )
  const queue =
    rows === undefined ? badge('warn', 'not known') : rows.length === 0 ? badge('good', 'idle') : html`${rows}`
  const missing = one.missingRights ?? []
  return section(
    `Reconciler ${nameOf(one.object)}`,
    facts([
      ['Watched', badge(...KNOWN[watched])],
      ['Selected', badge(...KNOWN[selected])],
      ['Served', badge(...KNOWN[served])],
      ['Held', held.some((mark) => mark !== false) ? html`${held}` : undefined],
      ['Queue', queue],
      ['Rights missing', missing.length === 0 ? undefined : html`${missing.join(', ')}`],
    ]),
  )
}

const SHOWN = 60
const URGENCY: Record<Health['is'], number> = { failed: 0, missing: 1, unknown: 2, progressing: 3, healthy: 4 }
const HEALTHS: Record<Health['is'], [Tone, string]> = {
  healthy: ['good', 'healthy'],
  progressing: ['busy', 'progressing'],
  failed: ['bad', 'failed'],
  missing: ['bad', 'missing'],
  unknown: ['warn', 'not known'],
}

/** The object below its owner and above what it owns (solid lines) and names (dashed lines): first what it waits for. */
function tree({ target, object, reconcilers }: Situation, untold: Untold): Html {
  const nodes = [
    ...reconcilers.flatMap(({ owned }) => owned.map((one) => ({ one, line: 'owned' }))),
    ...reconcilers.flatMap(({ named }) => named.map((one) => ({ one, line: 'named' }))),
  ].sort((a, b) => URGENCY[healthOf(a.one).is] - URGENCY[healthOf(b.one).is])
  const owner = object && controllerOf(object)
  if (nodes.length === 0 && owner === undefined)
    return html`<p class="dim">None. Objects that a run creates for it stand here, with their health.</p>`
  const more = nodes.length - SHOWN
  const children = html`${nodes.slice(0, SHOWN).map(({ one, line }) => html`<li class="${line}">${node(one, line, untold)}</li>`)}
${more > 0 && html`<li class="dim">… and ${more} more</li>`}`
  const self = html`<span class="kind">${target.kind}</span> <strong><bdi>${namespacedName(target)}</bdi></strong>${nodes.length > 0 && html`<ul>${children}</ul>`}`
  if (owner === undefined) return html`<ul class="tree"><li>${self}</li></ul>`
  const { kind, apiVersion, name } = owner
  const group = apiVersion.includes('/') ? apiVersion.replace(/\/.*/, '') : ''
  const path = objectPath(kindPart({ resource: kind.toLowerCase(), group }), target.namespace, name)
  return html`<ul class="tree"><li><span class="kind">${kind}</span> <a href="${path}"><bdi>${name}</bdi></a> <span class="dim">owner</span><ul><li class="owned">${self}</li></ul></li></ul>`
}

function node(one: Relative, line: string, untold: Untold): Html {
  const { is, why } = healthOf(one)
  return html`<span class="kind">${one.kind}</span> <a href="${objectPath(kindPart(one.ref), one.namespace, one.name)}"><bdi>${namespacedName(one)}</bdi></a> ${badge(...HEALTHS[is])}${line === 'named' && html` <span class="dim">named in its spec</span>`}${why !== undefined && untold(why) !== '' && html`<p class="dim">${why}</p>`}`
}
