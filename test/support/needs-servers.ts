import { existsSync, readFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'

/** Modules of the tests that start servers or commands, or wait for them. */
const STARTS = /node:child_process|'#lab'|'fairlead\/testing\/cluster'/
const IMPORT = /(?:from|import)\s*\(?'(\.[^']+\.ts)'/g

/** Whether a test file starts a server or another process, itself or by what it imports from `test/`. */
export function needsServers(file: string, read = new Set<string>()): boolean {
  if (read.has(file)) return false
  read.add(file)
  const text = readFileSync(file, 'utf8')
  if (STARTS.test(text)) return true
  return [...text.matchAll(IMPORT)]
    .map(([, path = '']) => resolve(dirname(file), path))
    .some((imported) => imported.includes('/test/') && existsSync(imported) && needsServers(imported, read))
}
