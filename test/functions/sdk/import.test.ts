import { expect, it } from 'vitest'
import { loadedBy } from '../../support/loaded.ts'

it.each([
  [['#functions/at'], ['contracts', 'functions', 'zod']],
  [
    ['#functions/at', '#sdk/serve'],
    ['contracts', 'events', 'functions', 'zod'],
  ],
])('costs %j no package but zod to start', async (modules, needed) => {
  const program = modules.map((module) => `await import('${module}')`).join('\n')
  expect(await loadedBy(['--input-type=module', '--eval', program])).toEqual(needed)
})
