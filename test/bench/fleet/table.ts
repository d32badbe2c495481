import { median } from '../median.ts'
import type { Figures } from './scenes.ts'
import { SIDES, type Side } from './sides.ts'

/** What one scene has shown of one side in one round. */
export interface Result {
  side: Side
  scene: string
  figures: Figures
}

/** What each figure is, and the most that it may be beside that of the operators. */
const ROWS: readonly { scene: string; figure: string; title: string; goal?: number }[] = [
  { scene: 'idle', figure: 'memory', title: 'memory of everything, idle, MiB', goal: 0.15 },
  { scene: 'edited', figure: 'memory', title: 'memory of everything, at 20 edits a second, MiB', goal: 0.15 },
  { scene: 'idle', figure: 'cpu', title: 'CPU, idle, % of a core', goal: 0.5 },
  { scene: 'edited', figure: 'cpu', title: 'CPU, at 20 edits a second, % of a core', goal: 2 },
  { scene: 'idle', figure: 'requests', title: 'API requests a minute, idle', goal: 0.2 },
  { scene: 'edited', figure: 'requests', title: 'API requests a minute, at 20 edits a second' },
  { scene: 'idle', figure: 'watches', title: 'watches at the API server', goal: 0.2 },
  { scene: 'idle', figure: 'serverMemory', title: 'memory of kube-apiserver, idle, MiB', goal: 0.8 },
  { scene: 'edited', figure: 'serverMemory', title: 'memory of kube-apiserver, at 20 edits a second, MiB', goal: 0.8 },
  { scene: 'idle', figure: 'serverCpu', title: 'CPU of kube-apiserver, idle, % of a core', goal: 0.8 },
  {
    scene: 'edited',
    figure: 'serverCpu',
    title: 'CPU of kube-apiserver, at 20 edits a second, % of a core',
    goal: 0.8,
  },
  { scene: 'edited', figure: 'p50', title: 'an edit at 20 a second is followed after: p50, ms' },
  { scene: 'edited', figure: 'p99', title: 'an edit at 20 a second is followed after: p99, ms' },
  { scene: 'restarted', figure: 'serverCpuSeconds', title: 'all restarted: CPU of kube-apiserver, s', goal: 0.3 },
  { scene: 'restarted', figure: 'followed', title: 'all restarted: the last edit is followed after, s', goal: 1 },
  { scene: 'failures', figure: 'killed', title: 'kill -9: the last edit is followed after, s', goal: 0.4 },
  { scene: 'failures', figure: 'stopped', title: 'SIGSTOP: the last edit is followed after, s', goal: 0.4 },
  { scene: 'upgraded', figure: 'own', title: 'upgrade of one function: its longest edit, s' },
  { scene: 'upgraded', figure: 'others', title: 'upgrade of one function: the longest edit of others, s' },
]

/** Markdown: medians of all rounds, and the ratios to the operators with their goals. */
export function tableOf(results: readonly Result[]): string {
  const sides = SIDES.filter((side) => results.some((result) => result.side === side))
  const [base] = SIDES
  const others = sides.includes(base) ? sides.filter((side) => side !== base) : []
  const head = ['', ...sides, ...others.map((side) => `${side} / ${base}`), 'goal']
  const rows = ROWS.flatMap(({ scene, figure, title, goal }) => {
    const of = new Map(sides.map((side) => [side, median(figuresOf(results, side, scene, figure))]))
    if (![...of.values()].some(Number.isFinite)) return []
    const ratios = others.map((side) => shown((of.get(side) ?? NaN) / (of.get(base) ?? NaN)))
    return [
      [title, ...sides.map((side) => shown(of.get(side) ?? NaN)), ...ratios, goal === undefined ? '' : `≤ ${goal}`],
    ]
  })
  const lost = sides.map((side) => {
    const all = results.flatMap((one) => (one.side === side ? (one.figures['lost'] ?? 0) : 0))
    return String(all.reduce((sum, one) => sum + one, 0))
  })
  rows.push(['edits that nothing has followed', ...lost, ...others.map(() => ''), '0'])
  return markdown(head, rows)
}

const CPU_OF = 'cpu of '

/** Markdown: what each kind of processes uses. */
export function sharesOf(results: readonly Result[]): string {
  const rows = SIDES.flatMap((side) => {
    const names = results.flatMap((one) => (one.side === side ? Object.keys(one.figures) : []))
    const kinds = [...new Set(names)].flatMap((name) => (name.startsWith(CPU_OF) ? name.slice(CPU_OF.length) : []))
    return kinds.map((kind) => {
      const of = (scene: string, figure: string) =>
        shown(median(figuresOf(results, side, scene, `${figure} of ${kind}`)))
      const both = (figure: string) => `${of('idle', figure)} / ${of('edited', figure)}`
      return [side, kind, both('cpu'), both('memory')]
    })
  })
  return markdown(['', 'processes', 'CPU, idle / at 20 edits a second, % of a core', 'the same: memory, MiB'], rows)
}

export function markdown(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |\n`
  return [head, head.map(() => '---'), ...rows].map(line).join('')
}

const figuresOf = (results: readonly Result[], side: Side, scene: string, figure: string): number[] =>
  results.flatMap((one) => (one.side === side && one.scene === scene ? (one.figures[figure] ?? []) : []))

export const shown = (value: number): string =>
  !Number.isFinite(value) ? '–' : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)
