import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const LOADS = new URL('./loads.ts', import.meta.url).href

/** The rooms and packages that a process of Node.js has loaded when it ends, whether it fails or not. */
export async function loadedBy(args: string[], env: Record<string, string> = {}): Promise<string[]> {
  const { PATH, HOME } = process.env
  const started = promisify(execFile)(process.execPath, ['--import', LOADS, ...args], { env: { PATH, HOME, ...env } })
  const { stderr } = await started.catch((failed: { stderr: string }) => failed)
  return JSON.parse(stderr.split('\n').at(-1) ?? '') as string[]
}
