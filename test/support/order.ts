import { readFileSync } from 'node:fs'
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { durationOf } from './durations.ts'

export interface Planned {
  /** Seconds; infinite where it is not known. */
  duration: number
  /** It takes turns with others for the one real node of a machine. */
  needsNode: boolean
}

/** Where nothing is known, a file begins early. */
const UNKNOWN_S = 60
/** A file that begins while another has the node holds a worker up. Better that the node waits a little. */
const NODE_MARGIN = 1.2

export const needsNode = (file: string): boolean => readFileSync(file, 'utf8').includes('takeTurnWithNode(')

/**
 * The order in which files begin, when so many workers take the next one as soon as they are free: the longest first, so
 * that none is left over at the end, but one that needs the node only when the one before it has ended. Else workers
 * would wait for their turn instead of running other files.
 */
export function inOrder<File extends Planned>(files: readonly File[], workers: number): File[] {
  const longest = files.toSorted((a, b) => compare(b.duration, a.duration))
  const waiting = {
    node: longest.filter(({ needsNode }) => needsNode),
    rest: longest.filter((file) => !file.needsNode),
  }
  const freeAt = Array.from({ length: workers }, () => 0)
  let nodeFreeAt = 0
  const ordered: File[] = []
  while (ordered.length < files.length) {
    const now = Math.min(...freeAt)
    const isNodeNext = waiting.node.length > 0 && (now >= nodeFreeAt || waiting.rest.length === 0)
    const next = (isNodeNext ? waiting.node : waiting.rest).shift()
    if (next === undefined) break
    const begins = isNodeNext ? Math.max(now, nodeFreeAt) : now
    const takes = Number.isFinite(next.duration) ? next.duration : UNKNOWN_S
    freeAt[freeAt.indexOf(now)] = begins + takes
    if (isNodeNext) nodeFreeAt = begins + takes * NODE_MARGIN
    ordered.push(next)
  }
  return ordered
}

/** Compares without a subtraction, since the difference of two infinities is NaN. */
const compare = (one: number, other: number): number => (one === other ? 0 : one < other ? -1 : 1)

/** Files begin in the order of their recorded durations. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const planned = (await super.sort(files)).map((file) => ({
      file,
      duration: durationOf(file.moduleId) ?? Number.POSITIVE_INFINITY,
      needsNode: needsNode(file.moduleId),
    }))
    return inOrder(planned, this.ctx.config.maxWorkers).map(({ file }) => file)
  }
}
