import { globSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import packageJson from '../../package.json' with { type: 'json' }

/** Imports and exports from a module, of types too, and imports while the program runs. */
const FROM = /^(?:import|export)\b[^'"]*?\bfrom\s+'([^']+)'|^import\s+'([^']+)'|\bimport\(\s*'([^']+)'\s*\)/gm

/** The files of a room import each other by path, and other rooms by the names in package.json. */
const DOORS: Record<string, string> = packageJson.imports

/** What each file imports of this repository, by path: types count as values do. */
export type Imports = ReadonlyMap<string, readonly string[]>

/** The source files, without the tests. */
export const sourceFiles = (): string[] =>
  globSync('*/**/*.ts', {
    exclude: ['node_modules/**', 'packages/site/**', 'test/**', 'coverage/**', 'build/**'],
  }).sort()

export const importsOf = (files: readonly string[]): Imports => new Map(files.map((file) => [file, importedBy(file)]))

function importedBy(file: string): string[] {
  const specifiers = [...readFileSync(file, 'utf8').matchAll(FROM)].map((match) => match.slice(1).find(Boolean) ?? '')
  const paths = specifiers.map((specifier) => pathOf(file, specifier)).filter((path) => path !== undefined)
  return [...new Set(paths)]
}

/** Undefined: a package, or a module of Node.js. */
function pathOf(file: string, specifier: string): string | undefined {
  if (specifier.startsWith('.')) return join(dirname(file), specifier)
  if (!specifier.startsWith('#')) return undefined
  for (const [door, target] of Object.entries(DOORS)) {
    if (door === specifier) return join(target)
    const [before = '', after] = door.split('*')
    if (after !== undefined && specifier.startsWith(before))
      return join(target.replace('*', specifier.slice(before.length)))
  }
  throw new Error(`${file} imports ${specifier}, which package.json does not name: add it to "imports"`)
}

/** The groups of nodes that reach each other: empty when there is no cycle. */
export function cyclesIn(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const reachable = new Map([...graph.keys()].map((node) => [node, reachableFrom(graph, node)]))
  const cycles = [...graph.keys()]
    .filter((node) => reachable.get(node)?.has(node))
    .map((node) =>
      [...graph.keys()].filter((other) => reaches(reachable, node, other) && reaches(reachable, other, node)),
    )
  return [...new Map(cycles.map((cycle) => [cycle.join(' '), cycle])).values()]
}

const reaches = (reachable: ReadonlyMap<string, ReadonlySet<string>>, from: string, to: string): boolean =>
  reachable.get(from)?.has(to) ?? false

/** All nodes that a node leads to, itself only if there is a cycle. */
export function reachableFrom(graph: ReadonlyMap<string, readonly string[]>, start: string): Set<string> {
  const reached = new Set<string>()
  const waiting = [...(graph.get(start) ?? [])]
  for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
    if (reached.has(node)) continue
    reached.add(node)
    waiting.push(...(graph.get(node) ?? []))
  }
  return reached
}
