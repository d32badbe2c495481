import { globSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'

const FOLDER = join(import.meta.dirname, '../../docs/decisions')
const read = (name: string): string => readFileSync(join(FOLDER, name), 'utf8')
const names = (): string[] => readdirSync(FOLDER).filter((name) => /^\d{4}-/.test(name))

it('the index leads to each decision once', () => {
  const links = [...read('README.md').matchAll(/\]\((\d{4}-[^)#]+)\)/g)].map(([, name]) => name)
  expect(links.toSorted()).toEqual(names().toSorted())
})

it('a decision has the number of its file, and what holds today', () => {
  for (const name of names()) {
    expect(read(name), name).toMatch(new RegExp(`^# ${Number(name.slice(0, 4))}\\. .+\\n\\n2\\d{3}-\\d\\d-\\d\\d\\n`))
    expect(read(name), name).not.toMatch(/^(?:Superseded by|Extends|Replaces) /m)
  }
})

it('code and pages name decisions that exist', () => {
  const numbers = new Set(names().map((name) => Number(name.slice(0, 4))))
  const files = globSync(
    '{bridge,cli,core,dispatch,docs,functions,kube,packages,reconcile,sdk,streams,test}/**/*.{ts,md}',
    {
      exclude: (path) => path.includes('node_modules'),
    },
  )
  const named = [...files, 'README.md', 'CHANGELOG.md', 'CONTRIBUTING.md'].flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(/\bdecisions?\s+\[?(\d+)\b|decisions\/(\d{4})-/gi)].map(
      ([text, one, other]) => ({
        file,
        text,
        number: Number(one ?? other),
      }),
    ),
  )
  expect(named.filter(({ number }) => !numbers.has(number))).toEqual([])
})
