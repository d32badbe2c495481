import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'

const rows = readFileSync('docs/guarantees.md', 'utf8')
  .split('\n')
  .filter((line) => /^\| (?!guarantee|---)/.test(line) && !line.startsWith('|---'))
  .map((line) => line.split('|').map((cell) => cell.trim()))
  .map(([, guarantee = '', tests = '']) => ({
    guarantee,
    tests: [...tests.matchAll(/\]\(([^)]+)\)/g)].map(([, path = '']) => path),
  }))

it.each(rows)('$guarantee', ({ guarantee, tests }) => {
  expect(guarantee).toMatch(/\.$/)
  expect(tests.length).toBeGreaterThan(0)
  expect(tests.filter((path) => !hasTests(join('docs', path)))).toEqual([])
  // `npx vitest run FILE` runs each of them.
  expect(tests.filter((path) => !path.endsWith('.test.ts'))).toEqual([])
})

it('the README has at most 160 lines', () => {
  expect(readFileSync('README.md', 'utf8').trimEnd().split('\n').length).toBeLessThanOrEqual(160)
})

const hasTests = (file: string): boolean =>
  existsSync(file) && /\b(?:it|test|describe)(?:\.\w+)*[(`]/m.test(readFileSync(file, 'utf8'))
