import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'

const FOLDER = join(import.meta.dirname, '../../docs/decisions')
const read = (name: string): string => readFileSync(join(FOLDER, name), 'utf8')

it('the index has each decision by its number and its title, with a status', () => {
  const decisions = readdirSync(FOLDER).filter((name) => /^\d{4}-/.test(name))
  const expected = decisions.toSorted().map((name) => {
    const [, number = '', title = ''] = /^# (\d+)\. (.+)\n/.exec(read(name)) ?? []
    expect(name, 'its number').toMatch(new RegExp(`^0*${number}-`))
    return `| ${number} | [${title}](${name}) | `
  })
  const rows = read('README.md')
    .split('\n')
    .filter((line) => /^\| \d/.test(line))
  expect(rows.map((row) => row.replace(/(?<=\) \| )(accepted|superseded|changed|extended)\b.* \|$/, ''))).toEqual(
    expected,
  )
})
