import { styleText } from 'node:util'

export interface Moment {
  /** Milliseconds since the epoch. */
  at: number
  what: string
  detail: string
  /** The moment that made this one happen; left out: the one before. */
  cause?: Moment | undefined
}

export interface Painter {
  (style: 'dim' | 'bold' | 'green' | 'cyan', text: string): string
}

export const plain: Painter = (_style, text) => text
export const coloured: Painter = (style, text) => styleText(style, text, { validateStream: false })

const seconds = (ms: number) => `${(ms / 1000).toFixed(3).padStart(9)} s`
const since = (ms: number) =>
  (ms < 10_000 ? `+${ms.toFixed(ms < 100 ? 1 : 0)} ms` : `+${(ms / 1000).toFixed(1)} s`).padStart(11)

export const heading = (paint: Painter): string =>
  paint('dim', `${'time'.padStart(11)}  ${'since cause'.padStart(11)}  what`)

/** One line: when, how long after its cause, what happened. */
export function formatMoment(moment: Moment, start: number, paint: Painter): string {
  const delay = moment.cause === undefined ? ''.padStart(11) : since(moment.at - moment.cause.at)
  return `${seconds(moment.at - start)}  ${paint('dim', delay)}  ${paint('cyan', moment.what.padEnd(13))}  ${moment.detail}`
}
