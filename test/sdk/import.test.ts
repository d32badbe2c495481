import { expect, it } from 'vitest'
import { loadedBy } from '../support/loaded.ts'

it.each([
  [['#functions/at'], ['contracts', 'functions', 'sdk', 'spec', 'zod']],
  [
    ['#functions/at', '#sdk/serve'],
    ['contracts', 'events', 'functions', 'sdk', 'spec', 'zod'],
  ],
  // No client of NATS or Kubernetes: tests of functions begin at once, and replay needs neither.
  [['#testing'], ['contracts', 'primitives', 'queue', 'reconcile', 'sdk', 'spec', 'testing', 'zod']],
  [['#reconcile'], ['contracts', 'primitives', 'queue', 'reconcile', 'spec', 'zod']],
])('costs %j no package but zod to start', async (modules, needed) => {
  const program = modules.map((module) => `await import('${module}')`).join('\n')
  expect(await loadedBy(['--input-type=module', '--eval', program])).toEqual(needed)
})
