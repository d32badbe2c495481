import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { durationOf } from './durations.ts'

/** Files begin in the order of their recorded durations, the longest first, so that none is left over at the end. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const longest = ({ moduleId }: TestSpecification) => durationOf(moduleId) ?? Number.POSITIVE_INFINITY
    return (await super.sort(files)).toSorted((a, b) => compare(longest(b), longest(a)))
  }
}

/** Without the difference of two infinities, which is no number. */
const compare = (one: number, other: number): number => (one === other ? 0 : one < other ? -1 : 1)
