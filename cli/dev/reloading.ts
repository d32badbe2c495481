import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { WatchedFiles } from './files.ts'

const BIN = fileURLToPath(new URL('../bin.js', import.meta.url))
const REPORT = new URL('./report.ts', import.meta.url).href

/** Its runs have less than that; servers that do not answer any more keep nobody longer. */
const ENDS_WITHIN_MS = 5000

export interface ReloadOptions {
  /** Of the next start. */
  args: () => readonly string[]
  env: NodeJS.ProcessEnv
  /** Watched from the start: what they import is, once it is imported. */
  files: readonly string[]
  say: (text: string) => void
  signal: AbortSignal
}

/**
 * Runs `fairlead …` and starts it anew whenever one of the files changes that it has imported from outside of
 * node_modules. What it had begun is ended or goes back to the queue, and what changed meanwhile waits there. One
 * that ends by itself is started again at the next change. Returns after the signal, when it has ended.
 */
export async function runReloading({ args, env, files, say, signal }: ReloadOptions): Promise<void> {
  let changed = Promise.withResolvers<string>()
  using watched = new WatchedFiles((file) => changed.resolve(file))
  for (const file of files) watched.add(file)
  while (!signal.aborted) {
    changed = Promise.withResolvers<string>()
    const child = start(args(), env, (file) => isOwn(file) && watched.add(file))
    const ended = once(child, 'exit')
    let isWanted = true
    void ended.then(() => {
      if (isWanted && !signal.aborted) say('it has ended: waiting for a change of the file')
    })
    const file = await Promise.race([changed.promise, aborted(signal)])
    isWanted = false
    if (file !== undefined) say(`${file} has changed: starting again`)
    child.kill('SIGTERM')
    const overdue = setTimeout(() => child.kill('SIGKILL'), ENDS_WITHIN_MS)
    await ended
    clearTimeout(overdue)
  }
}

function start(args: readonly string[], env: NodeJS.ProcessEnv, onImport: (file: string) => void): ChildProcess {
  const child = spawn(process.execPath, ['--import', REPORT, BIN, ...args], {
    env,
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  child.on('message', ({ imported }: { imported: string }) => onImport(imported))
  return child
}

const isOwn = (file: string): boolean => !file.includes('/node_modules/')

async function aborted(signal: AbortSignal): Promise<undefined> {
  if (!signal.aborted) await once(signal, 'abort')
}
