import { globSync } from 'node:fs'
import { defineConfig } from 'vitest/config'
import { durationOf } from './support/durations.ts'
import { needsServers } from './support/needs-servers.ts'

/** Explorations of whole state spaces take longer, and stay with `npm test`. */
const LONGEST_SECONDS = 4

/** Tests that need no server, no build and no network. */
export default defineConfig({
  test: {
    include: globSync('{test,docs/examples}/**/*.test.ts').filter(
      (file) => !needsServers(file) && (durationOf(file) ?? 0) <= LONGEST_SECONDS,
    ),
    isolate: false,
    testTimeout: 60_000,
    reporters: ['default', './test/support/reporter.ts'],
  },
})
