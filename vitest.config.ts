import { join } from 'node:path'
import { defineConfig } from 'vitest/config'
import { cacheDir } from './local/build.ts'
import { LongestFirst } from './test/support/order.ts'

/** They load both cores on purpose, and say so where nothing else is to blame for what comes late. */
const ALONE = ['test/e2e/chaos.test.ts']

export default defineConfig({
  test: {
    exclude: ['test/bench/**'],
    // Real servers on two cores: files side by side only as far as they do not starve each other. Many of them wait
    // for a time or a lease, so that three load two cores.
    maxWorkers: 3,
    // Files share what their worker has imported: to import it anew for each of them takes a third of all the time.
    isolate: false,
    // Of the processes that tests start, as the command has it.
    env: { NODE_COMPILE_CACHE: join(cacheDir(), 'compiled') },
    sequence: { sequencer: LongestFirst },
    globalSetup: ['./test/support/setup.ts'],
    reporters: ['default', './test/support/reporter.ts'],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    teardownTimeout: 60_000,
    projects: [
      {
        extends: true,
        test: {
          name: 'side by side',
          include: ['test/**/*.test.ts'],
          exclude: ['test/bench/**', ...ALONE],
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: { name: 'alone', include: ALONE, maxWorkers: 1, sequence: { groupOrder: 1 } },
      },
    ],
  },
})
