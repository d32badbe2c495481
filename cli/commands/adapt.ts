import { EXIT } from '#process/exit'
import { checkHook } from '#process/hooks/hook'
import { createLogger } from '#process/logging'
import type { CommandContext } from '../options.ts'

/** Prints what of a hook of shell-operator runs, what differs, and what is refused. */
export async function checkShellOperatorHook(
  path: string,
  { config, print, setExitCode }: CommandContext,
): Promise<void> {
  const { findings, config: runnable } = await checkHook(path, await createLogger(await config()))
  for (const { is, text } of findings) print(`${is.padEnd(7)}  ${text}`)
  setExitCode(runnable === undefined ? EXIT.failed : EXIT.ok)
}
