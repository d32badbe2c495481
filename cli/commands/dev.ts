import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, type FSWatcher, statSync, watch } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  defaultClusterDir,
  developmentEnvironment,
  ensureDevelopmentCluster,
  type Progress,
  portIfFree,
  progressOn,
  startNats,
  type WantedNode,
  withTask,
} from '#lab'
import { doubling, pause } from '#primitives'
import { type CommonOptions, readConfig } from '#process/config'
import { EXIT, UsageError, untilStopped } from '#process/exit'
import { openKube } from '#process/kube'
import { openConsole } from './console.ts'
import { examplesIn, followExamples } from './manifests.ts'

export interface DevOptions {
  function: string[]
  node: WantedNode
  dir?: string
  apply: string[]
  open: boolean
}

/** Servers that the command line names instead of the local cluster. */
type Given = Pick<CommonOptions, 'kubeconfig' | 'context' | 'nats'>

/** Runs functions under development on a cluster of this machine, and restarts them at each change of their files. */
export async function dev(options: DevOptions, given: Given): Promise<void> {
  const progress = progressOn(process.stderr)
  const { signal } = untilStopped()
  const files = options.function.map((file) => resolve(file))
  if (files.length === 0) throw new UsageError('name the function to work on: fairlead dev -f my-operator.ts')
  const missing = files.find((file) => !existsSync(file))
  if (missing !== undefined) throw new UsageError(`there is no function module ${missing}: give the path of a file`)
  const examples = (await Promise.all(options.apply.map(examplesIn))).flat()
  await using servers = await serversFor(options, given, progress, signal)
  // Lines for people, in a pipe too. The level stays info, which functions log at.
  const env = { ...process.env, LOG_FORMAT: process.env['LOG_FORMAT'] || 'text', ...servers.env }
  const functions = files.flatMap((file) => ['-f', file])
  const context = given.context === undefined ? [] : ['--context', given.context]
  const args = (revision: string) => [
    ...context,
    'up',
    '--install',
    '--revision',
    revision,
    '--grace-seconds',
    '2',
    ...functions,
  ]
  const say = (text: string): void => progress.line(text)
  const settings = readConfig(env, { context: given.context })
  await using served = await openConsole([settings], { allowWrites: true, function: files, env })
  say(`console: ${served.address}`)
  if (options.open) served.openBrowser()
  const running = runReloading({ args, env, files, say, signal })
  if (examples.length === 0) return running
  await using kube = await openKube(settings)
  await Promise.all([running, followExamples(kube, examples, say, signal)])
}

interface Servers extends AsyncDisposable {
  env: Record<string, string>
}

/** The port at which the other commands look for NATS if nothing names one. */
const DEFAULT_NATS_PORT = 4222

/** Only the command line may name other servers: KUBECONFIG and NATS_URL may name a production cluster. */
async function serversFor(
  options: DevOptions,
  given: Given,
  progress: Progress,
  signal: AbortSignal,
): Promise<Servers> {
  const { kubeconfig, context, nats } = given
  if (kubeconfig === undefined && (nats ?? context) !== undefined)
    throw new UsageError('--nats and --context are for a cluster that is there: give --kubeconfig too')
  if (kubeconfig === undefined) return localServers(options, progress, signal)
  if (nats !== undefined)
    return { env: { KUBECONFIG: kubeconfig, NATS_URL: nats }, [Symbol.asyncDispose]: async () => {} }
  const dir = await mkdtemp(join(tmpdir(), 'fl-'))
  const own = { dir, progress, signal, dieWithParent: true, temporary: true }
  const started = await withTask(progress, 'nats-server', async () =>
    startNats({ ...own, port: await portIfFree(DEFAULT_NATS_PORT) }),
  )
  progress.line(`NATS_URL=${started.url}, as long as this command runs`)
  return { env: { KUBECONFIG: kubeconfig, NATS_URL: started.url }, [Symbol.asyncDispose]: () => started.stop() }
}

/** The local cluster, which continues after the command. */
async function localServers({ dir, node }: DevOptions, progress: Progress, signal: AbortSignal): Promise<Servers> {
  const status = await ensureDevelopmentCluster({
    dir: dir ?? defaultClusterDir(process.env),
    node,
    progress,
    signal,
  })
  const inDir = dir === undefined ? '' : ` --dir ${dir}`
  progress.line(
    `kubectl and nats use this cluster after: eval "$(fairlead local env${inDir})"; it stays until: fairlead local down${inDir}`,
  )
  return { env: developmentEnvironment(status, process.env), [Symbol.asyncDispose]: async () => {} }
}

const BIN = fileURLToPath(new URL('../bin.js', import.meta.url))
const REPORT = new URL('./dev-report.ts', import.meta.url).href

/** The grace period of runs is shorter than this; a server that does not answer delays the restart no longer. */
const ENDS_WITHIN_MS = 5000
const FIRST_PAUSE_MS = 1000
/** After a run of this length, the first pause applies again. */
const LONGEST_PAUSE_MS = 60_000

export interface ReloadOptions {
  /**
   * Returns the arguments of the next start. The revision is another one only after a change of a file: a restart without one
   * runs no object that has nothing to do.
   */
  args: (revision: string) => readonly string[]
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
  let revision = newRevision()
  while (!signal.aborted) {
    changed = new AbortController()
    const either = AbortSignal.any([signal, changed.signal])
    const startedAt = performance.now()
    const { child, ended } = start(args(revision), env, (file) => isOwn(file) && watched.add(file))
    const end = await Promise.race([ended, aborted(either)])
    if (performance.now() - startedAt > LONGEST_PAUSE_MS) nextPause = doubling(FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
    if (end === undefined) await endOf(child, ended)
    else await untilItMayStart(end, nextPause, { say, wait, signal: either })
    if (!changed.signal.aborted) continue
    say(`${String(changed.signal.reason)} has changed: starting again`)
    revision = newRevision()
    nextPause = doubling(FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
  }
}

const newRevision = (): string => `dev-${Date.now()}`

interface Exit {
  code: number | null
  by: NodeJS.Signals | null
  /** Its error is one that only an edit heals. */
  needsEdit: boolean
}

async function endOf(child: ChildProcess, ended: Promise<Exit>): Promise<void> {
  child.kill('SIGTERM')
  const overdue = setTimeout(() => child.kill('SIGKILL'), ENDS_WITHIN_MS)
  await ended
  clearTimeout(overdue)
}

/** After an error of a module, or of its definitions, waits for a change of a file: a restart would fail again. */
async function untilItMayStart(
  { code, by, needsEdit }: Exit,
  nextPause: () => number,
  { say, wait, signal }: Required<Pick<ReloadOptions, 'say' | 'wait' | 'signal'>>,
): Promise<void> {
  const how = by === null ? `has ended with exit code ${code}` : `was ended by ${by}`
  if (needsEdit || code === EXIT.usage) {
    say(`the process ${how}: waiting for a change of its files; to try again without one, save a file again`)
    return aborted(signal)
  }
  const ms = nextPause()
  say(`the process ${how}: starting it again in ${ms / 1000} s, or when its files change`)
  await wait(ms, signal)
}

/** What the process tells: a file that it has imported, or that only an edit heals its error. */
type Told = { imported: string } | { needsEdit: true }

function start(args: readonly string[], env: NodeJS.ProcessEnv, onImport: (file: string) => void) {
  const child = spawn(process.execPath, ['--import', REPORT, BIN, ...args], {
    env,
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    // Ctrl-C reaches each process of the terminal's group. This one is in no such group, and gets one signal, ours.
    detached: true,
  })
  let needsEdit = false
  child.on('message', (told: Told) => {
    if ('imported' in told) onImport(told.imported)
    else needsEdit = true
  })
  // Not 'exit', which may come before the last message.
  const closed = once(child, 'close') as Promise<[Exit['code'], Exit['by']]>
  return { child, ended: closed.then(([code, by]): Exit => ({ code, by, needsEdit })) }
}

const isOwn = (file: string): boolean => !file.includes('/node_modules/')

async function aborted(signal: AbortSignal): Promise<undefined> {
  if (!signal.aborted) await once(signal, 'abort')
}

/** The time until a change counts as complete: an editor writes a file in several steps, or replaces it. */
const SETTLES_MS = 100

/** Reports when one of the files is written, replaced or deleted. */
class WatchedFiles implements Disposable {
  readonly #files = new Map<string, number>()
  readonly #folders = new Map<string, FSWatcher>()
  readonly #onChange: (file: string) => void
  #settling: NodeJS.Timeout | undefined

  constructor(onChange: (file: string) => void) {
    this.#onChange = onChange
  }

  add(file: string): void {
    if (this.#files.has(file)) return
    this.#files.set(file, modifiedAt(file))
    const folder = dirname(file)
    // Watches the folder, since a replaced file is a new inode.
    if (!this.#folders.has(folder))
      this.#folders.set(
        folder,
        watch(folder, () => this.#look()),
      )
  }

  #look(): void {
    clearTimeout(this.#settling)
    this.#settling = setTimeout(() => {
      const changed = [...this.#files].filter(([file, at]) => modifiedAt(file) !== at).map(([file]) => file)
      for (const file of changed) this.#files.set(file, modifiedAt(file))
      if (changed[0] !== undefined) this.#onChange(changed[0])
    }, SETTLES_MS)
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#settling)
    for (const watcher of this.#folders.values()) watcher.close()
  }
}

const modifiedAt = (file: string): number => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0
