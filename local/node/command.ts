import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'

/** Standard output of a program that ended with exit code 0. Any other end is an Error with what it wrote to stderr. */
export async function run(command: string, args: string[], options: RunOptions = {}): Promise<string> {
  const child = spawn(command, args, {
    stdio: 'pipe',
    env: { ...process.env, PATH: administratorPath(), ...options.env },
  })
  const exit = once(child, 'exit').catch((cause: unknown) => {
    throw new Error(`${command} cannot be started`, { cause })
  })
  child.stdin.on('error', () => {}) // a program that ends without reading its input says why on stderr
  child.stdin.end(options.input ?? '')
  const [[code, signal], stdout, stderr] = await Promise.all([exit, text(child.stdout), text(child.stderr)])
  if (code === 0) return stdout
  throw new Error(`${command} ${args.join(' ')}: ${stderr.trim() || stdout.trim() || `ended with ${code ?? signal}`}`)
}

/** After `su` root has the PATH of the user, without the programs for administrators. */
const administratorPath = (): string => `${process.env['PATH'] ?? ''}:/usr/sbin:/sbin`

interface RunOptions {
  input?: string
  env?: Record<string, string>
}

/** For cleaning up: what is to go may be gone already, wholly or in part. */
export async function tryRun(command: string, args: string[]): Promise<void> {
  await run(command, args).catch(() => {})
}
