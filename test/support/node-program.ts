import { execFile } from 'node:child_process'
import { mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { cacheDir } from '../../packages/lab/build.ts'
import { madeOnce } from './made-once.ts'

const run = promisify(execFile)

/** The day that says which versions a package brings along: newer ones are not seen. A lock file of Azurite has 4,300 lines. */
const AS_OF = '2026-11-01'

/**
 * Path of a script of a package of npm (`pnpm@10.34.9`), installed once into the user's cache: too much for those who
 * never run its tests. Scripts of the packages are not run.
 */
export async function nodeProgram(spec: string, script: string): Promise<string> {
  const dir = join(cacheDir(), 'npm', `${spec.replaceAll('/', '+')}-${AS_OF}`)
  const program = join(dir, 'done/node_modules', spec.slice(0, spec.lastIndexOf('@')), script)
  return madeOnce(dir, program, async () => {
    const cwd = join(dir, `new-${process.pid}`)
    mkdirSync(cwd)
    writeFileSync(join(cwd, 'package.json'), '{ "private": true }')
    const args = ['install', spec, '--before', AS_OF, '--ignore-scripts', '--no-audit', '--no-fund']
    await run('npm', args, { cwd, maxBuffer: 2 ** 26 })
    renameSync(cwd, join(dir, 'done'))
  })
}

/** The emulator of Azure Blob Storage. */
export const azurite = (): Promise<string> => nodeProgram('azurite@3.35.0', 'dist/src/blob/main.js')
