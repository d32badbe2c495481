import { spawn } from 'node:child_process'
import { once } from 'node:events'

/** A program of this repository, by the name that `npm run bench` or `npm run soak` takes. */
interface Program {
  /** Shown in the list of names. */
  does: string
  /** The command without the user's arguments, which are appended. */
  command: readonly [string, ...string[]]
  env?: Record<string, string>
  /** Returns a sentence about a missing requirement of this machine; undefined if all are met. */
  lacks?: () => string | undefined
}

interface Programs {
  /** `npm run bench` */
  usage: string
  programs: Record<string, Program>
  /** Programs to run if no name is given. */
  byDefault: readonly string[]
}

/** Runs the program that the first argument names with the other arguments. Gives the exit code: 2 for a wrong name. */
export async function runProgram({ usage, programs, byDefault }: Programs, args: readonly string[]): Promise<number> {
  const [first] = args
  const isNamed = first !== undefined && !first.startsWith('-')
  if (isNamed && programs[first] === undefined) {
    const width = Math.max(...Object.keys(programs).map((name) => name.length))
    const lines = Object.entries(programs).map(([name, { does }]) => `  ${name.padEnd(width)}  ${does}`)
    process.stderr.write(`${JSON.stringify(first)} is not a name that ${usage} knows. Names:\n${lines.join('\n')}\n`)
    return 2
  }
  const names = isNamed ? [first] : byDefault
  const rest = isNamed ? args.slice(1) : args
  let failed = 0
  for (const program of names.flatMap((name) => programs[name] ?? [])) failed ||= await run(program, rest)
  return failed
}

async function run(program: Program, args: readonly string[]): Promise<number> {
  const missing = program.lacks?.()
  if (missing !== undefined) {
    process.stderr.write(`${missing}\n`)
    return 2
  }
  const [file, ...own] = program.command
  const child = spawn(file, [...own, ...args], { stdio: 'inherit', env: { ...process.env, ...program.env } })
  // A terminal sends Ctrl-C to the child as well, which then ends in its own way.
  const wait = () => undefined
  const end = () => void child.kill('SIGTERM')
  process.on('SIGINT', wait).on('SIGTERM', end)
  const [code] = (await once(child, 'exit')) as [number | null]
  process.off('SIGINT', wait).off('SIGTERM', end)
  return code ?? 1
}
