import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { EXIT } from '#host/exit'
import { doubling, pause } from '#primitives'
import { WatchedFiles } from './files.ts'

const BIN = fileURLToPath(new URL('../bin.js', import.meta.url))
const REPORT = new URL('./report.ts', import.meta.url).href

/** The grace period of runs is shorter than this; a server that does not answer delays the restart no longer. */
const ENDS_WITHIN_MS = 5000
const FIRST_PAUSE_MS = 1000
/** After a run of this length, the first pause applies again. */
const LONGEST_PAUSE_MS = 60_000

export interface ReloadOptions {
  /** Returns the arguments of the next start. */
  args: () => readonly string[]
  env: NodeJS.ProcessEnv
  /** Files that are watched from the start. Their imports are watched after they are loaded. */
  files: readonly string[]
  say: (text: string) => void
  signal: AbortSignal
  /** Resolves after this time, or when the signal is aborted. Default: a timer. */
  wait?: typeof pause
}

/**
 * Runs `fairlead …`, and restarts it when one of the files changes that it has imported from outside of node_modules.
 * Unfinished runs end or return to the queue, where changes wait in the meantime. A process that ends by itself is
 * restarted after a pause, or at the next change if only a change can fix it. Resolves after the signal, when the
 * process has ended.
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

/** After an error of the command line or of a module, waits for a change of a file: a restart would fail again. */
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
