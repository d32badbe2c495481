import { namespacedName } from '#contracts'
import { type Health, healthOf, type Relative, type Situation } from '#inspect'
import { type Html, html } from '../html.ts'
import { empty } from './parts.ts'
import { kindPart, objectPath } from './paths.ts'

const ROW = 46
const INDENT = 26
const SHOWN = 60

/** The object, what it owns (solid lines), and what it names (dashed ones): drawn by hand, so that it fits any width. */
export function tree({ target, object, reconcilers }: Situation): Html {
  const nodes = [
    ...reconcilers.flatMap(({ owned }) => owned.map((one) => ({ one, isOwned: true }))),
    ...reconcilers.flatMap(({ named }) => named.map((one) => ({ one, isOwned: false }))),
  ]
  if (nodes.length === 0)
    return empty('It owns nothing.', 'Objects that a run creates for it stand here, with their health.')
  const shown = nodes.slice(0, SHOWN)
  const last = shown.length * ROW + ROW / 2
  const root: Relative = { ...target, ...(object && { object }) }
  const lines = shown.map(({ isOwned }, index) => {
    const y = (index + 1) * ROW + ROW / 2
    return html`<path class="${isOwned ? 'owned' : 'related'}" d="M${INDENT / 2} ${index === 0 ? ROW / 2 + 10 : y - ROW}V${y}H${INDENT + 4}"/>`
  })
  const more = nodes.length - shown.length
  return html`<svg class="tree" width="100%" height="${last + ROW / 2}" role="group" aria-label="Owned and named objects">${lines}
${node(root, 0, 0, undefined)}${shown.map(({ one, isOwned }, index) => node(one, INDENT, (index + 1) * ROW, isOwned))}</svg>
${more > 0 && html`<p class="dim">… and ${more} more</p>`}`
}

const WORDS: Record<Health['is'], string> = {
  healthy: 'healthy',
  progressing: 'progressing',
  failed: 'failed',
  missing: 'missing',
  unknown: 'not known',
}

function node(one: Relative, x: number, y: number, isOwned: boolean | undefined): Html {
  const { is, why } = healthOf(one)
  const called = namespacedName(one)
  const health = `${isOwned === false ? 'named; ' : ''}${WORDS[is]}${why === undefined ? '' : `: ${why}`}`
  const marks = {
    healthy: html`<circle cx="${x + 13}" cy="${y + 23}" r="6"/>`,
    progressing: html`<circle class="hollow" cx="${x + 13}" cy="${y + 23}" r="5"/>`,
    failed: html`<path d="M${x + 13} ${y + 15}l8 14h-16z"/>`,
    missing: html`<path class="hollow" d="M${x + 8} ${y + 18}h10v10h-10z"/>`,
    unknown: html`<path d="M${x + 8} ${y + 18}h10v10h-10z"/>`,
  }
  const text = html`<g class="${is}">${marks[is]}</g><text x="${x + 30}" y="${y + 20}"><tspan class="kind">${one.kind}</tspan> <tspan class="name">${called}</tspan></text><text class="health" x="${x + 30}" y="${y + 37}">${health}</text>`
  const label = `${one.kind} ${called}: ${health}`
  return isOwned === undefined
    ? html`<g role="img" aria-label="${label}">${text}</g>`
    : html`<a href="${objectPath(kindPart(one.ref), one.namespace, one.name)}"><title>${label}</title>${text}</a>`
}
