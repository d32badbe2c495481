import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { cacheDir } from '../../../packages/lab/build.ts'
import { madeOnce } from '../../support/made-once.ts'

const FOLDER = fileURLToPath(new URL('./kopf', import.meta.url))
const REQUIREMENTS = join(FOLDER, 'requirements.txt')
export const KOPF_OPERATOR = join(FOLDER, 'operator.py')

export const hasPython = (): boolean => spawnSync('python3', ['-m', 'venv', '--help']).status === 0

/** The command `kopf` of an environment with the pinned packages, made once in the user's cache. */
export async function kopfCommand(): Promise<string> {
  const version = createHash('sha256').update(readFileSync(REQUIREMENTS)).digest('hex').slice(0, 12)
  const dir = join(cacheDir(), 'python', `kopf-${version}`)
  const command = join(dir, 'bin', 'kopf')
  return madeOnce(dir, command, async () => {
    run('python3', ['-m', 'venv', dir])
    run(join(dir, 'bin', 'pip'), ['install', '--quiet', '--disable-pip-version-check', '-r', REQUIREMENTS])
  })
}

function run(command: string, args: readonly string[]): void {
  const { status, stderr } = spawnSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'ignore', 'pipe'] })
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} has failed: ${stderr.trim()}`)
}
