import { harmless } from '#process/exit'

/** Markup that may be sent as it is: made by html`` only. */
export class Html {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

type Value = Html | string | number | undefined | false | readonly Value[]

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }
/** Marks of direction that `harmless` leaves, as they turn nothing round in a terminal. */
const DIRECTION = /[\u061c\u200e\u200f]/g

/** Names and messages are other people's: markup, control characters and marks of direction become visible text. */
const escaped = (text: string): string =>
  harmless(text)
    .replaceAll(DIRECTION, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .replaceAll(/[&<>"']/g, (character) => ENTITIES[character] ?? '')

function textOf(value: Value): string {
  if (value instanceof Html) return value.text
  if (value === undefined || value === false) return ''
  return typeof value === 'object' ? value.map(textOf).join('') : escaped(String(value))
}

/**
 * Lets the addresses in pages of a cluster begin with its path. Texts of others have no double quote, so they are never taken
 * for an address.
 */
export const within = (path: string, { text }: Html): Html =>
  new Html(text.replaceAll(/ (href|action|data-rows)="\/(?!assets\/|clusters")/g, ` $1="${path}/`))

/** Every value is escaped but for markup made by the same tag. Attributes belong in double quotes. */
export const html = (strings: TemplateStringsArray, ...values: Value[]): Html =>
  new Html(strings.reduce((text, part, index) => text + textOf(values[index - 1]) + part))
