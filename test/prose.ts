import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { knownCounts, newFindings, record } from './prose/known.ts'
import { type Finding, lintFiles } from './prose/lint.ts'
import { PATTERNS } from './prose/patterns.ts'

/**
 * The lint of prose (docs/style.md). Without arguments: fails where a file has more findings than test/prose/known.json
 * records. With files: prints all their findings. `--count` prints a table of all, `--record` writes known.json.
 */
const { values, positionals } = parseArgs({
  options: { count: { type: 'boolean' }, record: { type: 'boolean' } },
  allowPositionals: true,
})

/** Generated files repeat texts that are linted in their sources. */
const GENERATED = /^(?:crds|deploy\/rbac|deploy\/chart\/.*templates|local\/go)\//

const gitFiles = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '*.md', '*.ts', '*.js', '*.yaml'], {
  encoding: 'utf8',
})
const files =
  positionals.length > 0
    ? positionals
    : gitFiles.split('\n').filter((file) => existsSync(file) && !GENERATED.test(file))
const findings = await lintFiles(files)

if (values.count === true) console.table(table(findings))
else if (values.record === true) record(findings)
else {
  const shown = positionals.length > 0 ? findings : newFindings(findings, knownCounts())
  for (const { file, line, column, pattern, message } of shown)
    console.log(`${file}:${line}:${column} ${pattern}: ${message}`)
  if (shown.length > 0) {
    console.log(`${shown.length} findings; docs/style.md shows how to write instead`)
    process.exitCode = 1
  }
}

/** Counts by pattern and place. */
function table(findings: readonly Finding[]): Record<string, Record<string, number>> {
  const rows = PATTERNS.map(({ name }): [string, Record<string, number>] => {
    const places = Map.groupBy(
      findings.filter(({ pattern }) => pattern === name),
      placeOf,
    )
    return [name, Object.fromEntries([...places].map(([place, { length }]) => [place, length]))]
  })
  return Object.fromEntries(rows)
}

function placeOf({ file, kind }: Finding): string {
  if (file.startsWith('docs/decisions/')) return kind === 'heading' ? 'titles of decisions' : 'decisions'
  if (file.endsWith('.md')) return 'pages'
  return file.startsWith('test/') ? 'comments of tests' : `${kind}s of code`
}
