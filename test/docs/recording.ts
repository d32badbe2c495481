/** A line of output, and when it appeared, in milliseconds from the start. */
export interface Line {
  text: string
  atMs: number
}

interface Scheme {
  background: string
  border: string
  text: string
  good: string
  bad: string
}

export const SCHEMES: Record<string, Scheme> = {
  light: { background: '#ffffff', border: '#d0d7de', text: '#1f2328', good: '#116329', bad: '#cf222e' },
  dark: { background: '#0d1117', border: '#3d444d', text: '#e6edf3', good: '#3fb950', bad: '#f85149' },
}

const FONT_PX = 13
const LINE_PX = 20
/** The width of a character, as a share of the font's size, in common monospaced fonts. */
const ADVANCE = 0.602
const PADDING_PX = 18
const BAR_PX = 30
const MAX_COLUMNS = 110
const MAX_ROWS = 2

/** A drawing of a terminal in which each line appears in its time. */
export function recording(lines: readonly Line[], scheme: Scheme): string {
  const shown = lines.flatMap(({ text, atMs }) => wrapped(text).map((part) => ({ text: part, atMs })))
  const columns = Math.max(...shown.map(({ text }) => text.length))
  const width = Math.ceil(columns * FONT_PX * ADVANCE + 2 * PADDING_PX)
  const height = BAR_PX + shown.length * LINE_PX + 2 * PADDING_PX
  const rows = shown.map(({ text, atMs }, index) => {
    const y = BAR_PX + PADDING_PX + (index + 0.7) * LINE_PX
    const style = classOf(text)
    return `<text class="${style}" x="${PADDING_PX}" y="${y}" style="animation-delay:${(atMs / 1000).toFixed(2)}s" xml:space="preserve">${escaped(text)}</text>`
  })
  const dots = [0, 1, 2].map((at) => `<circle cx="${20 + at * 18}" cy="16" r="5" fill="${scheme.border}"/>`)
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img">
<title>fairlead explain names the cause</title>
<style>
text { font: ${FONT_PX}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: ${scheme.text}; opacity: 0; animation: appear 0.01s forwards; }
text.good { fill: ${scheme.good}; font-weight: 600; }
text.bad { fill: ${scheme.bad}; font-weight: 600; }
text.prompt { font-weight: 600; }
@keyframes appear { to { opacity: 1; } }
@media (prefers-reduced-motion: reduce) { text { opacity: 1; animation: none; } }
</style>
<rect x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8" fill="${scheme.background}" stroke="${scheme.border}"/>
${dots.join('')}
${rows.join('\n')}
</svg>
`
}

/** The rows of a terminal that a line takes, at most MAX_ROWS. */
const wrapped = (text: string): string[] =>
  Array.from({ length: Math.min(MAX_ROWS, Math.max(1, Math.ceil(text.length / MAX_COLUMNS))) }, (_, row) =>
    text.slice(row * MAX_COLUMNS, (row + 1) * MAX_COLUMNS),
  )

function classOf(text: string): string {
  if (text.startsWith('$ ')) return 'prompt'
  if (/\bServing\b/.test(text)) return 'good'
  return /\bStarting\b.*\ds$|problem:|cannot get ready/.test(text) ? 'bad' : 'plain'
}

/** Without control characters, which no XML may have. */
const escaped = (text: string): string =>
  text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll(/\p{Cc}/gu, '')
