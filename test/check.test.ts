import { expect, it } from 'vitest'
import { CHECKS, check } from './support/checks.ts'

it.concurrent.each(Object.entries(CHECKS))('%s: there is nothing to mend', { timeout: 300_000 }, async (_, command) => {
  const { passed, said } = await check(command)
  expect(passed ? 'passed' : said).toBe('passed')
})
