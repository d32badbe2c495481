import type { Refusal } from '#console/access'
import type { AwayError } from '../data/data.ts'
import { type Html, html, within } from '../html.ts'
import type { Ask, Page, Section } from './page.ts'
import { awayNote, badge, table } from './parts.ts'

const SECTIONS: [Section, path: string, label: string][] = [
  ['overview', '/', 'Overview'],
  ['queue', '/queue', 'Queue'],
  ['runs', '/runs', 'Runs'],
  ['events', '/events', 'Events'],
  ['usage', '/usage', 'Usage'],
  ['dead', '/dead', 'Dead letters'],
]

/** Addresses of the files that every page loads. */
export interface Linked {
  styles: readonly string[]
  script: string
}

interface ClusterRow {
  name: string
  /** The beginning of the addresses of its pages. */
  path: string
  labels: Record<string, string>
  /** Why it cannot be shown as a whole. */
  away: string | undefined
}

const styles = (assets: Linked): Html[] => assets.styles.map((path) => html`<link rel="stylesheet" href="${path}">`)

/** The whole document. It is complete without a script; the script keeps it up to date. */
export function layout(ask: Pick<Ask, 'person' | 'abilities' | 'url' | 'cluster'>, page: Page, assets: Linked): string {
  const { title, section, head, regions, foot, everyMs } = page
  const { pathname, search } = ask.url
  const { name, path = '' } = ask.cluster ?? {}
  const region = (id: string, markup: Html) => html`<div id="r-${id}" class="region">${markup}</div>`
  const { side, notice, ...others } = regions
  const parts = Object.entries(others).map(([id, markup]) => region(id, markup))
  const body = side
    ? html`<div class="columns"><div>${parts}</div><aside aria-label="Facts">${region('side', side)}</aside></div>`
    : html`${parts}`
  const document = html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>${title} – ${name && `${name} – `}Fairlead</title>
<link rel="icon" href="data:,">${styles(assets)}<script type="module" src="${assets.script}"></script></head>
<body data-path="${path}" data-live="${everyMs === undefined ? '' : `${pathname}${search}`}"><a class="skip" href="#main">Skip to the page</a>
<header><a class="brand" href="/"><svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true"><circle cx="12" cy="12" r="9"/><circle cx="12" cy="12" r="3.5"/><path d="M12 3v5.5M12 15.5V21"/></svg>Fairlead</a>
${name && html`<p class="cluster"><a href="/clusters" title="Choose another cluster">cluster ${name}</a></p>`}<nav aria-label="Sections">${SECTIONS.map(([id, path, label]) => html`<a href="${path}" ${id === section && html`aria-current="page"`}>${label}</a>`)}</nav>
<form class="find" action="/objects" role="search"><input name="object" aria-label="Find an object: KIND/NAME" placeholder="kind/name" required autocomplete="off" spellcheck="false"><input name="namespace" aria-label="Namespace" placeholder="namespace" autocomplete="off" spellcheck="false"><button>Open</button></form>
<p class="status"><span id="live" class="live" ${everyMs === undefined && html`hidden`}>live</span>${ask.abilities.writes ? html`<span class="mode writes">writes on</span>` : html`<span class="mode">read only</span>`}</p></header>
<main id="main" class="${section}"><div id="r-notice" class="region" role="status">${notice}</div><div id="report" role="status" aria-live="polite"></div><div class="head">${head}</div>${body}${foot}</main>
<footer><p>Signed in as ${ask.person.name}. <button type="button" class="quiet" data-keys>Keys</button></p></footer>
<dialog id="keys" aria-label="Keys"><h2>Keys</h2><dl><div><dt><kbd>g</kbd> <kbd>o</kbd></dt><dd>Overview</dd></div><div><dt><kbd>g</kbd> <kbd>q</kbd></dt><dd>Queue</dd></div><div><dt><kbd>g</kbd> <kbd>r</kbd></dt><dd>Runs</dd></div><div><dt><kbd>g</kbd> <kbd>e</kbd></dt><dd>Events</dd></div><div><dt><kbd>g</kbd> <kbd>u</kbd></dt><dd>Usage</dd></div><div><dt><kbd>g</kbd> <kbd>d</kbd></dt><dd>Dead letters</dd></div><div><dt><kbd>/</kbd></dt><dd>Find an object</dd></div><div><dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>Next and previous row</dd></div><div><dt><kbd>?</kbd></dt><dd>These keys</dd></div></dl><form method="dialog"><button>Close</button></form></dialog>
</body></html>`
  return within(path, document).text
}

/** The page of a console with several clusters on which a person chooses one. */
export function clustersDocument(clusters: readonly ClusterRow[], assets: Linked): string {
  const rows = clusters.map(({ name, path, labels, away }) => [
    html`<a href="${path}/">${name}</a>`,
    Object.entries(labels)
      .map((pair) => pair.join('='))
      .join(', '),
    away === undefined ? badge('good', 'answers') : html`${badge('bad', 'away')} ${away}`,
  ])
  return html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>Clusters – Fairlead</title><link rel="icon" href="data:,">${styles(assets)}</head>
<body><main><h1>Clusters</h1>${table('Clusters', ['Cluster', 'Labels', 'State'], rows)}</main></body></html>`.text
}

/** Why a part of the page is not what it should be, above it. */
export const noticeOf = ({ server, message }: AwayError): Html => awayNote(server, message)

/** A page of its own for what cannot be shown. */
export const troublePage = (title: string, say: Html | string): Page => ({
  title,
  section: 'none',
  head: html`<h1>${title}</h1><p>${say}</p><p><a href="/">Overview</a></p>`,
  regions: {},
})

const TITLES = { 401: 'Sign in', 403: 'Not allowed', 503: 'Busy' }

/** The page for a person who is not let in. `takesToken`: a token in the address signs in. */
export function refusalDocument(
  status: Refusal['status'],
  message: string,
  assets: Linked,
  takesToken: boolean,
): string {
  const title = TITLES[status]
  const form =
    status === 401 &&
    takesToken &&
    html`<form class="filters" action="/"><label>Token<input name="token" type="password" autocomplete="off" required></label><button>Open</button></form>`
  return html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>${title} – Fairlead</title><link rel="icon" href="data:,">${styles(assets)}</head>
<body><main class="alone"><h1>${title}</h1><p>${message[0]?.toUpperCase()}${message.slice(1)}.</p>${form}</main></body></html>`
    .text
}
