import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { UsageError } from '#host/exit'

const BIN = fileURLToPath(new URL('../bin.js', import.meta.url))
const ENDS_WITHIN_MS = 60_000
const MOST_BYTES = 32 * 2 ** 20

/** Runs a command of `fairlead` with `-o json`, and returns its output, even after an exit code other than 0. */
export function commandJson(args: readonly string[], env: NodeJS.ProcessEnv): Promise<unknown> {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>()
  const options = { env, timeout: ENDS_WITHIN_MS, maxBuffer: MOST_BYTES }
  execFile(process.execPath, [BIN, ...args], options, (error, stdout, stderr) => {
    try {
      resolve(JSON.parse(stdout))
    } catch {
      const said = stderr
        .trim()
        .split('\n')
        .at(-1)
        ?.replace(/^fairlead: /, '')
      reject(new UsageError(said || error?.message || 'the command has printed nothing'))
    }
  })
  return promise
}
