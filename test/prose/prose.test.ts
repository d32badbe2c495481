import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { newFindings } from './known.ts'
import { lintText } from './lint.ts'
import { PATTERNS } from './patterns.ts'

const PAIRS = readFileSync('docs/style.md', 'utf8')
  .split('\n')
  .filter((line) => line.startsWith('| `'))
  .map((line) => line.split('|').map((cell) => cell.trim()))
  .map(([, before = '', after = '', pattern = '']) => ({
    before: before.slice(1, -1),
    after,
    pattern: pattern.replaceAll('`', ''),
  }))

const patternsIn = async (text: string, file = 'page.md') => (await lintText(text, file)).map(({ pattern }) => pattern)
const asFile = (text: string) => (text.startsWith('//') ? 'file.ts' : 'page.md')

describe('the pairs of docs/style.md', () => {
  it.each(PAIRS.filter(({ pattern }) => pattern !== ''))('$pattern: $before', async ({ before, after, pattern }) => {
    expect(await patternsIn(before, asFile(before))).toContain(pattern)
    const without = after.replaceAll(/^`|`$/g, '')
    expect(await patternsIn(without, asFile(without))).toEqual([])
  })

  it('are at least ten, and show every pattern', () => {
    expect(PAIRS.length).toBeGreaterThanOrEqual(10)
    expect([...new Set(PAIRS.map(({ pattern }) => pattern))].filter(Boolean)).toEqual(PATTERNS.map(({ name }) => name))
  })
})

describe('the lint of prose', () => {
  it('reads no code spans and no code blocks', async () => {
    expect(await patternsIn('`nobody` is a word.\n\n```ts\nconst nobody = 1\n```\n')).toEqual([])
  })

  it('reads comments, strings and templates of TypeScript with their position', async () => {
    const code = ['// By token.', 'const nobody = `the ${list} is listed anew`', "const key = 'nobody'", ''].join('\n')
    expect((await lintText(code, 'a.ts')).map(({ line, column, kind }) => ({ line, column, kind }))).toEqual([
      { line: 1, column: 3, kind: 'comment' },
      { line: 2, column: 39, kind: 'message' },
    ])
  })

  it('reads line comments that follow each other as one text, and no examples', async () => {
    expect(await patternsIn('// The keys\n// of a stream.\n', 'a.ts')).toEqual([])
    expect(await patternsIn('/**\n * Runs.\n * @example\n * nobody()\n */\n', 'a.ts')).toEqual([])
  })

  it('reads comments and sentences of YAML', async () => {
    const yaml = '# Of the operator.\na: b # nobody\nsummary: >-\n  nobody reads\n  the queue\n'
    expect(await patternsIn(yaml, 'alerts.yaml')).toEqual([
      'comment without a subject',
      'fronted Of',
      'nobody',
      'nobody',
    ])
  })

  it('accepts questions, and "there is no"', async () => {
    expect(await patternsIn('# What is Fairlead?\n\nWhat is missing? There is no lease.\n')).toEqual([])
  })

  it('fails on a file with more findings than are known, for that pattern alone', async () => {
    const findings = await lintText('Nobody waits. Lists start anew.\n', 'page.md')
    const known = { 'page.md': { nobody: 1 } }
    expect(newFindings(findings, known).map(({ pattern }) => pattern)).toEqual(['anew'])
  })

  it('accepts findings that have moved to another file', async () => {
    const findings = await lintText('Nobody waits.\n', 'new.md')
    expect(newFindings(findings, { 'old.md': { nobody: 1 } })).toEqual([])
  })
})
