import { vi } from 'vitest'
import { main } from '#cli'
import type { Finished } from './fairlead.ts'

/** `fairlead …` in this process, much quicker than as one of its own: what it prints and its exit code. */
export async function command(args: string[], env: Record<string, string> = {}): Promise<Finished> {
  const before = Object.keys(env).map((name) => [name, process.env[name]] as const)
  Object.assign(process.env, env)
  const written = { stdout: '', stderr: '' }
  const spies = (['stdout', 'stderr'] as const).map((name) =>
    vi.spyOn(process[name], 'write').mockImplementation((text) => {
      written[name] += String(text)
      return true
    }),
  )
  const log = vi.spyOn(console, 'error').mockImplementation((text: string) => void (written.stderr += `${text}\n`))
  try {
    await main(['node', 'fairlead', ...args])
    return { ...written, code: Number(process.exitCode) }
  } finally {
    for (const spy of [...spies, log]) spy.mockRestore()
    process.exitCode = 0
    // One by one: an object in its place would no longer be what the system, and os.tmpdir(), see.
    for (const [name, value] of before)
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
  }
}
