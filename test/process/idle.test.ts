import perfHooks from 'node:perf_hooks'
import { expect, it, onTestFinished, vi } from 'vitest'
import { createMetrics } from '../../cli/process/metrics.ts'
import { importsOf, reachableFrom } from '../support/imports.ts'

const DAY_MS = 86_400_000

it('metrics do not wake an idle process: nothing is sampled between scrapes', async () => {
  const sampling = vi.spyOn(perfHooks, 'monitorEventLoopDelay')
  onTestFinished(() => sampling.mockRestore())
  const { registry } = createMetrics()
  expect(sampling).toHaveBeenCalled()
  for (const [options] of sampling.mock.calls) expect(options?.resolution).toBeGreaterThan(DAY_MS)
  // A histogram without samples would claim that there is no lag.
  const names = registry.getMetricsAsArray().map(({ name }) => name)
  expect(names.filter((name) => name.startsWith('nodejs_eventloop'))).toEqual(['nodejs_eventloop_lag_seconds'])
  expect(await registry.metrics()).toMatch(/^nodejs_eventloop_lag_seconds /m)
})

it('the thread that watches the event loop loads two files: whatever it loads is in memory twice', () => {
  const [thread, shared] = ['event-loop-watchdog-thread.ts', 'stall.ts'].map((file) => `cli/process/isolation/${file}`)
  const imports = importsOf([thread ?? '', shared ?? ''])
  expect([...reachableFrom(imports, thread ?? '')]).toEqual([shared])
})
