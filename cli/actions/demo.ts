import { type CommonOptions, variablesOf } from '#host/config'
import { untilStopped } from '#host/exit'
import { progressOn } from '#local'
import { demo } from '../demo/demo.ts'

/** Returns the exit code. */
export function showDemo(
  { keep, node: hasNode }: { keep: boolean; node: boolean },
  given: CommonOptions,
): Promise<number> {
  const env = { ...process.env, ...variablesOf(given) }
  const progress = progressOn(process.stderr)
  return demo({ keep, hasNode, env, progress, out: process.stdout, signal: untilStopped().signal })
}
