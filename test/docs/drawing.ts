import { basename } from 'node:path'
import { type EditStep, roomOf } from './architecture.ts'

const WIDTH = 400
const MARGIN = 12
const ROW = 30
const BOX = 24
const INDENT = 14
/** The width of a wide lower-case letter of a label. */
const LETTER = 7.4

/** The rooms of the edit have a hue each, the same in both schemes. The others are grey. */
const STYLE = `
    svg { --page: #fff; --ink: #1f2328; --line: #6e7781; --light: 92%; --edge: 45%; }
    @media (prefers-color-scheme: dark) {
      svg { --page: #0d1117; --ink: #e6edf3; --line: #8b949e; --light: 20%; --edge: 60%; }
    }
    text { font: 12.5px system-ui, sans-serif; fill: var(--ink); }
    .title { font-size: 15px; font-weight: 600; }
    .name { font-family: ui-monospace, monospace; font-size: 12px; }
    .file { fill: var(--line); }
    .page { fill: var(--page); }
    .box { fill: hsl(var(--hue, 0) var(--colour, 0%) var(--light)); stroke: hsl(var(--hue, 0) var(--colour, 0%) var(--edge)); }
    .outside { fill: none; stroke: var(--line); stroke-dasharray: 4 3; }
    .arrow { fill: none; stroke: var(--line); stroke-width: 1.3; marker-end: url(#head); }
    .indirect { stroke-dasharray: 4 3; }
    #head path { fill: var(--line); }
  `

/** Rooms from the one that may import most to those that may import nothing. */
export type Layers = readonly (readonly string[])[]

/** The layer of a room is above the layers of all rooms that it may import. */
export function layersOf(imports: ReadonlyMap<string, readonly string[]>): Layers {
  const heights = new Map<string, number>()
  const heightOf = (room: string): number => {
    const height = heights.get(room) ?? 1 + Math.max(-1, ...(imports.get(room) ?? []).map(heightOf))
    heights.set(room, height)
    return height
  }
  const highest = Math.max(...[...imports.keys()].map(heightOf))
  return Array.from({ length: highest + 1 }, (_, layer) =>
    [...imports.keys()].filter((room) => heights.get(room) === highest - layer),
  )
}

/** The picture of docs/architecture.md as SVG. */
export function drawing(steps: readonly EditStep[], layers: Layers): string {
  const rooms = layers.flat()
  const coloured = [...new Set(steps.map(({ file }) => roomOf(file, rooms)))]
  const colourOf = (room: string): string => {
    const index = coloured.indexOf(room)
    return index === -1 ? '' : ` style="--colour:55%;--hue:${Math.round((index * 360) / coloured.length)}"`
  }
  const edit = drawnEdit(steps, rooms, colourOf)
  const layered = drawnLayers(layers, colourOf, edit.height + 20)
  const height = layered.height + MARGIN
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" role="img">
  <title>One edit, step by step, and the rooms in layers</title>
  <style>${STYLE}</style>
  <marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker>
  <rect class="page" width="${WIDTH}" height="${height}" rx="8"/>
${[...edit.lines, ...layered.lines].map((line) => `  ${line}`).join('\n')}
</svg>
`
}

interface Drawn {
  lines: string[]
  /** Where it ends. */
  height: number
}

/** A call is an arrow from the box of its caller. A call from outside this process begins at the left. */
function drawnEdit(steps: readonly EditStep[], rooms: readonly string[], colourOf: (room: string) => string): Drawn {
  const lines = [text('title', MARGIN, 28, 'One edit')]
  const places = new Map<number, { x: number; y: number }>()
  let y = 42
  for (const step of steps) {
    const outside = outsideOf(step)
    const caller = step.caller === undefined ? undefined : places.get(step.caller)
    const x = outside || caller === undefined ? MARGIN + INDENT : caller.x + INDENT
    if (outside) {
      lines.push(...box('outside', MARGIN, y, outside, widthOf(outside) + 6))
      lines.push(arrow(step, MARGIN + 6, y + BOX, x, y + ROW + BOX / 2))
      y += ROW
    } else if (caller) lines.push(arrow(step, caller.x + 6, caller.y + BOX, x, y + BOX / 2))
    places.set(step.number, { x, y })
    lines.push(...drawnStep(step, roomOf(step.file, rooms), colourOf, x, y))
    y += ROW
  }
  return { lines, height: y }
}

function outsideOf({ caller, by }: EditStep): string | undefined {
  if (caller === undefined || by === 'watch') return 'API server'
  return by === by?.toUpperCase() ? by : undefined
}

function drawnStep(
  { number, name, file }: EditStep,
  room: string,
  colourOf: (room: string) => string,
  x: number,
  y: number,
): string[] {
  const label = `${number} ${room}`
  const width = widthOf(label)
  return [
    `<g data-step="${number}" data-room="${room}"${colourOf(room)}>`,
    ...box('box', x, y, label, width).map((line) => `  ${line}`),
    `  ${text('name', x + width + 8, y + 16, `${name} <tspan class="file">${basename(file)}</tspan>`)}`,
    '</g>',
  ]
}

function drawnLayers(layers: Layers, colourOf: (room: string) => string, top: number): Drawn {
  const lines = [
    text('title', MARGIN, top + 16, 'The rooms'),
    text('', MARGIN, top + 36, 'A room imports rooms of lower layers only.'),
  ]
  let y = top + 48
  for (const layer of layers) {
    let x = MARGIN
    for (const room of layer) {
      const width = widthOf(room)
      if (x + width > WIDTH - MARGIN) {
        x = MARGIN
        y += ROW
      }
      lines.push(`<g data-layer="${layers.indexOf(layer)}" data-room="${room}"${colourOf(room)}>`)
      lines.push(...box('box', x, y, room, width).map((line) => `  ${line}`), '</g>')
      x += width + 8
    }
    y += ROW
    if (layer !== layers.at(-1)) lines.push(`<path class="outside" d="M${MARGIN} ${y} H${WIDTH - MARGIN}"/>`)
    y += 8
  }
  return { lines, height: y }
}

function arrow({ caller, number, by }: EditStep, fromX: number, fromY: number, x: number, y: number): string {
  const kind = by === undefined && caller !== undefined ? 'arrow' : 'arrow indirect'
  const ends = `${caller === undefined ? '' : `data-from="${caller}" `}data-to="${number}"`
  return `<path class="${kind}" ${ends} d="M${fromX} ${fromY} V${y} H${x}"/>`
}

const widthOf = (label: string): number => Math.ceil(label.length * LETTER) + 14

const box = (kind: string, x: number, y: number, label: string, width: number): string[] => [
  `<rect class="${kind}" x="${x}" y="${y}" width="${width}" height="${BOX}" rx="5"/>`,
  text('', x + 7, y + 16, label),
]

const text = (kind: string, x: number, y: number, words: string): string =>
  `<text${kind && ` class="${kind}"`} x="${x}" y="${y}">${words}</text>`
