import type { FieldChange, ResourceRef } from '#contracts'
import { duration } from '#process/exit'
import { type Html, html } from '../html.ts'

/** How a thing stands: each has a colour and a shape, so that no one has to see the colour. */
export type Tone = 'good' | 'busy' | 'wait' | 'bad' | 'idle' | 'warn'

const SHAPES: Record<Tone, Html> = {
  good: html`<circle cx="6" cy="6" r="4"/>`,
  busy: html`<path d="M6 1.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zm0 1.4v6.2a3.1 3.1 0 0 1 0-6.2z"/>`,
  wait: html`<path d="M6 1.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zm-.8 2h1.6v2.2l1.6 1-.8 1.3-2.4-1.5z"/>`,
  bad: html`<path d="M6 1l5.4 9.6H.6z"/>`,
  idle: html`<path d="M6 2a4 4 0 1 0 0 8 4 4 0 0 0 0-8zm0 1.6a2.4 2.4 0 1 1 0 4.8 2.4 2.4 0 0 1 0-4.8z"/>`,
  warn: html`<path d="M2 2h8v8H2z"/>`,
}

export const badge = (tone: Tone, text: string): Html =>
  html`<span class="badge ${tone}"><svg viewBox="0 0 12 12" width="10" height="10" aria-hidden="true">${SHAPES[tone]}</svg>${text}</span>`

/** How long ago. The page counts it up by itself. */
export const ago = (time: string | Date, now: Date): Html =>
  timed('ago', time, now.getTime() - new Date(time).getTime())
/** How long until then. */
export const ahead = (time: string | Date, now: Date): Html =>
  timed('ahead', time, new Date(time).getTime() - now.getTime())

function timed(which: 'ago' | 'ahead', time: string | Date, ms: number): Html {
  const moment = new Date(time).toISOString()
  return html`<time class="${which}" datetime="${moment}" title="${moment}">${duration(ms)}</time>`
}

/** A command for a shell, with a button that copies it. */
export const command = (text: string): Html =>
  html`<div class="command"><code>${text}</code><button type="button" class="quiet" data-copy="${text}">Copy</button></div>`

export const section = (title: string, body: Html, beside?: Html): Html =>
  html`<section><h2>${title}${beside}</h2>${body}</section>`

export const empty = (title: string, say: string | Html): Html =>
  html`<div class="empty"><p><strong>${title}</strong></p><p>${say}</p></div>`

const note = (tone: Tone, title: string, say: string | Html): Html =>
  html`<div class="note ${tone}"><p><strong>${title}</strong></p><div>${say}</div></div>`

/** The page keeps its last state meanwhile. */
export const awayNote = (server: string, why: string): Html =>
  note(
    'bad',
    server === 'The console' ? 'The console is busy.' : `${server} does not answer.`,
    html`${why}<br>The page goes on by itself when it is back.`,
  )

/** Pairs of a name and what it is. */
export const facts = (rows: readonly (readonly [name: string, value: Html | string | undefined])[]): Html =>
  html`<dl>${rows.filter(([, value]) => value !== undefined).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`

/** Narrow screens show each row as a card, which names its cells. */
export function table(caption: string, head: readonly string[], rows: readonly (readonly (Html | string)[])[]): Html {
  return html`<div class="scroll"><table><caption class="hidden">${caption}</caption>
<thead><tr>${head.map((title) => html`<th scope="col">${title}</th>`)}</tr></thead>
<tbody>${rows.map((cells) => html`<tr>${cells.map((cell, index) => html`<td data-name="${head[index]}"><div>${cell}</div></td>`)}</tr>`)}</tbody></table></div>`
}

const VALUE_CHARS = 400
const CHANGES_SHOWN = 100

/** Field by field, with a sign besides the colour. */
export function changes(found: readonly FieldChange[]): Html {
  const lines = found.slice(0, CHANGES_SHOWN).map(({ path, ...values }) => {
    const [was, is] = ['before' in values, 'after' in values]
    const [sign, tone] = !was ? ['+', 'added'] : !is ? ['−', 'removed'] : ['~', 'changed']
    return html`<li class="${tone}"><span class="sign">${sign}</span><code class="path">${path}</code> ${was && html`<del>${shortValue(values.before)}</del>`} ${is && html`<ins>${shortValue(values.after)}</ins>`}</li>`
  })
  const more = found.length - lines.length
  return html`<ul class="changes">${lines}${more > 0 && html`<li>… and ${more} more</li>`}</ul>`
}

function shortValue(value: unknown): string {
  const text = JSON.stringify(value) ?? '-'
  return text.length > VALUE_CHARS ? `${text.slice(0, VALUE_CHARS)}…` : text
}

/** A choice of a form that only looks. */
export const choice = (label: string, name: string, options: readonly string[], chosen: string | undefined): Html =>
  html`<label>${label}<select name="${name}"><option value="">all</option>${options.map((one) => html`<option ${one === chosen && html`selected`}>${one}</option>`)}</select></label>`

export const field = (label: string, name: string, value: string | undefined, hint = ''): Html =>
  html`<label>${label}<input name="${name}" value="${value ?? ''}" placeholder="${hint}" autocomplete="off" spellcheck="false"></label>`

const NONE = '_'
const joined = (...parts: string[]): string => `/${parts.map(encodeURIComponent).join('/')}`

/** `websites.example.com` */
export const kindPart = ({ resource, group }: Pick<ResourceRef, 'resource' | 'group'>): string =>
  group === '' ? resource : `${resource}.${group}`

const namespacePart = (namespace: string | undefined): string => namespace ?? NONE
export const namespaceIn = (part: string): string | undefined => (part === NONE || part === '' ? undefined : part)

export const objectPath = (kind: string, namespace: string | undefined, name: string): string =>
  joined('objects', kind, namespacePart(namespace), name)

export const previewPath = (reconciler: string, namespace: string | undefined, name: string): string =>
  joined('preview', reconciler, namespacePart(namespace), name)

export const runPath = (run: number): string => `/runs/${run}`
export const letterPath = (id: number): string => `/dead/${id}`

/** Adds the parameters that have a value. */
export function withQuery(path: string, query: Record<string, string | undefined>): string {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined || value === '' ? [] : [[name, value] as [string, string]],
  )
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given).toString()}`
}

/** Returns a parameter, unless it is empty. */
export function given(url: URL, name: string): string | undefined {
  const value = url.searchParams.get(name)?.trim()
  return value === '' || value === undefined ? undefined : value
}
