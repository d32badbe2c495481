import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { cacheDir } from '../../packages/lab/build.ts'
import { madeOnce } from './made-once.ts'

const NODE = fileURLToPath(new URL('./node', import.meta.url))
const run = promisify(execFile)

/**
 * Path of a script of a package that test/support/node pins with all that it needs, installed once into the user's cache:
 * too much for those who never run its tests. Scripts of the packages are not run.
 */
export async function nodeProgram(name: string, script: string): Promise<string> {
  const source = join(NODE, name)
  const lock = readFileSync(join(source, 'package-lock.json'))
  const dir = join(cacheDir(), 'npm', `${name}-${createHash('sha256').update(lock).digest('hex').slice(0, 12)}`)
  const program = join(dir, 'done', 'node_modules', script)
  return madeOnce(dir, program, async () => {
    const cwd = join(dir, `new-${process.pid}`)
    cpSync(source, cwd, { recursive: true })
    await run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd, maxBuffer: 2 ** 26 })
    renameSync(cwd, join(dir, 'done'))
  })
}

/** The emulator of Azure Blob Storage. */
export const azurite = (): Promise<string> => nodeProgram('azurite', 'azurite/dist/src/blob/main.js')
