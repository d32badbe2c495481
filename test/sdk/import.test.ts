import { expect, it } from 'vitest'
import { loadedBy } from '../support/loaded.ts'

it.each([
  [['#functions/at'], ['core/contracts', 'core/spec', 'functions/at', 'sdk', 'zod']],
  [
    ['#functions/at', '#sdk/serve'],
    ['core/contracts', 'core/spec', 'functions/at', 'sdk', 'streams/events', 'zod'],
  ],
  // No client of NATS or Kubernetes: tests of functions begin at once, and replay needs neither.
  [
    ['#testing'],
    ['core/contracts', 'core/primitives', 'core/spec', 'reconcile', 'sdk', 'sdk/testing', 'streams/queue', 'zod'],
  ],
  [['#reconcile'], ['core/contracts', 'core/primitives', 'core/spec', 'reconcile', 'streams/queue', 'zod']],
])('costs %j no package but zod to start', async (modules, needed) => {
  const program = modules.map((module) => `await import('${module}')`).join('\n')
  expect(await loadedBy(['--input-type=module', '--eval', program])).toEqual(needed)
})
