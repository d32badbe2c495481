import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { ROOT } from './build.ts'

const execute = promisify(execFile)

export interface Step {
  does: string
  /** It changes the checkout, or something that others see: a dry run prints it and leaves it out. */
  changes: boolean
  act: () => Promise<unknown>
}

/** A step that changes something: a program and its arguments, run in the checkout. */
export const running = (program: string, ...args: string[]): Step => ({
  does: [program, ...args.map((arg) => (/\s/.test(arg) ? JSON.stringify(arg) : arg))].join(' '),
  changes: true,
  act: () => outputOf(program, ...args),
})

/** What a program prints. Throws with what it says as its error. */
export async function outputOf(program: string, ...args: string[]): Promise<string> {
  try {
    return (await execute(program, args, { cwd: ROOT, maxBuffer: 2 ** 26 })).stdout
  } catch (error) {
    const { stderr = '', message } = error as Error & { stderr?: string }
    throw new Error(`${program} ${args.join(' ')} failed: ${stderr.trim() || message}`, { cause: error })
  }
}

/** One step after the other, each told before it begins. */
export async function follow(
  steps: readonly Step[],
  { dryRun, say }: { dryRun: boolean; say: (line: string) => void },
): Promise<void> {
  for (const { does, changes, act } of steps) {
    say(changes && dryRun ? `would: ${does}` : does)
    if (!changes || !dryRun) await act()
  }
}

/** A release is made of what is committed. A dry run of uncommitted changes is of use. */
export async function requireClean({ dryRun, say }: { dryRun: boolean; say: (line: string) => void }): Promise<void> {
  const changed = (await outputOf('git', 'status', '--porcelain')).trim()
  if (changed === '') return
  const message = `the checkout has changes that are not committed:\n${changed}`
  if (!dryRun) throw new Error(`${message}\ncommit or remove them: a release is made of commits`)
  say(`a release would be refused: ${message}`)
}
