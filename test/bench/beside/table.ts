import { median } from '../median.ts'
import { scenes } from './scenes.ts'
import { SIDES, type Side } from './sides.ts'

/** What one scene has shown of one side in one round. */
export interface Result {
  scene: keyof typeof scenes
  side: Side
  figures: Record<string, number>
}

const UNITS: Record<string, (of: string) => string> = {
  p50: (of) => `${of}: p50, ms`,
  p99: (of) => `${of}: p99, ms`,
  lateToCome: (of) => `${of}: not PENDING by then`,
  wall: (of) => `${of}: the last is DONE after, s`,
  cpuMs: (of) => `${of}: CPU for each, ms`,
  natsCpuMs: (of) => `${of}: CPU of nats-server for each, ms`,
  requests: (of) => `${of}: API requests for each`,
  peakMiB: (of) => `${of}: memory at most, MiB`,
  afterMiB: (of) => `${of}: memory when it is calm again, MiB`,
}
/** A pod is missing, there is more than one, or it came too early; an At is not DONE. */
const FAULTS = 'wrong'

/** Markdown: medians of all rounds, and how many times as much each side takes as controller-runtime. */
export function tableOf(results: readonly Result[]): string {
  const sides = SIDES.filter((side) => results.some((result) => result.side === side))
  const base = sides.includes('controller-runtime') ? 'controller-runtime' : undefined
  const others = base === undefined ? [] : sides.filter((side) => side !== base)
  const head = ['', ...sides, ...others.map((side) => `${side} / ${base}`)]
  const rows = Object.entries(scenes).flatMap(([scene, { title }]) =>
    Object.entries(UNITS).flatMap(([figure, titled]) => {
      const medians = new Map(sides.map((side) => [side, median(figuresOf(results, scene, side, figure))]))
      if (![...medians.values()].some(Number.isFinite)) return []
      const baseline = medians.get(base ?? 'Fairlead') ?? NaN
      const ratio = (side: Side) => (Number.isFinite(baseline) ? (medians.get(side) ?? NaN) / baseline : NaN)
      return [[titled(title), ...[...medians.values()].map(shown), ...others.map((side) => shown(ratio(side)))]]
    }),
  )
  const wrong = sides.map((side) =>
    String(sum(results.flatMap((one) => (one.side === side ? (one.figures[FAULTS] ?? 0) : 0)))),
  )
  rows.push(['Ats whose pod is missing, twice or early, or that are not DONE', ...wrong, ...others.map(() => '')])
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |\n`
  return [head, head.map(() => '---'), ...rows].map(line).join('')
}

const figuresOf = (results: readonly Result[], scene: string, side: Side, figure: string): number[] =>
  results.flatMap((one) => (one.scene === scene && one.side === side ? (one.figures[figure] ?? []) : []))

const sum = (numbers: readonly number[]): number => numbers.reduce((all, one) => all + one, 0)

const shown = (value: number): string =>
  !Number.isFinite(value) ? '–' : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)
