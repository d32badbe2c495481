import type { LogLine, RunRecord } from '#contracts'
import { lineOffset, linesLeftOut } from '#inspect'
import { type Html, html } from '../html.ts'
import { badge, section, type Tone } from './parts.ts'

const TONES: Record<LogLine['level'], Tone> = { info: 'idle', warn: 'warn', error: 'bad' }

/** What the function logged. A line may quote every object of the run: `mayAll`, the person may get all its kinds. */
export function runLog(record: RunRecord, mayAll: boolean): Html {
  const { lines = [] } = record.log ?? {}
  const rest = linesLeftOut(record)
  const shown = !mayAll
    ? html`<p class="dim">You may not get every kind of this run: ${lines.length} ${lines.length === 1 ? 'line is' : 'lines are'} not shown.</p>`
    : html`<ol class="lines">${lines.map((line) => lineHtml(record, line))}</ol>`
  const none = html`<p class="dim">No line is recorded: the function has logged nothing, or only debug lines.</p>`
  return section(
    'What it logged',
    html`${lines.length > 0 ? shown : rest === undefined && none}${rest !== undefined && html`<p class="dim">${rest}</p>`}`,
  )
}

function lineHtml(record: RunRecord, line: LogLine): Html {
  const { at, level, message, fields, withoutFields } = line
  const more = withoutFields
    ? html`<span class="dim">its fields are too large, or are not JSON</span>`
    : fields && html`<code>${JSON.stringify(fields)}</code>`
  return html`<li><code class="when" title="${at}">${lineOffset(record, line)}</code> ${badge(TONES[level], level)} <span>${message} ${more}</span></li>`
}
