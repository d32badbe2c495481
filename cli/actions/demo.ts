import { progressOn } from '#local'
import { type CommonOptions, variablesOf } from '../config.ts'
import { demo } from '../demo/demo.ts'
import { untilStopped } from '../signals.ts'

/** Returns the exit code. */
export function showDemo(keep: boolean, given: CommonOptions): Promise<number> {
  const env = { ...process.env, ...variablesOf(given) }
  const progress = progressOn(process.stderr)
  return demo({ keep, env, progress, out: process.stdout, signal: untilStopped().signal })
}
