import { type Action, TO_LIST_NAMESPACES, toList } from '#console/access'
import type { UsageRow } from '#events'
import { sumUsage, type UsageDimension, usageCells } from '#inspect'
import { html } from '../html.ts'
import { type Ask, type Page, permitted, primaries } from './page.ts'
import { empty, given, section, table, withQuery } from './parts.ts'

const DAY_MS = 86_400_000
const WINDOWS: Record<string, number> = { '1 day': 1, '7 days': 7, '30 days': 30, '365 days': 365 }
const DEFAULT_WINDOW = '30 days'
/** The longest table: the rest is one row. */
const MOST_ROWS = 200
const FIGURES = ['Runs', 'CPU', 'Requests', 'Writes', 'Stored']

/** What functions and namespaces have used, the most CPU time first. */
export async function usagePage(ask: Ask): Promise<Page> {
  const asked = given(ask.url, 'of') ?? ''
  const window = Object.hasOwn(WINDOWS, asked) ? asked : DEFAULT_WINDOW
  const days = WINDOWS[window] ?? 0
  const { rows, unchecked } = await seenRows(ask, await ask.data.usage(days * DAY_MS))
  const sums = async (title: string, by: UsageDimension) => {
    const all = await sumUsage([{ period: 'day', start: '', rows }], [by])
    const shown = all.slice(0, MOST_ROWS).map((sum) => [html`<bdi>${sum.of[0]}</bdi>`, ...usageCells(sum)])
    const more = all.length - shown.length
    return html`${table(title, [title, ...FIGURES], shown)}${more > 0 && html`<p class="dim">… and ${more} more</p>`}`
  }
  const none = empty('No usage that you may see is stored for this time.', 'Processes store it a minute after a run.')
  const hidden =
    unchecked > 0 &&
    html`<p class="dim">${unchecked} row${unchecked > 1 && 's'} of a function in a namespace ${unchecked > 1 ? 'are' : 'is'} hidden: the console checks a limited number of your permissions a second.</p>`
  const links = Object.keys(WINDOWS).map((one) =>
    one === window ? html`<strong>${one}</strong> ` : html`<a href="${withQuery('/usage', { of: one })}">${one}</a> `,
  )
  return {
    title: 'Usage',
    section: 'usage',
    everyMs: 10_000,
    head: html`<h1>Usage</h1><p>Of the last ${links}</p>`,
    regions: {
      hidden: html`${hidden}`,
      functions: rows.length === 0 ? none : section('By function', await sums('Function', 'function')),
      namespaces: rows.length === 0 ? html`` : section('By namespace', await sums('Namespace', 'namespace')),
    },
  }
}

/**
 * What the person may see: usage for objects that the person may list. Rows of the platform, and of functions without a
 * Reconciler, name namespaces only. `unchecked`: the number of rows that the person perhaps may see.
 */
async function seenRows(ask: Ask, all: readonly UsageRow[]): Promise<{ rows: UsageRow[]; unchecked: number }> {
  const kinds = await primaries(ask)
  const toSee = ({ function: name, namespace }: UsageRow): Action => {
    const kind = kinds.get(name)
    return kind === undefined ? TO_LIST_NAMESPACES : toList(kind, namespace)
  }
  const rows = await permitted(ask, all, toSee)
  const seen = new Set(rows)
  return { rows, unchecked: all.filter((row) => !seen.has(row) && ask.isUnchecked(toSee(row))).length }
}
