import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'

const FOLDER = join(import.meta.dirname, '../../docs/decisions')
const ROOMS = 'bridge,cli,core,dispatch,docs,functions,kube,packages,reconcile,sdk,streams,test'
const PATH = new RegExp(`\`((?:${ROOMS.replaceAll(',', '|')})/[\\w./-]+)\``, 'g')
const read = (name: string): string => readFileSync(join(FOLDER, name), 'utf8')
const decisions = readdirSync(FOLDER).filter((name) => /^\d{4}-/.test(name))
const numberOf = (name: string): number => Number(name.slice(0, 4))

it('the index leads to each decision once', () => {
  const links = [...read('README.md').matchAll(/\]\((\d{4})-[^)#]+\)/g)].map(([, number]) => Number(number))
  const byNumber = (one: number, other: number): number => one - other
  expect(links.toSorted(byNumber)).toEqual(decisions.map(numberOf).toSorted(byNumber))
})

it.each(decisions)('%s has its number, a date, and paths that exist', (name) => {
  expect(read(name)).toMatch(new RegExp(String.raw`^# ${numberOf(name)}\. .+\n\n\d{4}-\d\d-\d\d\n`))
  const paths = [...read(name).matchAll(PATH)].map(([, path = '']) => path)
  expect(paths.filter((path) => !existsSync(path))).toEqual([])
})

it('code and pages name decisions that exist', () => {
  const numbers = new Set(decisions.map(numberOf))
  const files = globSync(`{${ROOMS}}/**/*.{ts,md}`, { exclude: (path) => path.includes('node_modules') })
  const named = [...files, 'README.md', 'CHANGELOG.md', 'CONTRIBUTING.md'].flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(/\bdecisions?\s+\[?(\d+)\b|decisions\/(\d{4})-/gi)].map((found) => ({
      file,
      found: found[0],
      number: Number(found[1] ?? found[2]),
    })),
  )
  expect(named.filter(({ number }) => !numbers.has(number))).toEqual([])
})
