import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { EXIT } from '#host/exit'
import { doubling, pause } from '#primitives'
import { WatchedFiles } from './files.ts'

const BIN = fileURLToPath(new URL('../bin.js', import.meta.url))
const REPORT = new URL('./report.ts', import.meta.url).href

/** Its runs have less than that; servers that do not answer any more keep nobody longer. */
const ENDS_WITHIN_MS = 5000
const FIRST_PAUSE_MS = 1000
/** A process that has run for longer starts again after the first pause. */
const LONGEST_PAUSE_MS = 60_000

export interface ReloadOptions {
  /** Of the next start. */
  args: () => readonly string[]
  env: NodeJS.ProcessEnv
  /** Watched from the start: what they import is, once it is imported. */
  files: readonly string[]
  say: (text: string) => void
  signal: AbortSignal
  /** Resolves after this time, or when the signal is aborted. Left out: a timer. */
  wait?: typeof pause
}

/**
 * Runs `fairlead …` and starts it anew whenever one of the files changes that it has imported from outside of
 * node_modules. What it had begun is ended or goes back to the queue, and what changed meanwhile waits there. One
 * that ends by itself is started again after a pause, or at the next change if only that can help. Returns after the
 * signal, when it has ended.
 */
export async function runReloading({ args, env, files, say, signal, wait = pause }: ReloadOptions): Promise<void> {
  let changed = new AbortController()
  using watched = new WatchedFiles((file) => changed.abort(file))
  for (const file of files) watched.add(file)
  let nextPause = doubling(FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
  while (!signal.aborted) {
    changed = new AbortController()
    const either = AbortSignal.any([signal, changed.signal])
    const startedAt = performance.now()
    const child = start(args(), env, (file) => isOwn(file) && watched.add(file))
    const ended = once(child, 'exit') as Promise<Exit>
    const end = await Promise.race([ended, aborted(either)])
    if (performance.now() - startedAt > LONGEST_PAUSE_MS) nextPause = doubling(FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
    if (end === undefined) await endOf(child, ended)
    else await untilItMayStart(end, nextPause, { say, wait, signal: either })
    if (!changed.signal.aborted) continue
    say(`${String(changed.signal.reason)} has changed: starting again`)
    nextPause = doubling(FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
  }
}

type Exit = [code: number | null, signal: NodeJS.Signals | null]

async function endOf(child: ChildProcess, ended: Promise<Exit>): Promise<void> {
  child.kill('SIGTERM')
  const overdue = setTimeout(() => child.kill('SIGKILL'), ENDS_WITHIN_MS)
  await ended
  clearTimeout(overdue)
}

/** What a command line or a module says does not change by itself. */
async function untilItMayStart(
  [code, by]: Exit,
  nextPause: () => number,
  { say, wait, signal }: Required<Pick<ReloadOptions, 'say' | 'wait' | 'signal'>>,
): Promise<void> {
  const how = by === null ? `has ended with exit code ${code}` : `was ended by ${by}`
  if (code === EXIT.usage) {
    say(`the process ${how}: waiting for a change of its files`)
    return aborted(signal)
  }
  const ms = nextPause()
  say(`the process ${how}: starting it again in ${ms / 1000} s, or when its files change`)
  await wait(ms, signal)
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
