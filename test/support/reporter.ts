import type { Reporter, TestModule } from 'vitest/node'
import { recordDurations } from './durations.ts'
import { needsNode } from './order.ts'

/** Set: the durations of this run, which should be one of all tests, replace those in `test/durations.json`. */
const RECORD = process.env['FAIRLEAD_RECORD_DURATIONS'] !== undefined

/** The last line of a test run, alone: `N passed, N failed`, and skipped tests when there are any. */
export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    const count = { passed: 0, failed: errors.length, skipped: 0 }
    for (const module of modules) {
      if (module.errors().length > 0) count.failed++
      for (const test of module.children.allTests()) {
        const { state } = test.result()
        if (state !== 'pending') count[state]++
      }
    }
    if (RECORD) recordDurations(new Map(modules.map((module) => [module.moduleId, secondsOf(module)])))
    const skipped = count.skipped > 0 ? `, ${count.skipped} skipped` : ''
    process.once('exit', () => console.log(`${count.passed} passed, ${count.failed} failed${skipped}`))
  }
}

function secondsOf(module: TestModule): number {
  const { setupDuration, collectDuration, duration } = module.diagnostic()
  // A file that needs the node is collected when it is its turn: the wait does not belong to its duration.
  return (setupDuration + (needsNode(module.moduleId) ? 0 : collectDuration) + duration) / 1000
}
