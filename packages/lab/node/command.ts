import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'

/**
 * Returns the standard output of a program that ended with exit code 0. Rejects otherwise, with the program's error
 * output.
 */
export async function run(command: string, args: string[], options: RunOptions = {}): Promise<string> {
  const child = spawn(command, args, {
    stdio: 'pipe',
    env: { ...process.env, PATH: administratorPath(), ...options.env },
  })
  const exit = once(child, 'exit').catch((cause: unknown) => {
    throw new Error(`${command} cannot be started`, { cause })
  })
  child.stdin.on('error', () => {}) // a program that ends without reading its input reports the reason on stderr
  child.stdin.end(options.input ?? '')
  const [[code, signal], stdout, stderr] = await Promise.all([exit, text(child.stdout), text(child.stderr)])
  if (code === 0) return stdout
  throw new Error(`${command} ${args.join(' ')}: ${stderr.trim() || stdout.trim() || `ended with ${code ?? signal}`}`)
}

/** Adds the folders of administrator programs: after `su`, root has the PATH of the user, which lacks them. */
const administratorPath = (): string => `${process.env['PATH'] ?? ''}:/usr/sbin:/sbin`

interface RunOptions {
  input?: string
  env?: Record<string, string>
}

/** Runs a clean-up command and ignores errors: the object may already be removed, wholly or in part. */
export async function tryRun(command: string, args: string[]): Promise<void> {
  await run(command, args).catch(() => {})
}
