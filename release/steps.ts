import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { ROOT } from './build.ts'

const execute = promisify(execFile)

export interface Step {
  does: string
  /** Whether the step changes the checkout, or publishes. A dry run prints such a step without running it. */
  changes: boolean
  act: () => Promise<unknown>
}

/** Returns a step that changes something: a program with its arguments, run in the checkout. */
export const running = (program: string, ...args: string[]): Step => ({
  does: [program, ...args.map((arg) => (/\s/.test(arg) ? JSON.stringify(arg) : arg))].join(' '),
  changes: true,
  act: () => outputOf(program, ...args),
})

/** Returns the standard output of a program. Rejects with its error output. */
export async function outputOf(program: string, ...args: string[]): Promise<string> {
  try {
    return (await execute(program, args, { cwd: ROOT, maxBuffer: 2 ** 26 })).stdout
  } catch (error) {
    const { stderr = '', message } = error as Error & { stderr?: string }
    throw new Error(`${program} ${args.join(' ')} failed: ${stderr.trim() || message}`, { cause: error })
  }
}

/** Runs the steps in order, and prints each one before it begins. */
export async function follow(
  steps: readonly Step[],
  { dryRun, say }: { dryRun: boolean; say: (line: string) => void },
): Promise<void> {
  for (const { does, changes, act } of steps) {
    say(changes && dryRun ? `would: ${does}` : does)
    if (!changes || !dryRun) await act()
  }
}

/** Rejects uncommitted changes, since a release consists of committed files. A dry run accepts them. */
export async function requireClean({ dryRun, say }: { dryRun: boolean; say: (line: string) => void }): Promise<void> {
  const changed = (await outputOf('git', 'status', '--porcelain')).trim()
  if (changed === '') return
  const message = `the checkout has changes that are not committed:\n${changed}`
  if (!dryRun) throw new Error(`${message}\ncommit or remove them: a release is made of commits`)
  say(`a release would be refused: ${message}`)
}
