import { CommanderError } from 'commander'
import { describe, EXIT, exitCodeOf, harmless, showsStacks, tellIfEditHeals } from '#process/exit'
import { createProgram } from './program/program.ts'

export { endWithShell } from '#process/exit'

/** Parses and runs the command, and turns any failure into one line and an exit code. */
export async function main(argv: string[]): Promise<void> {
  let code: number = EXIT.ok
  const program = createProgram(
    (text, paint = (safe) => safe) => process.stdout.write(`${paint(harmless(text))}\n`),
    (wanted) => {
      code = wanted
    },
  )
  // The reader has closed the pipe, as `head` does.
  process.stdout.on('error', ({ code: why }: NodeJS.ErrnoException) =>
    process.exit(why === 'EPIPE' ? EXIT.ok : EXIT.failed),
  )
  try {
    await program.parseAsync(argv)
  } catch (error) {
    code = failed(error)
    await tellIfEditHeals(error)
  }
  process.exitCode = code
}

function failed(error: unknown): number {
  // Commander has printed its own message. Help and version are successes.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage
  if (error instanceof Error && error.name === 'AbortError') {
    console.error('fairlead: interrupted')
    return EXIT.interrupted
  }
  console.error(describe(error, showsStacks(process.env)))
  return exitCodeOf(error)
}
