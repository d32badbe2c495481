import { join } from 'node:path'
import { defineConfig } from 'vitest/config'
import { cacheDir } from './packages/lab/build.ts'
import { LongestFirst } from './test/support/order.ts'

// Tests are of the versions that are pinned.
process.env['FAIRLEAD_PREBUILT'] ??= 'no'

export default defineConfig({
  test: {
    include: ['{test,docs/examples}/**/*.test.ts'],
    exclude: ['test/bench/**'],
    // Real servers on two cores: files side by side only as far as they do not starve each other. Many of them wait
    // for a time or a lease, so that four load two cores.
    maxWorkers: 4,
    // Files share what their worker has imported: to import it anew for each of them takes a third of all the time.
    isolate: false,
    // Of the processes that tests start, as the command has it.
    env: { NODE_COMPILE_CACHE: join(cacheDir(), 'compiled') },
    sequence: { sequencer: LongestFirst },
    globalSetup: ['./test/support/setup.ts'],
    reporters: ['default', './test/support/reporter.ts'],
    // Limits for what hangs: a machine with other work takes several times as long as a quiet one.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    teardownTimeout: 60_000,
  },
})
