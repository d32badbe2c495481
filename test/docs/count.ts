import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { generatedFiles } from '../../cli/install/generate.ts'
import { importsOf } from '../support/imports.ts'
import { architecturePage, codeIn, editFilesOf } from './architecture.ts'

/**
 * Prints the size of this repository: `npm run count`. Only committed files are counted.
 *
 * - Product: `*.ts` outside test/, docs/examples/ and templates, without `*.test.ts`, `*.d.ts` and the site.
 * - A folder of code has product files in it.
 * - An importer is a product file. Types count as values do.
 * - The platform is the product without packages/ and functions/.
 * - Generated YAML: the committed files that `npm run generate` writes. The YAML of deploy/ beside them is written by hand.
 * - The files on the path of one edit and of one enqueue are those that docs/architecture.md names.
 */
const committed = execFileSync('git', ['ls-files', '-z'], { encoding: 'utf8', maxBuffer: 2 ** 26 })
  .split('\0')
  .filter((path) => path !== '')
const NOT_PRODUCT = /^(?:test|docs\/examples|packages\/site)\/|\/templates\/|\.(?:test|d)\.ts$/
const YAML = /\.(?:ya?ml|tpl)$/
const SMALL = 60

const linesOf = (path: string): number => readFileSync(path, 'utf8').split('\n').length - 1
const linesIn = (paths: readonly string[]): number => paths.reduce((sum, path) => sum + linesOf(path), 0)
const foldersOf = (paths: readonly string[]): string[] => [
  ...new Set(paths.filter((path) => /^[^.][^/]*\//.test(path)).map((path) => path.slice(0, path.indexOf('/')))),
]

const product = committed.filter((path) => path.endsWith('.ts') && !NOT_PRODUCT.test(path))
const imported = [...importsOf(product).values()].flat()
const importersOf = (path: string): number => imported.filter((one) => one === path).length
const small = product.filter((path) => linesOf(path) <= SMALL && importersOf(path) === 1)
const code = foldersOf(product)
const yaml = committed.filter((path) => YAML.test(path))
const generated = await generatedFiles()

/** The files that the section about one enqueue names. */
function enqueueFiles(page: string): string[] {
  const section = page.split(/^## /m).find((one) => one.startsWith('One enqueue')) ?? ''
  return [...new Set(codeIn(section).filter((name) => /^[\w./-]+\/[\w.-]+\.ts$/.test(name)))]
}

const rows: [string, number][] = [
  ['folders at the top', foldersOf(committed).length],
  ['folders at the top with code, without packages/', code.filter((folder) => folder !== 'packages').length],
  ['product files', product.length],
  [`product files of at most ${SMALL} lines with one importer`, small.length],
  ['lines of product TypeScript', linesIn(product)],
  ['lines of the platform', linesIn(product.filter((path) => !/^(?:packages|functions)\//.test(path)))],
  ['lines of committed generated YAML', linesIn(yaml.filter((path) => generated.has(path)))],
  [
    'lines of YAML in deploy/ by hand',
    linesIn(yaml.filter((path) => path.startsWith('deploy/') && !generated.has(path))),
  ],
  ['files on the path of one edit', editFilesOf(architecturePage()).length],
  ['files on the path of one enqueue', enqueueFiles(architecturePage()).length],
]
const width = Math.max(...rows.map(([what]) => what.length))
for (const [what, number] of rows) console.log(`${what.padEnd(width)}  ${number.toLocaleString('en')}`)
if (process.argv.includes('--small')) console.log(`\n${small.join('\n')}`)
