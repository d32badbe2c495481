import { clearInterval, setInterval } from 'node:timers'
import { setTimeout as sleep } from 'node:timers/promises'
import { styleText } from 'node:util'
import { CausalOrder, type Moment, type NamedMoment } from './causal-order.ts'

export interface Painter {
  (style: 'dim' | 'bold' | 'green' | 'cyan', text: string): string
}

export const plain: Painter = (_style, text) => text
export const coloured: Painter = (style, text) => styleText(style, text, { validateStream: false })

const seconds = (ms: number) => `${(ms / 1000).toFixed(3).padStart(9)} s`
const since = (ms: number) =>
  (ms < 10_000 ? `+${ms.toFixed(ms < 100 ? 1 : 0)} ms` : `+${(ms / 1000).toFixed(1)} s`).padStart(11)

const heading = (paint: Painter): string => paint('dim', `${'time'.padStart(11)}  ${'since cause'.padStart(11)}  what`)

/** Formats one line: the time, the delay after its cause, and the event. */
function formatMoment(moment: Moment, start: number, paint: Painter): string {
  const delay = moment.cause === undefined ? ''.padStart(11) : since(moment.at - moment.cause.at)
  return `${seconds(moment.at - start)}  ${paint('dim', delay)}  ${paint('cyan', moment.what.padEnd(13))}  ${moment.detail}`
}

const SHOWN_EVERY_MS = 50

export interface Timeline {
  /** Adds a moment. Ignored before begin() and after end(). */
  add(told: NamedMoment): void
  begin(): void
  /** Resolves when every added moment has its cause, or no longer waits for it. */
  explained(): Promise<void>
  /** Prints the moments that were still delayed. */
  end(): void
}

/** Prints one line for each moment in causal order, shortly after it happened. */
export function timelineOn(out: NodeJS.WritableStream, paint: Painter, now: () => number): Timeline {
  const held = new CausalOrder(now)
  let start: number | undefined
  let timer: NodeJS.Timeout | undefined
  const show = (moments: readonly Moment[]) => {
    for (const moment of moments) out.write(`${formatMoment(moment, start ?? 0, paint)}\n`)
  }
  return {
    add(told) {
      if (start !== undefined) held.add(told)
    },
    begin() {
      out.write(`\n${heading(paint)}\n`)
      start = now()
      timer = setInterval(() => show(held.takeDue()), SHOWN_EVERY_MS)
    },
    async explained() {
      while (!held.isExplained) await sleep(SHOWN_EVERY_MS)
    },
    end() {
      clearInterval(timer)
      show(held.takeAll())
      start = undefined
    },
  }
}
