import { markdown, shown } from '../fleet/table.ts'
import { median } from '../median.ts'
import type { Figures } from './scenes.ts'
import { SIDES, type Side } from './sides.ts'

/** What one scene has shown of one side in one round. */
export interface Result {
  side: Side
  scene: string
  figures: Figures
}

/** What each figure is, and what Fairlead's has to be. */
const ROWS: readonly [scene: string, figure: string, title: string, goal?: string][] = [
  ['writes', 'plainP50', 'a write without a webhook: p50, ms'],
  ['writes', 'plainP99', 'a write without a webhook: p99, ms'],
  ['writes', 'siteP50', 'a write that validate judges: p50, ms'],
  ['writes', 'siteP99', 'a write that validate judges: p99, ms'],
  ['writes', 'addedP50', 'validate adds: p50, ms'],
  ['writes', 'addedP99', 'validate adds: p99, ms', '≤ 5, ≤ 2 ×'],
  ['writes', 'validationMs', 'a call of validate, as the API server measures it: mean, ms'],
  ['writes', 'cpuMs', 'CPU of the process for a call, ms', '≤ 1.5, ≤ 3 ×'],
  ['writes', 'memory', 'memory of the process at 100 writes a second, MiB', '≤ 128'],
  ['calls', 'specCalls', 'calls for 100 writes of the spec'],
  ['calls', 'statusCalls', 'calls for 100 writes of the status', '0'],
  ['calls', 'metadataCalls', 'calls for 100 writes of labels', '0'],
  ['calls', 'ruleCalls', 'calls for 100 writes that a rule in CEL refuses', '0'],
  ['calls', 'specConversions', 'conversions for 100 writes of the stored version'],
  ['calls', 'oldConversions', 'conversions for 100 writes of the other version'],
  ['calls', 'bothConversions', 'conversions for 100 writes of the stored version, of objects with fields of both'],
  ['conversions', 'storedP99', 'a read in the stored version: p99, ms'],
  ['conversions', 'convertedP99', 'a read in the other version: p99, ms'],
  ['conversions', 'addedP50', 'a conversion adds: p50, ms'],
  ['conversions', 'addedP99', 'a conversion adds: p99, ms', '≤ 5, ≤ 2 ×'],
  ['conversions', 'conversionMs', 'a conversion, as the API server measures it: mean, ms'],
  ['fill', 'seconds', 'the watch cache of the other version is full after, s', '≤ 20, ≤ 2 ×'],
  ['fill', 'conversionMs', 'the same: a conversion, mean, ms'],
  ['fill', 'cpuSeconds', 'the same: CPU of the process, s'],
  ['fill', 'memory', 'the same: memory of the process, MiB', '≤ 128'],
  ['fill', 'listCalls', 'calls for a list of the other version afterwards', '0'],
  ['faults', 'updateRefused', 'refused during a rolling update of two processes', '0'],
  ['faults', 'killRefused', 'refused after kill -9 of one of two processes', 'calls in flight'],
  ['faults', 'rotationRefused', 'refused while the authority changes', '0'],
  ['faults', 'restartRefused', 'refused around a restart of the API server', '0'],
  ['faults', 'wrong', 'objects with another value than the last that was accepted', '0'],
  ['away', 'thereP99', 'a run follows with the webhook: p99, ms'],
  ['away', 'awayP99', 'a run follows while the webhook is away: p99, ms'],
  ['away', 'late', 'of these later than 2 s', '0'],
  ['bad', 'restP99', 'a good review, nothing beside it: p99, ms'],
  ['bad', 'largeP99', 'beside objects of 3 MiB: p99, ms'],
  ['bad', 'oddP99', 'beside other kinds, no uid, no JSON: p99, ms'],
  ['bad', 'halfP99', 'beside halves of requests: p99, ms'],
  ['bad', 'connectionsP99', 'beside 10,000 connections: p99, ms'],
  ['bad', 'unclear', 'bad input without a clear answer', '0'],
  ['bad', 'wrongAnswers', 'good reviews without their own answer', '0'],
  ['bad', 'memory', 'the most memory of the process, MiB'],
]

/** Markdown: medians of all rounds, and their ratio. */
export function tableOf(results: readonly Result[]): string {
  const of = (side: Side, scene: string, figure: string): number =>
    median(results.flatMap((one) => (one.side === side && one.scene === scene ? (one.figures[figure] ?? []) : [])))
  const rows = ROWS.flatMap(([scene, figure, title, goal = '']) => {
    const found = SIDES.map((side) => of(side, scene, figure))
    if (!found.some(Number.isFinite)) return []
    const [base = NaN, own = NaN] = found
    const ratio = base > 0 && Number.isFinite(base) && own >= 0 ? shown(own / base) : ''
    return [[title, ...found.map(shown), ratio, goal]]
  })
  return markdown(['', ...SIDES, 'ratio', 'goal'], rows)
}
